"""What is deployed fits together: manifests, image, registration with kube-scheduler, and the code."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import typer
import yaml

from extender.__main__ import app
from extender.app import VERBS, create_app, create_management_app
from extender.cluster.connection import from_url
from extender.config import ENVIRONMENT_PREFIX, ExtenderConfiguration, load_configuration
from extender.framework.mirror import Mirror
from extender.framework.profile import ProfileBinder, watched_kinds
from extender.framework.registry import Registry
from extender.runtime import Runtime

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = PROJECT["name"]
DEFAULTS = ExtenderConfiguration()

needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl, which renders, is not installed")


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


KUSTOMIZATION = documents(MANIFESTS / "kustomization.yaml")[0]
OBJECTS = {item["kind"]: item for file in KUSTOMIZATION["resources"] for item in documents(MANIFESTS / file)}
DEPLOYMENT, SERVICE = OBJECTS["Deployment"], OBJECTS["Service"]
POD = DEPLOYMENT["spec"]["template"]
CONTAINER = POD["spec"]["containers"][0]


def default_runtime() -> Runtime:
    return Runtime(DEFAULTS, from_url("http://127.0.0.1:1"))


# --- manifests -------------------------------------------------------------------------------------------------------


def test_the_manifests_are_these_objects_and_no_file_is_left_out() -> None:
    assert {kind: item["apiVersion"] for kind, item in OBJECTS.items()} == {
        "Namespace": "v1",
        "ServiceAccount": "v1",
        "ClusterRole": "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding": "rbac.authorization.k8s.io/v1",
        "Role": "rbac.authorization.k8s.io/v1",
        "RoleBinding": "rbac.authorization.k8s.io/v1",
        "Deployment": "apps/v1",
        "Service": "v1",
    }
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    named = {"kustomization.yaml", *KUSTOMIZATION["resources"], *generated["files"]}
    assert named == {path.name for path in MANIFESTS.iterdir()}


def test_everything_bears_the_name_of_the_project() -> None:
    assert {item["metadata"]["name"] for item in OBJECTS.values()} == {NAME}
    assert KUSTOMIZATION["namespace"] == NAME
    assert KUSTOMIZATION["configMapGenerator"][0]["name"] == NAME
    assert POD["spec"]["serviceAccountName"] == NAME
    for role in ("ClusterRole", "Role"):
        binding = OBJECTS[f"{role}Binding"]
        assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": NAME}
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": NAME, "namespace": NAME}]


def test_selectors_match_the_labels_of_the_pod() -> None:
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == POD["metadata"]["labels"]
    assert SERVICE["spec"]["selector"] == POD["metadata"]["labels"]


def test_the_image_is_that_of_the_project_s_version() -> None:
    assert CONTAINER["image"] == NAME
    assert KUSTOMIZATION["images"] == [{"name": NAME, "newName": NAME, "newTag": PROJECT["version"]}]


def test_ports_are_those_of_the_configuration_in_every_place() -> None:
    expected = {"verbs": DEFAULTS.server.port, "management": DEFAULTS.management.port}
    assert {port["name"]: port["containerPort"] for port in CONTAINER["ports"]} == expected
    assert {port["name"]: port["port"] for port in SERVICE["spec"]["ports"]} == expected
    assert all(port["targetPort"] == port["name"] for port in SERVICE["spec"]["ports"])
    deployed = load_configuration(MANIFESTS / "extender-configuration.yaml", environment={})
    assert {"verbs": deployed.server.port, "management": deployed.management.port} == expected
    assert urlsplit(EXTENDER["urlPrefix"]).port == expected["verbs"]
    assert last("EXPOSE").split() == [str(port) for port in expected.values()]


async def test_probes_of_a_service_without_an_api_server_say_alive_but_not_ready() -> None:
    transport = httpx.ASGITransport(create_management_app(default_runtime()))
    async with httpx.AsyncClient(transport=transport, base_url="http://management") as client:
        for kind, status in (("startup", 200), ("liveness", 200), ("readiness", 503)):
            probe = CONTAINER[f"{kind}Probe"]["httpGet"]
            assert probe["port"] == "management"
            assert (await client.get(probe["path"])).status_code == status


def test_the_pod_may_take_longer_to_end_than_draining_takes() -> None:
    longest = DEFAULTS.server.drain_seconds + DEFAULTS.server.grace_seconds
    assert POD["spec"]["terminationGracePeriodSeconds"] > longest


def test_the_configuration_is_mounted_where_the_command_reads_it() -> None:
    command, *arguments = CONTAINER["args"]
    serve = typer.main.get_group(app).commands[command]
    path = str(serve.make_context(command, arguments).params["config"])
    (mount,) = (mount for mount in CONTAINER["volumeMounts"] if mount["name"] == "configuration")
    (volume,) = (volume for volume in POD["spec"]["volumes"] if volume["name"] == "configuration")
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    assert volume["configMap"]["name"] == generated["name"]
    assert path in {f"{mount['mountPath']}/{file}" for file in generated["files"]}


def test_no_variable_of_a_service_is_taken_for_a_setting() -> None:
    assert POD["spec"]["enableServiceLinks"] is False
    assert not f"{NAME}_SERVICE_HOST".replace("-", "_").upper().startswith(ENVIRONMENT_PREFIX)


def test_the_pod_is_confined() -> None:
    number = int(last("USER").partition(":")[0])
    assert number > 0
    assert last("USER") == f"{number}:{number}"
    assert POD["spec"]["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": number,
        "runAsGroup": number,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert OBJECTS["Namespace"]["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    writable = [mount["mountPath"] for mount in CONTAINER["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["/tmp"]


def test_one_pod_with_requests_is_replaced_only_once_the_next_is_ready() -> None:
    assert DEPLOYMENT["spec"]["replicas"] == 1
    assert DEPLOYMENT["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert set(CONTAINER["resources"]["requests"]) == {"cpu", "memory"}
    assert POD["spec"]["priorityClassName"] == "system-cluster-critical"


def test_rights_are_exactly_those_the_code_needs() -> None:
    profile = ProfileBinder(Registry(), Mirror(), "profiles[0]").bind(DEFAULTS.profiles[0])
    watched = {(kind.group, kind.plural, verb) for kind in watched_kinds(profile) for verb in ("list", "watch")}
    events = {("events.k8s.io", "events", verb) for verb in ("create", "patch")}
    assert granted("ClusterRole") == watched | events | {("", "pods", "get"), ("", "pods/binding", "create")}


def test_rights_to_the_lease_are_those_to_one_in_the_own_namespace() -> None:
    assert granted("Role") == {("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")}
    named = [rule for rule in OBJECTS["Role"]["rules"] if "create" not in rule["verbs"]]
    assert [rule["resourceNames"] for rule in named] == [[DEFAULTS.leader_election.lease_name]]
    assert DEFAULTS.leader_election.lease_namespace == ""


def granted(kind: str) -> set[tuple[str, ...]]:
    rules = OBJECTS[kind]["rules"]
    return {right for rule in rules for right in product(rule["apiGroups"], rule["resources"], rule["verbs"])}


def render(directory: Path) -> list[dict[str, Any]]:
    done = subprocess.run(["kubectl", "kustomize", str(directory)], capture_output=True, check=True, timeout=60)
    return list(yaml.safe_load_all(done.stdout))


@needs_kubectl
def test_rendered_manifests_name_image_configuration_and_namespace() -> None:
    rendered = {item["kind"]: item for item in render(MANIFESTS)}
    assert set(rendered) == {*OBJECTS, "ConfigMap"}
    pod = rendered["Deployment"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == f"{NAME}:{PROJECT['version']}"
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert volumes["configuration"]["configMap"]["name"] == rendered["ConfigMap"]["metadata"]["name"] != NAME
    for kind in ("ServiceAccount", "ConfigMap", "Deployment", "Service"):
        assert rendered[kind]["metadata"]["namespace"] == NAME


@needs_kubectl
def test_the_namespace_is_changed_in_one_place(tmp_path: Path) -> None:
    copied = shutil.copytree(MANIFESTS, tmp_path / "manifests")
    file = copied / "kustomization.yaml"
    file.write_text(file.read_text().replace(f"namespace: {NAME}", "namespace: elsewhere"))
    rendered = {item["kind"]: item for item in render(copied)}
    assert rendered["Namespace"]["metadata"]["name"] == "elsewhere"
    for binding in ("ClusterRoleBinding", "RoleBinding"):
        assert rendered[binding]["subjects"][0]["namespace"] == "elsewhere"
    assert rendered["Role"]["metadata"]["namespace"] == "elsewhere"
    assert rendered["Deployment"]["metadata"]["namespace"] == "elsewhere"


# --- registration with kube-scheduler --------------------------------------------------------------------------------

REGISTRATION = ROOT / "scheduler-extender.yaml"
(EXTENDER,) = documents(REGISTRATION)[0]["extenders"]

SCHEDULER_KEYS = {"apiVersion", "kind", "clientConnection", "percentageOfNodesToScore", "extenders"}
EXTENDER_KEYS = {
    *("urlPrefix", "filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb", "weight", "enableHTTPS", "tlsConfig"),
    *("httpTimeout", "nodeCacheCapable", "managedResources", "ignorable"),
}
"""The keys that kube-scheduler knows, all of them (source: kubescheduler.config.k8s.io/v1 of 1.36)."""

OPTIONAL = r"percentageOfNodesToScore|enableHTTPS|tlsConfig|caFile|managedResources|- name|ignoredByScheduler"


def test_the_registration_is_one_that_kube_scheduler_accepts() -> None:
    (configuration,) = documents(REGISTRATION)
    assert configuration["apiVersion"] == "kubescheduler.config.k8s.io/v1"
    assert configuration["kind"] == "KubeSchedulerConfiguration"
    assert set(configuration) <= SCHEDULER_KEYS
    assert set(EXTENDER) <= EXTENDER_KEYS
    assert configuration["clientConnection"]["kubeconfig"]
    assert EXTENDER["weight"] >= 1
    assert EXTENDER["nodeCacheCapable"] is True
    assert EXTENDER["ignorable"] is False


def test_what_is_commented_out_is_valid_without_the_comment_sign() -> None:
    text = re.sub(rf"^( *)# ( *(?:{OPTIONAL}):(?: |$))", r"\1\2", REGISTRATION.read_text(), flags=re.MULTILINE)
    configuration = yaml.safe_load(text)
    (extender,) = configuration["extenders"]
    assert set(configuration) == SCHEDULER_KEYS
    assert configuration["percentageOfNodesToScore"] == 100
    assert set(extender) == EXTENDER_KEYS
    assert extender["managedResources"] == [{"name": "example.com/gpu", "ignoredByScheduler": False}]
    assert extender["enableHTTPS"] is True
    assert list(extender["tlsConfig"]) == ["caFile"]


def test_every_verb_is_registered_under_its_name() -> None:
    registered = {key.removesuffix("Verb"): verb for key, verb in EXTENDER.items() if key.endswith("Verb")}
    assert registered == {verb: verb for verb in VERBS}
    assert urlsplit(EXTENDER["urlPrefix"]).path in DEFAULTS.server.path_prefixes


async def test_every_registered_address_is_served() -> None:
    transport = httpx.ASGITransport(create_app(default_runtime()))
    async with httpx.AsyncClient(transport=transport) as client:
        for verb in VERBS:
            answer = await client.post(f"{EXTENDER['urlPrefix'].rstrip('/')}/{EXTENDER[f'{verb}Verb']}", content=b"{}")
            assert answer.status_code in (200, 400), answer.text
            assert "is missing" in answer.json()["Error"]
        answer = await client.post(f"{EXTENDER['urlPrefix']}/none", content=b"{}")
        assert answer.status_code == 404


def test_kube_scheduler_waits_longer_than_the_service_works() -> None:
    seconds = re.fullmatch(r"(\d+)s", EXTENDER["httpTimeout"])
    assert seconds is not None
    assert int(seconds[1]) > DEFAULTS.server.deadline_seconds
    assert int(seconds[1]) > DEFAULTS.server.body_timeout_seconds


# --- image -----------------------------------------------------------------------------------------------------------


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions with their arguments, continued lines joined and comments left out."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    parted = (line.partition(" ") for line in joined.splitlines() if line.strip())
    return [(word, rest.strip()) for word, _, rest in parted]


def last(word: str) -> str:
    """Return the arguments of the instruction that counts."""
    return [rest for found, rest in instructions() if found == word][-1]


def settings(word: str) -> dict[str, str]:
    return dict(item.split("=", 1) for item in shlex.split(last(word)))


def test_the_image_is_built_in_two_stages_from_one_python() -> None:
    stages = [rest.split() for word, rest in instructions() if word == "FROM"]
    (first, _, builder), (second, _, runtime) = stages
    assert (builder, runtime) == ("builder", "runtime")
    assert first == second
    version = re.fullmatch(r"python:3\.(\d+)-slim", first)
    assert version is not None
    assert f"Programming Language :: Python :: 3.{version[1]}" in PROJECT["classifiers"]


def test_the_service_is_process_1_of_the_image() -> None:
    (script,) = json.loads(last("ENTRYPOINT"))
    assert script in PROJECT["scripts"]
    assert json.loads(last("CMD")) == ["serve"]
    directory = settings("ENV")["PATH"].partition(":")[0].removesuffix("/bin")
    assert last("COPY") == f"--from=builder {directory} {directory}"


def test_the_image_writes_nothing_outside_tmp() -> None:
    assert settings("ENV")["PYTHONDONTWRITEBYTECODE"] == "1"
    assert settings("ENV")["HOME"] == "/tmp"


def test_the_runtime_stage_runs_and_installs_nothing() -> None:
    start = [word for word, _ in instructions()].index("FROM", 1)
    assert {word for word, _ in instructions()[start:]} == {
        *("FROM", "LABEL", "ENV", "COPY", "USER", "EXPOSE", "ENTRYPOINT", "CMD")
    }


def test_labels_say_what_the_project_says() -> None:
    prefix = "org.opencontainers.image."
    assert settings("LABEL") == {
        f"{prefix}title": NAME,
        f"{prefix}description": PROJECT["description"],
        f"{prefix}version": PROJECT["version"],
        f"{prefix}licenses": PROJECT["license"],
    }


def test_what_the_build_copies_exists_and_is_let_through() -> None:
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and not rest.startswith("--from")
        for source in rest.split()[:-1]
    }
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert copied == {"pyproject.toml", PROJECT["readme"], *wheel["packages"]}
    assert all((ROOT / source).exists() for source in copied)
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_through == copied
