"""Every way in: what it deploys is valid, confined, of one piece, and has the rights that the code uses."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml

from extender.app import create_management_app
from extender.cluster.connection import from_url
from extender.config import ExtenderConfiguration
from extender.framework.loader import default_set
from extender.framework.mirror import Mirror
from extender.framework.profile import watched_kinds
from extender.framework.registry import Registry
from extender.registration.decoding import decode
from extender.registration.document import registration
from extender.registration.entry import SchedulerConfiguration, TlsSettings
from extender.registration.finding import Severity
from extender.registration.kubeadm import PATCH_FILE, patch
from extender.registration.request import Request
from extender.registration.rule import judge
from extender.runtime import Runtime
from extender.source import bind_profiles
from tests.extender.deployed import (
    KUBERNETES,
    NAME,
    WAYS,
    Object,
    configuration_of,
    containers,
    documents,
    files_of,
    granted,
    needs,
    of_kind,
    only,
    pod_of,
    render,
)

pytestmark = needs("kubectl")

KUBEADM = WAYS["kubeadm"]
REPLICATED = [way for way in WAYS if way != "base"]
SERVED = [way for way in WAYS if way != "second-scheduler"]
SCHEDULER = "kube-scheduler"
LABELS = {"app.kubernetes.io/name": NAME}

every_way = pytest.mark.parametrize("way", WAYS)
ways_of_several_replicas = pytest.mark.parametrize("way", REPLICATED)
ways_with_a_service = pytest.mark.parametrize("way", SERVED)


def objects_of(way: str) -> list[Object]:
    return render(WAYS[way])


# --- every way -------------------------------------------------------------------------------------------------------


@every_way
def test_every_object_is_one_that_kubernetes_knows_to_its_last_key(way: str) -> None:
    for item in objects_of(way):
        kubernetes_validate.validate(item, KUBERNETES, strict=True)


def test_an_unknown_key_would_be_noticed() -> None:
    wrong = {**only(objects_of("base"), "Deployment"), "specs": {}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, KUBERNETES, strict=True)


@every_way
def test_objects_bear_the_name_the_label_and_the_namespace_of_the_project(way: str) -> None:
    for item in objects_of(way):
        assert item["metadata"]["name"].startswith(NAME)
        if item["kind"] != "ConfigMap":
            assert item["metadata"]["labels"].items() >= LABELS.items()
        if not item["kind"].startswith(("Cluster", "Namespace")):
            assert item["metadata"]["namespace"] == NAME
    assert len({(item["kind"], item["metadata"]["name"]) for item in objects_of(way)}) == len(objects_of(way))


@every_way
def test_whatever_selects_pods_selects_those_of_the_deployment(way: str) -> None:
    assert pod_of(objects_of(way))["metadata"]["labels"] == LABELS
    for item in objects_of(way):
        spec = item.get("spec") or {}
        selector = spec.get("selector") or spec.get("podSelector")
        if selector:
            assert selector in (LABELS, {"matchLabels": LABELS})
    spec = pod_of(objects_of(way))["spec"]
    terms = [
        *spec.get("topologySpreadConstraints", ()),
        *(
            preference["podAffinityTerm"]
            for preference in spec.get("affinity", {})
            .get("podAntiAffinity", {})
            .get("preferredDuringSchedulingIgnoredDuringExecution", ())
        ),
    ]
    assert [term["labelSelector"] for term in terms] == [{"matchLabels": LABELS}] * len(terms)


@every_way
def test_the_pod_is_confined(way: str) -> None:
    assert (
        only(objects_of(way), "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    )
    pod = pod_of(objects_of(way))
    assert pod["spec"]["securityContext"].items() >= {
        ("runAsNonRoot", True),
        ("runAsUser", 65532),
        ("runAsGroup", 65532),
    }
    assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod["spec"])
    for container in containers(pod).values():
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        writable = [mount["mountPath"] for mount in container.get("volumeMounts", ()) if not mount.get("readOnly")]
        assert writable in ([], ["/tmp"])
        assert set(container["resources"]) == {"requests"}
        assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert pod["spec"]["priorityClassName"] == "system-cluster-critical"


@every_way
def test_whatever_is_mounted_is_a_volume_and_each_volume_is_mounted(way: str) -> None:
    pod = pod_of(objects_of(way))
    mounted = {mount["name"] for container in containers(pod).values() for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["spec"]["volumes"]}


@every_way
def test_ports_are_those_of_the_configuration_in_every_place(way: str, tmp_path: Path) -> None:
    configuration = configuration_of(objects_of(way), tmp_path)
    container = containers(pod_of(objects_of(way)))["extender"]
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert named["management"] == configuration.management.port
    (policy,) = of_kind(objects_of(way), "NetworkPolicy")
    let_through = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    if way == "second-scheduler":
        scheduler = containers(pod_of(objects_of(way)))[SCHEDULER]
        assert let_through == [configuration.management.port, scheduler["ports"][0]["containerPort"]]
        assert configuration.server.host == "127.0.0.1"
        return
    assert named["verbs"] == configuration.server.port
    assert let_through == list(named.values())
    assert configuration.server.host == "0.0.0.0"


@every_way
def test_the_pods_of_the_service_and_those_the_cluster_cannot_do_without_pass_through(way: str, tmp_path: Path) -> None:
    exempt = configuration_of(objects_of(way), tmp_path).exempt
    assert exempt.namespaces == [only(objects_of(way), "Deployment")["metadata"]["namespace"]]
    assert exempt.priority_class_names == ["system-node-critical", "system-cluster-critical"]


@every_way
async def test_probes_are_answered_without_a_token_and_say_alive_but_not_ready(way: str, tmp_path: Path) -> None:
    configuration = configuration_of(objects_of(way), tmp_path)
    container = containers(pod_of(objects_of(way)))["extender"]
    runtime = Runtime(configuration, from_url("http://127.0.0.1:1"))
    transport = httpx.ASGITransport(create_management_app(runtime))
    async with httpx.AsyncClient(transport=transport, base_url="http://management") as client:
        for kind in ("startup", "liveness", "readiness"):
            probe = container[f"{kind}Probe"]["httpGet"]
            assert probe["port"] == "management"
            assert probe.get("scheme", "HTTP") == ("HTTPS" if configuration.management.tls.cert_file else "HTTP")
            answer = await client.get(probe["path"])
            assert answer.status_code == (503 if probe["path"] == "/readyz" else 200)
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert container["livenessProbe"]["httpGet"]["path"] == "/livez"


@every_way
def test_the_pod_may_take_longer_to_end_than_ending_takes(way: str, tmp_path: Path) -> None:
    server = configuration_of(objects_of(way), tmp_path).server
    pod = pod_of(objects_of(way))
    hook = containers(pod)["extender"].get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
    assert pod["spec"]["terminationGracePeriodSeconds"] > hook + server.drain_seconds + server.grace_seconds


# --- rights ----------------------------------------------------------------------------------------------------------

BINDING = {("", "pods", "get"), ("", "pods/binding", "create")}
EVENTS = {("events.k8s.io", "events", verb) for verb in ("create", "patch")}
LEASE = {("coordination.k8s.io", "leases", verb) for verb in ("create", "get", "update")}
REVIEWS = {
    ("authentication.k8s.io", "tokenreviews", "create"),
    ("authorization.k8s.io", "subjectaccessreviews", "create"),
}


def watching(configuration: ExtenderConfiguration) -> set[tuple[str, str, str]]:
    kinds = watched_kinds(*bind_profiles(Registry(), Mirror(), configuration).values())
    return {(kind.group, kind.plural, verb) for kind in kinds for verb in ("list", "watch")}


@every_way
def test_the_profile_leaves_to_kube_scheduler_what_it_does_itself(way: str, tmp_path: Path) -> None:
    (profile,) = bind_profiles(Registry(), Mirror(), configuration_of(objects_of(way), tmp_path)).values()
    assert {predicate.name for predicate in profile.predicates} == set(default_set().mandatory)
    assert not profile.priorities


@every_way
def test_rights_are_exactly_those_of_the_default_algorithms(way: str, tmp_path: Path) -> None:
    configuration = configuration_of(objects_of(way), tmp_path)
    assert configuration.events.enabled
    authenticates = configuration.management.authentication.enabled
    assert watching(configuration) < watching(ExtenderConfiguration())
    needed = watching(ExtenderConfiguration()) | BINDING | EVENTS | (REVIEWS if authenticates else set())
    assert granted(objects_of(way), "ClusterRole") == needed
    assert authenticates == (way == "kubeadm")


@every_way
def test_roles_are_bound_to_the_account_of_the_pod_and_to_nobody_else(way: str) -> None:
    account = pod_of(objects_of(way))["spec"]["serviceAccountName"]
    assert account == only(objects_of(way), "ServiceAccount")["metadata"]["name"]
    bindings = [item for item in objects_of(way) if item["kind"].endswith("Binding")]
    bound = {(item["roleRef"]["kind"], item["roleRef"]["name"]) for item in bindings}
    made = {
        (kind, role["metadata"]["name"]) for kind in ("Role", "ClusterRole") for role in of_kind(objects_of(way), kind)
    }
    own = {("ClusterRole", f"system:{role}") for role in (SCHEDULER, "volume-scheduler")}
    assert bound == made | (own if way == "second-scheduler" else set())
    for item in bindings:
        assert item["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAME}]


@ways_of_several_replicas
def test_the_lease_may_be_held_by_the_name_that_it_is_given(way: str, tmp_path: Path) -> None:
    election = configuration_of(objects_of(way), tmp_path).leader_election
    names = [name for rule in only(objects_of(way), "Role")["rules"] for name in rule.get("resourceNames", ())]
    if way == "second-scheduler":
        document = scheduler_document(way)
        assert not election.enabled
        assert names == [document["leaderElection"]["resourceName"]] != [SCHEDULER]
        # system:kube-scheduler grants create.
        assert granted(objects_of(way), "Role") == LEASE - {("coordination.k8s.io", "leases", "create")}
        return
    assert election.enabled
    assert election.lease_namespace == ""
    assert names == [election.lease_name]
    assert granted(objects_of(way), "Role") == LEASE


def test_one_replica_neither_elects_nor_may() -> None:
    assert of_kind(objects_of("base"), "Role") == []


# --- several replicas ------------------------------------------------------------------------------------------------


@ways_of_several_replicas
def test_replicas_keep_apart(way: str) -> None:
    spec = only(objects_of(way), "Deployment")["spec"]
    assert spec["replicas"] > 1
    by_key = {item["topologyKey"]: item for item in spec["template"]["spec"]["topologySpreadConstraints"]}
    assert by_key["kubernetes.io/hostname"]["whenUnsatisfiable"] == "DoNotSchedule"
    assert by_key["topology.kubernetes.io/zone"]["whenUnsatisfiable"] == "ScheduleAnyway"
    assert all(item["matchLabelKeys"] == ["pod-template-hash"] for item in by_key.values())
    assert only(objects_of(way), "PodDisruptionBudget")


@pytest.mark.parametrize("way", ["ha", "kubeadm"])
def test_followers_that_are_never_ready_hold_up_neither_rollouts_nor_drains(way: str) -> None:
    spec = only(objects_of(way), "Deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": "100%", "maxUnavailable": "100%"}
    assert spec["progressDeadlineSeconds"] == 2**31 - 1
    budget = only(objects_of(way), "PodDisruptionBudget")["spec"]
    assert (budget["minAvailable"], budget["unhealthyPodEvictionPolicy"]) == (0, "IfHealthyBudget")


def test_two_kube_schedulers_are_both_ready_and_one_of_them_stays() -> None:
    spec = only(objects_of("second-scheduler"), "Deployment")["spec"]
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    budget = only(objects_of("second-scheduler"), "PodDisruptionBudget")["spec"]
    assert (budget["minAvailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")


# --- where kube-scheduler meets the service --------------------------------------------------------------------------


def scheduler_document(way: str) -> dict[str, Any]:
    if way == "second-scheduler":
        return documents(files_of(objects_of(way))["scheduler-configuration.yaml"])[0]
    return documents((KUBEADM / "control-plane" / "scheduler-extender.yaml").read_text())[0]


def decoded(way: str) -> SchedulerConfiguration:
    configuration, findings = decode(scheduler_document(way))
    assert configuration is not None
    findings += judge(configuration)
    assert [finding for finding in findings if finding.severity is Severity.ERROR] == []
    return configuration


def test_the_second_scheduler_calls_the_service_in_its_own_pod(tmp_path: Path) -> None:
    (entry,) = decoded("second-scheduler").entries
    server = configuration_of(objects_of("second-scheduler"), tmp_path).server
    assert entry.address is not None
    assert (entry.address.hostname, entry.address.port) == (server.host, server.port)
    assert entry.address.path in server.path_prefixes
    assert of_kind(objects_of("second-scheduler"), "Service") == []
    assert not entry.ignorable
    assert (entry.timeout_seconds or 0) > server.deadline_seconds


def test_the_second_scheduler_has_a_name_a_lease_and_an_image_of_its_own() -> None:
    pod = pod_of(objects_of("second-scheduler"))
    container = containers(pod)[SCHEDULER]
    configuration = decoded("second-scheduler")
    assert configuration.scheduler_names == ("extended-scheduler",)
    assert pod["spec"]["schedulerName"] == "default-scheduler"
    flags = dict(item.removeprefix("--").split("=") for item in container["command"][1:])
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "configuration")
    assert flags["config"] == f"{mount['mountPath']}/scheduler-configuration.yaml"
    assert flags["leader-elect-resource-namespace"] == "$(NAMESPACE)"
    assert container["env"] == [{"name": "NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}]
    assert re.fullmatch(rf"kube-scheduler:v{re.escape(KUBERNETES)}\.\d+", container["image"])
    assert "clientConnection" not in configuration.tree


def test_the_second_scheduler_starts_once_the_service_is_ready_and_ends_before_it() -> None:
    spec = pod_of(objects_of("second-scheduler"))["spec"]
    (sidecar,), (scheduler,) = spec["initContainers"], spec["containers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("extender", "Always")
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/readyz"
    assert scheduler["name"] == SCHEDULER
    assert all(scheduler[f"{kind}Probe"]["httpGet"]["port"] == "scheduler" for kind in ("startup", "liveness"))


@ways_with_a_service
def test_the_service_leads_to_named_ports_by_the_protocol_they_speak(way: str, tmp_path: Path) -> None:
    configuration = configuration_of(objects_of(way), tmp_path)
    speaks = {
        "verbs": "https" if configuration.server.tls.cert_file else "http",
        "management": "https" if configuration.management.tls.cert_file else "http",
    }
    ports = only(objects_of(way), "Service")["spec"]["ports"]
    assert {port["targetPort"]: port["appProtocol"] for port in ports} == speaks
    assert all(port["name"] == port["targetPort"] for port in ports)
    assert {port["name"]: port["port"] for port in ports} == {
        "verbs": configuration.server.port,
        "management": configuration.management.port,
    }


@ways_with_a_service
def test_in_plain_http_only_kube_scheduler_gets_through(way: str, tmp_path: Path) -> None:
    verbs, management = only(objects_of(way), "NetworkPolicy")["spec"]["ingress"]
    if configuration_of(objects_of(way), tmp_path).server.tls.client_ca_file:
        assert "from" not in verbs
    else:
        pods, machines = verbs["from"]
        assert pods["podSelector"] == {"matchLabels": {"component": SCHEDULER}}
        assert list(machines) == ["ipBlock"]
    assert len(management["from"]) == 1


def test_the_static_kube_scheduler_calls_the_address_of_the_service(tmp_path: Path) -> None:
    (entry,) = decoded("kubeadm").entries
    service = only(objects_of("kubeadm"), "Service")
    assert entry.address is not None
    assert (entry.address.scheme, entry.address.hostname) == ("https", service["spec"]["clusterIP"])
    assert entry.address.port == configuration_of(objects_of("kubeadm"), tmp_path).server.port
    assert entry.tls.server_name == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert entry.verifies


def test_documents_for_the_control_plane_are_those_that_register_prints() -> None:
    (entry,) = decoded("kubeadm").entries
    tls = TlsSettings(
        server_name=entry.tls.server_name,
        ca_file=entry.tls.ca_file,
        cert_file=entry.tls.cert_file,
        key_file=entry.tls.key_file,
    )
    request = Request(url=entry.url_prefix, kubernetes=KUBERNETES, tls=tls).checked()
    directory = KUBEADM / "control-plane"
    assert (directory / "scheduler-extender.yaml").read_text() == registration(request)
    assert (directory / "patches" / PATCH_FILE).read_text() == patch(request)
    assert {path.name for path in directory.rglob("*.yaml")} == {"scheduler-extender.yaml", PATCH_FILE}


def test_the_static_kube_scheduler_sees_the_files_that_it_is_told_of() -> None:
    (entry,) = decoded("kubeadm").entries
    spec = yaml.safe_load((KUBEADM / "control-plane" / "patches" / PATCH_FILE).read_text())["spec"]
    (container,) = spec["containers"]
    seen = [mount["mountPath"] for mount in container["volumeMounts"]]
    for file in (entry.tls.ca_file, entry.tls.cert_file, entry.tls.key_file):
        assert str(Path(file).parent) in seen
    assert "--config=/etc/kubernetes/scheduler-extender.yaml" in container["command"]
    assert "/etc/kubernetes/scheduler-extender.yaml" in seen


def test_certificates_are_mounted_where_the_configuration_looks_for_them(tmp_path: Path) -> None:
    configuration = configuration_of(objects_of("kubeadm"), tmp_path)
    container = containers(pod_of(objects_of("kubeadm")))["extender"]
    (mount,) = (mount for mount in container["volumeMounts"] if mount["name"] == "tls")
    server, management = configuration.server.tls, configuration.management.tls
    files = (server.cert_file, server.key_file, server.client_ca_file, management.cert_file, management.key_file)
    assert {str(Path(file).parent) for file in files} == {mount["mountPath"]}
    assert {Path(file).name for file in files} == {"ca.crt", "tls.crt", "tls.key"}
