"""The chart: its values are checked, and its modes deploy what the manifests do."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from extender.registration.decoding import decode
from extender.registration.finding import Severity
from extender.registration.rule import judge
from tests.extender.deployed import (
    CHART,
    KUBERNETES,
    MANIFESTS,
    NAME,
    PROJECT,
    ROOT,
    WAYS,
    Object,
    configuration_of,
    containers,
    documents,
    files_of,
    granted,
    helm,
    needs,
    of_kind,
    only,
    pod_of,
    render,
    render_chart,
)

SAME_AS = {"service": "base", "ha": "ha", "kubeadm": "kubeadm", "sidecar": "second-scheduler"}
"""Files of values, by the way that they are to be the same as."""
MONITORING = {"PodMonitor", "ServiceMonitor", "PrometheusRule"}
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())

every_mode = pytest.mark.parametrize("mode", SAME_AS)


def chosen(mode: str) -> Path:
    return CHART / "ci" / f"{mode}-values.yaml"


def merged(over: dict[str, Any], under: dict[str, Any] = VALUES) -> dict[str, Any]:
    """Return values over those of the chart, as Helm puts them."""
    nested = {
        key: merged(value, under[key]) if isinstance(value, dict) and isinstance(under.get(key), dict) else value
        for key, value in over.items()
    }
    return {**under, **nested}


# --- without Helm ----------------------------------------------------------------------------------------------------


def is_valid(values: dict[str, Any]) -> bool:
    schema = json.loads((CHART / "values.schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    return bool(jsonschema.Draft7Validator(schema).is_valid(merged(values)))


def test_the_chart_is_of_the_project_s_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["name"], chart["version"], chart["appVersion"]) == (NAME, PROJECT["version"], PROJECT["version"])


def test_the_values_of_the_chart_are_valid_and_the_schema_knows_them_all() -> None:
    assert is_valid({})
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]) - {"global"} == set(VALUES)


@every_mode
def test_the_values_of_a_mode_are_valid(mode: str) -> None:
    assert is_valid(yaml.safe_load(chosen(mode).read_text()))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"mode": "daemon"}, id="a mode that does not exist"),
        pytest.param({"replica": 3}, id="a misspelt key"),
        pytest.param({"image": {"repo": "x"}}, id="a misspelt key inside"),
        pytest.param({"mode": "service", "replicas": 2}, id="several replicas without leader election"),
        pytest.param({"mode": "sidecar", "tls": {"secretName": "x"}}, id="certificates inside a pod"),
        pytest.param({"authentication": {"enabled": True}}, id="tokens in the clear"),
        pytest.param({"scheduler": {"name": "default-scheduler"}}, id="the name of the cluster's own scheduler"),
        pytest.param({"networkPolicy": {"controlPlane": ["10.0.0.1"]}}, id="an address that is no range"),
        pytest.param({"image": {"digest": "latest"}}, id="a digest that is none"),
        pytest.param({"extraVolumes": [{"emptyDir": {}}]}, id="a volume without a name"),
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any]) -> None:
    assert not is_valid(values)


def test_alerts_and_dashboard_are_those_of_the_manifests() -> None:
    for name in ("rules.yaml", "dashboard.json"):
        assert (CHART / "files" / name).resolve() == MANIFESTS / "monitoring" / name


@pytest.mark.parametrize("path", sorted((CHART / "templates").iterdir()), ids=lambda path: path.name)
def test_blocks_of_a_template_are_closed_and_what_it_includes_is_defined(path: Path) -> None:
    text = path.read_text()
    actions = re.findall(r"\{\{-?\s*(.*?)\s*-?\}\}", text, re.DOTALL)
    assert text.count("{{") == text.count("}}") == len(actions)
    words = [action.split()[0] for action in actions]
    assert sum(word in ("if", "with", "range", "define") for word in words) == words.count("end")
    templates = "".join(file.read_text() for file in (CHART / "templates").glob("_*.tpl"))
    assert set(re.findall(r'include "([^"]+)"', text)) <= set(re.findall(r'define "([^"]+)"', templates))


def test_templates_read_values_that_exist() -> None:
    for path in (CHART / "templates").iterdir():
        for dotted in re.findall(r"\.Values\.([A-Za-z.]+)", path.read_text()):
            value: Any = VALUES
            for key in dotted.split("."):
                assert key in value, f"{path.name}: {dotted}"
                value = value[key]


# --- with Helm -------------------------------------------------------------------------------------------------------


def plain(item: Any, hashed: str = "") -> Any:
    """Return what counts of an object: not Helm's labels, nor defaults written out, nor the order of named items."""
    if isinstance(item, dict):
        dropped = {"annotations": {"checksum/configuration"}, "labels": _HELM, "matchLabels": _HELM, "selector": _HELM}
        found = {}
        for key, value in item.items():
            if key in dropped and isinstance(value, dict):
                value = {name: text for name, text in value.items() if name not in dropped[key]}  # noqa: PLW2901
            if (key, value) not in _DEFAULTS:
                found[key] = plain(value, hashed)
        return found
    if isinstance(item, list):
        items = [plain(value, hashed) for value in item]
        named = all(isinstance(value, dict) and "name" in value for value in items)
        return sorted(items, key=lambda value: value["name"]) if named else items
    return f"{NAME}-configuration" if item == hashed else item


