"""What is deployed fits together: the base, the image, the registration with kube-scheduler, and the code."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import typer

from extender.__main__ import app
from extender.app import VERBS, create_app
from extender.cluster.connection import from_url
from extender.config import ENVIRONMENT_PREFIX, ExtenderConfiguration, load_configuration
from extender.runtime import Runtime
from tests.extender.deployed import MANIFESTS, NAME, PROJECT, ROOT, documents, needs, only, pod_of, render

DEFAULTS = ExtenderConfiguration()
BASE = MANIFESTS / "base"
(KUSTOMIZATION,) = documents((BASE / "kustomization.yaml").read_text())
OBJECTS = [item for file in KUSTOMIZATION["resources"] for item in documents((BASE / file).read_text())]
DEPLOYMENT, SERVICE = only(OBJECTS, "Deployment"), only(OBJECTS, "Service")
POD = pod_of(OBJECTS)
CONTAINER = POD["spec"]["containers"][0]


def default_runtime() -> Runtime:
    return Runtime(DEFAULTS, from_url("http://127.0.0.1:1"))


# --- the base --------------------------------------------------------------------------------------------------------


def test_the_base_is_these_objects_and_no_file_is_left_out() -> None:
    assert [(item["kind"], item["apiVersion"]) for item in OBJECTS] == [
        ("Namespace", "v1"),
        ("ResourceQuota", "v1"),
        ("ServiceAccount", "v1"),
        ("ClusterRole", "rbac.authorization.k8s.io/v1"),
        ("ClusterRoleBinding", "rbac.authorization.k8s.io/v1"),
        ("Deployment", "apps/v1"),
        ("Service", "v1"),
        ("NetworkPolicy", "networking.k8s.io/v1"),
    ]
    (generated,) = KUSTOMIZATION["configMapGenerator"]
    named = {"kustomization.yaml", *KUSTOMIZATION["resources"], *generated["files"]}
    assert named == {path.name for path in BASE.iterdir()}


def test_the_image_is_that_of_the_project_s_version() -> None:
    assert CONTAINER["image"] == NAME
    assert KUSTOMIZATION["images"] == [{"name": NAME, "newTag": PROJECT["version"]}]


def test_ports_are_those_of_the_defaults_in_every_place() -> None:
    expected = {"verbs": DEFAULTS.server.port, "management": DEFAULTS.management.port}
    assert {port["name"]: port["containerPort"] for port in CONTAINER["ports"]} == expected
    assert {port["name"]: port["port"] for port in SERVICE["spec"]["ports"]} == expected
    deployed = load_configuration(BASE / "extender-configuration.yaml", environment={})
    assert {"verbs": deployed.server.port, "management": deployed.management.port} == expected
    assert urlsplit(EXTENDER["urlPrefix"]).port == expected["verbs"]
    assert last("EXPOSE").split() == [str(port) for port in expected.values()]


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


def test_the_pod_runs_as_the_user_of_the_image() -> None:
    number = int(last("USER").partition(":")[0])
    assert number > 0
    assert last("USER") == f"{number}:{number}"
    assert POD["spec"]["securityContext"]["runAsUser"] == number
    assert POD["spec"]["securityContext"]["runAsGroup"] == number


def test_one_pod_is_replaced_only_once_the_next_is_ready() -> None:
    assert DEPLOYMENT["spec"]["replicas"] == 1
    assert DEPLOYMENT["spec"]["strategy"] == {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


@needs("kubectl")
def test_the_simplest_way_is_the_base() -> None:
    assert render(MANIFESTS) == render(BASE)
    configured = only(render(MANIFESTS), "ConfigMap")["metadata"]["name"]
    assert configured.startswith(f"{NAME}-")
    (volume,) = (item for item in pod_of(render(MANIFESTS))["spec"]["volumes"] if item["name"] == "configuration")
    assert volume["configMap"]["name"] == configured


@needs("kubectl")
def test_the_namespace_is_changed_in_one_place(tmp_path: Path) -> None:
    copied = shutil.copytree(MANIFESTS, tmp_path / "manifests")
    file = copied / "overlays" / "second-scheduler" / "kustomization.yaml"
    file.write_text(file.read_text().replace(f"namespace: {NAME}", "namespace: elsewhere"))
    rendered = render(file.parent)
    assert only(rendered, "Namespace")["metadata"]["name"] == "elsewhere"
    bindings = [item for item in rendered if item["kind"].endswith("Binding")]
    assert [item["kind"] for item in bindings] == ["RoleBinding", *["ClusterRoleBinding"] * 3]
    assert {subject["namespace"] for item in bindings for subject in item["subjects"]} == {"elsewhere"}
    assert NAME not in {item["metadata"].get("namespace") for item in rendered}


# --- registration with kube-scheduler --------------------------------------------------------------------------------

REGISTRATION = ROOT / "scheduler-extender.yaml"
(EXTENDER,) = documents(REGISTRATION.read_text())[0]["extenders"]

SCHEDULER_KEYS = {"apiVersion", "kind", "clientConnection", "percentageOfNodesToScore", "extenders"}
EXTENDER_KEYS = {
    *("urlPrefix", "filterVerb", "prioritizeVerb", "preemptVerb", "bindVerb", "weight", "enableHTTPS", "tlsConfig"),
    *("httpTimeout", "nodeCacheCapable", "managedResources", "ignorable"),
}
"""The keys that kube-scheduler knows, all of them (source: kubescheduler.config.k8s.io/v1 of 1.36)."""

OPTIONAL = (
    r"percentageOfNodesToScore|enableHTTPS|tlsConfig|caFile|serverName|certFile|keyFile|managedResources|- name"
    r"|ignoredByScheduler"
)


def test_the_registration_is_one_that_kube_scheduler_accepts() -> None:
    (configuration,) = documents(REGISTRATION.read_text())
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
    configuration = documents(text)[0]
    (extender,) = configuration["extenders"]
    assert set(configuration) == SCHEDULER_KEYS
    assert configuration["percentageOfNodesToScore"] == 100
    assert set(extender) == EXTENDER_KEYS
    assert extender["managedResources"] == [{"name": "example.com/gpu", "ignoredByScheduler": False}]
    assert extender["enableHTTPS"] is True
    assert list(extender["tlsConfig"]) == ["caFile", "serverName", "certFile", "keyFile"]


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


STAGES = ("builder", "runtime")


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
    assert [rest for word, rest in instructions() if word == "FROM"] == [f"${{PYTHON}} AS {name}" for name in STAGES]
    version = re.fullmatch(r"PYTHON=python:3\.(\d+)-slim", last("ARG"))
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
    start = instructions().index(("FROM", "${PYTHON} AS runtime"))
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
    locks = {"requirements.lock", "requirements-build.lock"}
    assert copied == {*locks, "pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], *wheel["packages"]}
    assert all((ROOT / source).exists() for source in copied)
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert let_through == copied
