"""A real kube-scheduler with exactly the files that ``register`` prints, and the doctor's opinion of each of them.

The service refuses nodes by their label ``refuse`` and scores them by their label ``score``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from extender.testing import make_pod
from tests.e2e.command import printed, run
from tests.e2e.control_plane import NAME, ControlPlane, control_plane
from tests.e2e.peer import KubeScheduler, Service
from tests.e2e.process import eventually, free_ports
from tests.e2e.workload import PODS, create_node, create_pod, expect_bound, messages, node_of
from tests.extender.authority import Authority
from tests.extender.specimen import profile

pytestmark = pytest.mark.e2e

GPU = "example.com/gpu"
RULES = profile(predicates=["Labelled"], priorities=["Graded"])
BARRED = {"refuse": "no-luck"}


@pytest.fixture(scope="module")
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """Three nodes of which one is refused, and one, the fullest, is scored best."""
    with control_plane(request) as plane:
        create_node(plane, "plain", cpu=16)
        create_node(plane, "barred", cpu=16, labels=BARRED)
        create_node(plane, "best", cpu=16, labels={"score": "10"}, allocatable={GPU: 8})
        create_pod(plane, "ballast", cpu="6", nodeName="best")
        yield plane


@pytest.fixture(scope="module")
def authority(plane: ControlPlane) -> Authority:
    """An authority for both ends of the wire, whose files lie beside those of the control plane."""
    authority = Authority("wire")
    certificates = {"server": authority.issue("extender.example"), "client": authority.issue("kube-scheduler")}
    certificates["stranger"] = Authority("elsewhere").issue("kube-scheduler")
    for name, (certificate, key) in certificates.items():
        plane.write(f"{name}.crt", certificate)
        plane.write(f"{name}.key", key)
    plane.write("wire.crt", authority.pem)
    return authority


@pytest.fixture(scope="module")
def service(plane: ControlPlane) -> Service:
    service = Service(plane)
    service.start(RULES)
    return service


@pytest.fixture(scope="module")
def secured(plane: ControlPlane, authority: Authority) -> Service:
    """The same with certificates on both sides."""
    pair = {"certFile": f"{plane.directory}/server.crt", "keyFile": f"{plane.directory}/server.key"}
    who = {"clientCaFile": f"{plane.directory}/wire.crt", "allowedSubjects": ["kube-scheduler"]}
    service = Service(plane, "secured", scheme="https")
    service.start({**RULES, "server": {"tls": {**pair, **who}}, "management": {"tls": pair}})
    return service


@pytest.fixture
def schedule(plane: ControlPlane) -> Iterator[Callable[..., str]]:
    """Start kube-scheduler with what ``register`` prints for these options, and return the path of that file."""
    scheduler = KubeScheduler(plane)

    def start(*options: str) -> str:
        scheduler.program.kill()
        file = f"--kubeconfig={plane.scheduler_kubeconfig()}"
        scheduler.start_as_written(printed("register", "--kubernetes=1.36", file, *options))
        return str(plane.directory / "kube-scheduler.yaml")

    yield start
    scheduler.program.kill()


def url(service: Service) -> str:
    return f"--url={service.verbs_url}/scheduler"


def doctor(plane: ControlPlane, service: Service, file: str) -> tuple[int, list[dict[str, Any]]]:
    """Return the exit code of the doctor and the findings that are more than notes."""
    options = (f"--kubeconfig={plane.admin_kubeconfig()}", f"--config={service.configuration_file}", "--output=json")
    done = run("doctor", f"--scheduler-config={file}", "--idle-seconds=0", *options)
    assert done.stderr == ""
    return done.returncode, [item for item in json.loads(done.stdout)["findings"] if item["severity"] != "note"]


def expect_rules(plane: ControlPlane, name: str, *, node: str = "plain", **facts: Any) -> None:
    """Have a pod placed that goes to ``node`` by the rules of the service and the weight of its scores."""
    create_pod(plane, name, **facts)
    expect_bound(plane, name, seconds=20)
    assert node_of(plane, name) == node


def test_in_plain_http_pods_are_placed_by_the_rules_and_the_doctor_agrees(
    plane: ControlPlane, service: Service, schedule: Callable[..., str]
) -> None:
    file = schedule(url(service), "--weight=100")
    expect_rules(plane, "weighty", node="best")
    assert doctor(plane, service, file) == (0, [])


def test_of_a_small_weight_the_scores_of_kube_scheduler_count_more(
    plane: ControlPlane, service: Service, schedule: Callable[..., str]
) -> None:
    schedule(url(service), "--verb=filter", "--verb=prioritize", "--weight=1")
    create_pod(plane, "light", nodeSelector={"kubernetes.io/hostname": "plain"})
    expect_bound(plane, "light")
    assert node_of(plane, "light") == "plain"


def test_with_certificates_on_both_sides_pods_are_placed_and_the_doctor_agrees(
    plane: ControlPlane, secured: Service, schedule: Callable[..., str]
) -> None:
    file = schedule(url(secured), "--weight=100", *tls(plane, "client"))
    before = secured.metric("requests_total", verb="bind", result="ok")
    expect_rules(plane, "secured", node="best")
    assert secured.metric("requests_total", verb="bind", result="ok") == before + 1
    assert doctor(plane, secured, file) == (0, [])


def tls(plane: ControlPlane, client: str) -> list[str]:
    files = {"ca-file": "wire.crt", "cert-file": f"{client}.crt", "key-file": f"{client}.key"}
    return [f"--{option}={plane.directory}/{file}" for option, file in files.items()]


def test_a_certificate_of_another_authority_does_not_get_in_and_the_doctor_says_so(
    plane: ControlPlane, secured: Service, schedule: Callable[..., str]
) -> None:
    file = schedule(url(secured), *tls(plane, "stranger"))
    create_pod(plane, "kept-out")
    eventually(lambda: messages(plane, "kept-out", "FailedScheduling"), "the event")
    assert "tls" in messages(plane, "kept-out", "FailedScheduling")[0]
    code, findings = doctor(plane, secured, file)
    assert code == 1
    assert any("certificate" in item["problem"] for item in findings), findings
    schedule(url(secured), *tls(plane, "client"))
    expect_bound(plane, "kept-out")


def test_of_a_managed_resource_only_pods_that_name_it_come_and_the_doctor_agrees(
    plane: ControlPlane, service: Service, schedule: Callable[..., str]
) -> None:
    file = schedule(url(service), f"--managed-resource={GPU}", "--verb=filter", "--verb=prioritize", "--weight=1")
    before = service.metric("requests_total", verb="filter")
    create_pod(plane, "without", nodeSelector={"kubernetes.io/hostname": "plain"})
    expect_bound(plane, "without")
    assert service.metric("requests_total", verb="filter") == before
    pod = make_pod("with", requests={"cpu": "100m", GPU: "1"})
    pod["spec"]["containers"][0]["resources"]["limits"] = {GPU: "1"}
    del pod["metadata"]["uid"], pod["status"]
    plane.create(PODS, pod)
    expect_bound(plane, "with")
    assert service.metric("requests_total", verb="filter") == before + 1
    assert doctor(plane, service, file)[0] == 1  # preempt is served and not asked


def test_pods_of_every_profile_are_placed(plane: ControlPlane, service: Service, schedule: Callable[..., str]) -> None:
    schedule(url(service), "--scheduler-name=one", "--scheduler-name=two", "--weight=100")
    for name in ("one", "two"):
        expect_rules(plane, f"by-{name}", node="best", schedulerName=name)


def test_an_extender_that_may_be_ignored_and_is_away_is_ignored_and_the_doctor_says_so(
    plane: ControlPlane, service: Service, schedule: Callable[..., str]
) -> None:
    (nobody,) = free_ports(1)
    file = schedule(f"--url=http://127.0.0.1:{nobody}/scheduler", "--ignorable")
    create_pod(plane, "alone")
    expect_bound(plane, "alone")
    code, findings = doctor(plane, service, file)
    assert code == 1
    assert any("refused" in item["problem"] for item in findings), findings


# --- what the doctor finds -------------------------------------------------------------------------------------------


def scheduler_file(plane: ControlPlane, *options: str) -> str:
    """Write what ``register`` prints, without starting anything."""
    file = plane.directory / "judged.yaml"
    kubeconfig = f"--kubeconfig={plane.scheduler_kubeconfig()}"
    file.write_text(printed("register", "--kubernetes=1.36", kubeconfig, *options))
    return str(file)


def edited(plane: ControlPlane, before: str, after: str, *options: str) -> str:
    file = plane.directory / "judged.yaml"
    text = printed("register", "--kubernetes=1.36", *options)
    assert before in text
    file.write_text(text.replace(before, after))
    return str(file)


BROKEN: dict[str, tuple[Callable[[ControlPlane, Service, Service], str], str]] = {
    "a wrong path": (lambda plane, plain, _: edited(plane, "/scheduler\n", "/elsewhere\n", url(plain)), "404"),
    "http for https": (
        lambda plane, _, tls_: scheduler_file(plane, f"{url(tls_).replace('https', 'http')}"),
        "if it speaks TLS",
    ),
    "https for http": (
        lambda plane, plain, _: scheduler_file(plane, url(plain).replace("http", "https"), *tls(plane, "client")),
        "TLS",
    ),
    "no certificate of the client": (
        lambda plane, _, tls_: scheduler_file(plane, url(tls_), f"--ca-file={plane.directory}/wire.crt"),
        "certificate",
    ),
    "another authority": (
        lambda plane, _, tls_: edited(plane, "/wire.crt", "/ca.crt", url(tls_), *tls(plane, "client")),
        "certificate",
    ),
    "a name that is in no certificate": (
        lambda plane, _, tls_: scheduler_file(plane, url(tls_), *tls(plane, "client"), "--server-name=other.example"),
        "other.example",
    ),
    "a resource that nobody has": (
        lambda plane, plain, _: scheduler_file(plane, url(plain), "--managed-resource=example.com/none"),
        "no node offers example.com/none",
    ),
    "too little time": (
        lambda plane, plain, _: edited(plane, "httpTimeout: 5s", "httpTimeout: 2s", url(plain)),
        "not above server.deadlineSeconds",
    ),
    "a key that is not there": (
        lambda plane, plain, _: edited(plane, "nodeCacheCapable", "nodeCacheCapabel", url(plain)),
        "nodeCacheCapabel",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_doctor_finds(plane: ControlPlane, service: Service, secured: Service, what: str) -> None:
    make, told = BROKEN[what]
    code, findings = doctor(plane, service, make(plane, service, secured))
    assert code == 1
    assert any(told in json.dumps(item) for item in findings), findings


def test_the_doctor_finds_rights_that_the_account_of_the_pods_lacks_and_no_others(
    plane: ControlPlane, service: Service
) -> None:
    pod = make_pod("extender", namespace=NAME, labels={"app.kubernetes.io/name": NAME}, serviceAccountName=NAME)
    del pod["metadata"]["uid"], pod["status"]
    pod["spec"]["schedulerName"] = "nobody"
    restricted = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True}
    pod["spec"]["containers"][0]["securityContext"] = restricted | {"seccompProfile": {"type": "RuntimeDefault"}}
    plane.create(f"/api/v1/namespaces/{NAME}/pods", pod)
    file = scheduler_file(plane, url(service))
    assert doctor(plane, service, file) == (0, [])
    role = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAME}"
    rules = plane.get(role)["rules"]
    fewer = [rule for rule in rules if "pods/binding" not in rule["resources"]]
    plane.request("PATCH", role, {"rules": fewer}, "application/merge-patch+json")
    try:
        eventually(lambda: doctor(plane, service, file)[0] == 1, "that the role counts")
        (finding,) = doctor(plane, service, file)[1]
        assert f"system:serviceaccount:{NAME}:{NAME} may not create pods/binding" in finding["problem"]
    finally:
        plane.request("PATCH", role, {"rules": rules}, "application/merge-patch+json")