_HELM = {*("app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart")}
_DEFAULTS = [("imagePullPolicy", "IfNotPresent"), ("scheme", "HTTP"), ("annotations", {})]


@needs("helm")
@every_mode
def test_helm_finds_nothing_to_say_about_the_chart(mode: str) -> None:
    done = helm("lint", "--strict", str(CHART), "--values", str(chosen(mode)))
    assert done.returncode == 0, done.stdout


@needs("helm")
@needs("kubectl")
@every_mode
def test_a_mode_deploys_what_the_manifests_do(mode: str) -> None:
    ours = [item for item in render_chart("--values", str(chosen(mode))) if not _monitors(item)]
    theirs = [item for item in render(WAYS[SAME_AS[mode]]) if item["kind"] != "Namespace"]
    hashed = only(theirs, "ConfigMap")["metadata"]["name"]
    for kind in ("Deployment", "Service", "NetworkPolicy", "PodDisruptionBudget", "ServiceAccount", "ResourceQuota"):
        assert plain(of_kind(ours, kind)) == plain(of_kind(theirs, kind), hashed)
    for kind in ("Role", "ClusterRole"):
        assert granted(ours, kind) == granted(theirs, kind)
    assert _bound(ours) - {("ClusterRole", NAME)} == _bound(theirs) - {
        ("ClusterRole", name) for name in (NAME, f"{NAME}-authentication")
    }
    parsed = [{name: yaml.safe_load(text) for name, text in files_of(objects).items()} for objects in (ours, theirs)]
    assert parsed[0] == parsed[1]


def _monitors(item: Object) -> bool:
    return item["kind"] in MONITORING or item["metadata"]["name"].endswith("-dashboard")


def _bound(objects: list[Object]) -> set[tuple[str, str]]:
    """Return the roles that are bound, each to nobody but the account of the pod."""
    account = {"kind": "ServiceAccount", "name": only(objects, "ServiceAccount")["metadata"]["name"], "namespace": NAME}
    bindings = [item for item in objects if item["kind"].endswith("Binding")]
    assert all(item["subjects"] == [account] for item in bindings)
    return {(item["roleRef"]["kind"], item["roleRef"]["name"]) for item in bindings}


@needs("helm")
@every_mode
@pytest.mark.parametrize("release", [NAME, "x"])
def test_every_object_is_one_that_kubernetes_knows_to_its_last_key(mode: str, release: str) -> None:
    for item in render_chart("--values", str(chosen(mode)), release=release):
        if item["kind"] not in MONITORING:
            kubernetes_validate.validate(item, KUBERNETES, strict=True)
        assert item["metadata"]["name"].startswith(NAME if release == NAME else f"x-{NAME}")


@needs("helm")
def test_configuration_goes_over_what_the_mode_makes_of_it(tmp_path: Path) -> None:
    objects = render_chart(
        *("--set", "mode=ha", "--set", "configuration.server.port=9000"),
        *("--set", "configuration.server.maxBodyBytes=268435456", "--set", "configuration.log.level=debug"),
    )
    configuration = configuration_of(objects, tmp_path)
    assert configuration.leader_election.enabled
    assert (configuration.server.port, configuration.server.max_body_bytes) == (9000, 2**28)
    assert configuration.log.level == "debug"
    ports = {port["name"]: port["containerPort"] for port in containers(pod_of(objects))["extender"]["ports"]}
    assert ports == {"verbs": 9000, "management": 8889}
    assert [port["port"] for port in only(objects, "Service")["spec"]["ports"]] == [9000, 8889]
    let_through = [rule["ports"] for rule in only(objects, "NetworkPolicy")["spec"]["ingress"]]
    assert let_through == [[{"port": 9000}], [{"port": 8889}]]


@needs("helm")
def test_scheduler_configuration_goes_over_that_of_the_sidecar() -> None:
    objects = render_chart(
        *("--set", "mode=sidecar", "--set", "configuration.server.port=9000", "--set", "scheduler.name=other"),
        *("--set", "scheduler.configuration.percentageOfNodesToScore=100", "--set", "scheduler.extender.weight=5"),
        *("--set", "scheduler.profile.percentageOfNodesToScore=50"),
    )
    (document,) = documents(files_of(objects)["scheduler-configuration.yaml"])
    assert document["percentageOfNodesToScore"] == 100
    assert document["profiles"] == [{"schedulerName": "other", "percentageOfNodesToScore": 50}]
    assert document["leaderElection"]["resourceName"] == "other"
    configuration, findings = decode(document)
    assert configuration is not None
    findings += judge(configuration)
    assert [finding for finding in findings if finding.severity is Severity.ERROR] == []
    (entry,) = configuration.entries
    assert (entry.url_prefix, entry.weight) == ("http://127.0.0.1:9000/scheduler", 5)
    (rule,) = only(objects, "Role")["rules"]
    assert rule["resourceNames"] == ["other"]


@needs("helm")
def test_more_rights_image_labels_and_pull_secrets_are_put_where_they_belong() -> None:
    values = {
        "image": {"repository": "own", "tag": "2"},
        "imagePullSecrets": [{"name": "pull"}],
        "podLabels": {"team": "a"},
        "rbac": {"extraRules": [{"apiGroups": ["x.example"], "resources": ["racks"], "verbs": ["list", "watch"]}]},
    }
    objects = render_chart(*_options(values))
    pod = pod_of(objects)
    assert containers(pod)["extender"]["image"] == "own:2"
    assert pod["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    assert pod["metadata"]["labels"]["team"] == "a"
    assert "team" not in only(objects, "Deployment")["spec"]["selector"]["matchLabels"]
    assert {("x.example", "racks", "list"), ("x.example", "racks", "watch")} < granted(objects, "ClusterRole")


@needs("helm")
@pytest.mark.parametrize("mode", ["service", "ha", "sidecar"])
def test_a_pod_may_take_longer_to_end_than_its_configuration_says(mode: str, tmp_path: Path) -> None:
    objects = render_chart(
        *("--set", f"mode={mode}", "--set-json", "configuration.server.drainSeconds=7.5"),
        *("--set", "configuration.server.graceSeconds=90"),
    )
    server = configuration_of(objects, tmp_path).server
    pod = pod_of(objects)
    hook = containers(pod)["extender"].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert pod["spec"]["terminationGracePeriodSeconds"] > hook + server.drain_seconds + server.grace_seconds > 97


@needs("helm")
@pytest.mark.parametrize("mode", ["service", "sidecar"])
def test_policies_and_modules_are_mounted_where_the_service_looks_for_them(mode: str, tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "extraVolumes": [{"name": "policy", "configMap": {"name": "policy"}}],
        "extraVolumeMounts": [{"name": "policy", "mountPath": "/etc/policy", "readOnly": True}],
        "extraEnv": [{"name": "PYTHONPATH", "value": "/etc/rules"}],
        "configuration": {"algorithmSource": {"policyFile": "/etc/policy/policy.json"}},
    }
    objects = render_chart("--set", f"mode={mode}", *_options(values))
    assert configuration_of(objects, tmp_path).algorithm_source.policy_file == "/etc/policy/policy.json"
    pod = pod_of(objects)
    container = containers(pod)["extender"]
    assert values["extraVolumes"][0] in pod["spec"]["volumes"]
    assert values["extraVolumeMounts"][0] in container["volumeMounts"]
    assert container["env"] == values["extraEnv"]
    kubernetes_validate.validate(only(objects, "Deployment"), KUBERNETES, strict=True)


@needs("helm")
def test_images_are_pinned_by_digest_and_pods_kept_where_they_are_wanted() -> None:
    digest = f"sha256:{64 * 'a'}"
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["system"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    values = {
        "image": {"repository": "own", "tag": "2", "digest": digest},
        "scheduler": {"image": {"digest": digest}},
        "serviceAccount": {"annotations": {"role": "a"}},
        "affinity": affinity,
    }
    objects = render_chart("--set", "mode=sidecar", *_options(values))
    pod = pod_of(objects)
    assert {name: item["image"] for name, item in containers(pod).items()} == {
        "extender": f"own@{digest}",
        "kube-scheduler": f"kube-scheduler@{digest}",
    }
    assert pod["spec"]["affinity"] == affinity
    assert only(objects, "ServiceAccount")["metadata"]["annotations"] == {"role": "a"}


@needs("helm")
def test_a_quota_speaks_of_priorities_of_the_system_and_of_no_others() -> None:
    (expression,) = only(render_chart(), "ResourceQuota")["spec"]["scopeSelector"]["matchExpressions"]
    assert expression["values"] == [pod_of(render_chart())["spec"]["priorityClassName"]]
    assert of_kind(render_chart("--set", "priorityClassName=own"), "ResourceQuota") == []
    # There it would count the pods of the system.
    inside = helm("template", NAME, str(CHART), "--namespace", "kube-system")
    assert of_kind(documents(inside.stdout), "ResourceQuota") == []


def _options(values: dict[str, Any]) -> list[str]:
    return [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]


@needs("helm")
@pytest.mark.parametrize("mode", ["service", "sidecar", "ha"])
def test_prometheus_is_told_of_pods_and_with_tokens_of_the_service(mode: str) -> None:
    objects = render_chart("--set", f"mode={mode}", "--set", "monitoring.monitor=true")
    (endpoint,) = only(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {port["name"] for port in containers(pod_of(objects))["extender"]["ports"]}
    assert of_kind(objects, "ServiceMonitor") == []


@needs("helm")
@needs("kubectl")
def test_monitoring_of_the_chart_is_that_of_the_manifests() -> None:
    ours = render_chart("--values", str(chosen("kubeadm")))
    theirs = render(MANIFESTS / "overlays" / "kubeadm" / "monitoring")
    for kind in ("PrometheusRule", "ServiceMonitor"):
        assert plain(only(ours, kind)["spec"]) == plain(only(theirs, kind)["spec"])
    assert of_kind(ours, "PodMonitor") == of_kind(theirs, "PodMonitor") == []
    (dashboard,) = (item for item in of_kind(ours, "ConfigMap") if item["metadata"]["name"].endswith("-dashboard"))
    assert json.loads(dashboard["data"]["dashboard.json"]) == json.loads(
        only(theirs, "ConfigMap")["data"]["dashboard.json"]
    )
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"


@needs("helm")
def test_values_that_cannot_work_are_refused_by_helm_too() -> None:
    done = helm("template", NAME, str(CHART), "--set", "mode=service", "--set", "replicas=2")
    assert done.returncode != 0
    assert "replicas" in done.stderr


@needs("helm")
@every_mode
def test_the_notes_say_what_is_next(mode: str) -> None:
    done = helm(
        *("install", NAME, str(CHART), "--dry-run=client", "--namespace", NAME, "--values", str(chosen(mode))),
        *("--kubeconfig", "/dev/null"),
    )
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    if mode == "sidecar":
        assert "schedulerName: extended-scheduler" in notes
        return
    (command,) = re.findall(r"scheduler-extender register --url (\S+)", notes)
    assert command == f"{'https' if mode == 'kubeadm' else 'http'}://HOST:8888/scheduler"
    assert ("--server-name kube-scheduler-extender.kube-scheduler-extender.svc" in notes) == (mode == "kubeadm")
    assert ("do not end" in notes) == (mode in ("ha", "kubeadm"))


@needs("helm")
def test_the_command_of_the_readme_works() -> None:
    text = (ROOT / "README.md").read_text().replace("\\\n", " ")
    (command,) = re.findall(r"^helm install (.*)$", text, re.MULTILINE)
    release, chart, *options = shlex.split(command)
    options.remove("--create-namespace")
    objects = documents(helm("template", release, str(ROOT / chart), *options).stdout)
    pod = pod_of(objects)
    version = PROJECT["version"]
    assert containers(pod)["extender"]["image"] == f"IMAGE:{version}"
    assert containers(pod)["kube-scheduler"]["image"].startswith("KUBE_SCHEDULER:v")
