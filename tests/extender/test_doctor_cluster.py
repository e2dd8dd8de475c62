"""What the doctor asks the API server, and what it concludes; and what it knows of Go and of kube-scheduler."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from extender.cluster.apiserver import ApiServer, Fault, ServerOptions
from extender.cluster.connection import from_url
from extender.config import ExtenderConfiguration
from extender.doctor.api import Greeting
from extender.doctor.greeting import check_greeting
from extender.doctor.managed_resource import Census, Usage, check_census
from extender.doctor.own_pod import SERVICE_LABEL
from extender.doctor.proxy import proxy_for
from extender.doctor.report import Report
from extender.doctor.right import Right, needed_rights
from extender.doctor.sampling import check_sampling, sample_size
from extender.registration.decoding import decode
from extender.registration.dialect import BY_NAME
from extender.registration.finding import Severity
from extender.testing import CannedServer, Reply, make_node, make_pod
from tests.extender.examined import GOOD, configuration, examination, found, wrong

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "data" / "cases"
MANIFESTS = ROOT / "manifests"
ONLY_FILTER = {**GOOD, "prioritizeVerb": "", "preemptVerb": "preempt"}
GPU = "example.com/gpu"
LABELS = dict([SERVICE_LABEL.split("=")])
ALL = "percentageOfNodesToScore"


async def look(
    directory: Path,
    objects: list[dict[str, Any]],
    *faults: Fault,
    options: ServerOptions | None = None,
    server: str = "",
    keys: dict[str, Any] | None = None,
    service: ExtenderConfiguration | None = None,
    environment: dict[str, str] | None = None,
    reply: Reply | None = None,
    **fields: Any,
) -> Report:
    """Examine one extender that keeps both nodes, beside an API server with ``objects`` and two nodes."""
    nodes = [make_node(name, allocatable={GPU: 1} if name == "a" else {}) for name in ("a", "b")]
    async with ApiServer([*nodes, *objects], options) as api:
        for fault in faults:
            api.faults.add(fault)
        replies = [reply] if reply else [Reply(b'{"NodeNames":["a","b"]}'), Reply(b'{"NodeNameToMetaVictims":{}}')]
        with CannedServer(*replies) as canned:
            entry = {**ONLY_FILTER, "urlPrefix": server or canned.url, **fields}
            case = examination(
                directory,
                configuration(entry, **(keys or {})),
                connection=from_url(api.url),
                extender_urls=[canned.url],
                configuration=service or ExtenderConfiguration(),
                environment=environment or {},
            )
            return await case.run()


def scheduler_pod(
    *, flags: tuple[str, ...] = ("--config=/x",), mounts: tuple[str, ...] = (), env: Any = None, **spec: Any
) -> Any:
    pod = make_pod("kube-scheduler-m1", namespace="kube-system", labels={"component": "kube-scheduler"}, node="m1")
    pod["spec"] |= {"hostNetwork": True, **spec}
    container = pod["spec"]["containers"][0]
    container["env"] = env
    container["command"] = ["kube-scheduler", *flags]
    container["volumeMounts"] = [{"name": f"v{place}", "mountPath": path} for place, path in enumerate(mounts)]
    return pod


# --- the API server --------------------------------------------------------------------------------------------------


async def test_a_cluster_with_nothing_wrong_has_no_findings_and_calls_name_its_nodes(tmp_path: Path) -> None:
    report = await look(tmp_path, [scheduler_pod()])
    assert not wrong(report), report.as_text()
    assert report.looked_at[1].endswith("v1.36.0+embedded")


async def test_an_api_server_that_cannot_be_asked_is_an_error_and_the_rest_is_checked(tmp_path: Path) -> None:
    report = await look(tmp_path, [], Fault(status=401, count=None))
    found(report, "", "the API server cannot be asked")
    assert any(item.endswith("/filter") for item in report.looked_at)


@pytest.mark.parametrize(
    ("resource", "what"),
    [("nodes", "nodes: not checked"), ("pods", "pods of the extender: not checked"), ("services", "pods of the")],
)
async def test_what_may_not_be_asked_is_said_to_be_unchecked(tmp_path: Path, resource: str, what: str) -> None:
    report = await look(
        tmp_path, [], options=ServerOptions(forbidden={("list", resource)}), server="http://10.0.0.1:8888"
    )
    finding = found(report, "", what)
    assert finding.severity is Severity.NOTE
    assert "not allowed to whoever runs the doctor" in finding.problem


@pytest.mark.parametrize(("ahead", "is_found"), [(90, True), (-90, True), (2, False)])
async def test_clocks_that_differ_are_a_warning(tmp_path: Path, ahead: int, is_found: bool) -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=ahead), usegmt=True)
    body = json.dumps({"gitVersion": "v1.36.2"}).encode()
    fault = Fault(path="^/version$", count=None, status=200, body=body, headers={"Date": date})
    report = await look(tmp_path, [], fault)
    side = "ahead of" if ahead > 0 else "behind"
    skews = [finding.problem for finding in wrong(report) if "clock of the API server" in finding.problem]
    assert [side in text for text in skews] == [True] * is_found


@pytest.mark.parametrize(
    ("version", "dialect", "severity"),
    [
        ("v1.36.2", "v1", ""),
        ("v1.25.0", "v1", ""),
        ("v1.24.9", "v1", "error"),
        ("v1.29.1+rke2", "v1beta3", "warning"),
        ("v1.30.0", "v1beta3", "error"),
        ("v1.28.0", "v1beta2", "warning"),
        ("v1.23.0", "policy", "warning"),
        ("v1.24.0", "policy", "error"),
        ("v1.22.0", "policy", ""),
        ("main", "v1", "note"),
    ],
)
def test_the_version_of_the_file_has_to_suit_that_of_the_cluster(version: str, dialect: str, severity: str) -> None:
    findings = list(check_greeting(Greeting(version, 0.0), BY_NAME[dialect]))
    assert [str(finding.severity) for finding in findings] == [severity] * bool(severity)


# --- B10: the extender's own pod -------------------------------------------------------------------------------------


def own_pod(name: str, **fields: Any) -> Any:
    return make_pod(name, labels=LABELS, **fields)


async def test_an_extender_that_places_its_own_pod_is_a_deadlock(tmp_path: Path) -> None:
    scenarios = json.loads((CASES / "B10-unreachable.json").read_text())["scenarios"]
    scenario = next(item for item in scenarios if item["id"] == "own-pod")
    assert scenario["ignorable"] is False
    report = await look(tmp_path, [own_pod("extender-1")])
    finding = found(report, "extenders[0].ignorable", "pod default/extender-1 of this extender is placed with its help")
    assert finding.severity is Severity.WARNING
    assert "nothing places the next one, nor any other pod" in finding.problem


@pytest.mark.parametrize(
    ("pods", "fields"),
    [
        ([own_pod("a")], {"ignorable": True}),
        ([own_pod("a")], {"managedResources": [{"name": GPU}]}),
        ([own_pod("a", schedulerName="other")], {}),
        ([own_pod("a", annotations={"kubernetes.io/config.mirror": "x"})], {}),
        ([make_pod("a")], {}),
    ],
    ids=["ignorable", "not asked about", "another scheduler", "static", "a pod of others"],
)
async def test_a_pod_that_is_placed_without_it_is_none(tmp_path: Path, pods: list[Any], fields: dict[str, Any]) -> None:
    report = await look(tmp_path, pods, **fields)
    assert not [finding for finding in report.findings if "with its help" in finding.problem]


async def test_a_second_running_replica_makes_it_a_note(tmp_path: Path) -> None:
    replicas = [own_pod(f"r{number}", phase="Running") for number in (1, 2)]
    report = await look(tmp_path, replicas)
    assert found(report, "extenders[0].ignorable", "once all 2 are down").severity is Severity.NOTE


@pytest.mark.parametrize(
    "url", ["http://10.96.0.7:80", "http://gpu.sched.svc:80", "http://gpu.sched.svc.cluster.local"]
)
async def test_the_pods_of_another_extender_are_found_by_its_service(tmp_path: Path, url: str) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "gpu", "namespace": "sched"},
        "spec": {"clusterIP": "10.96.0.7", "selector": {"app": "gpu"}},
    }
    report = await look(tmp_path, [service, make_pod("gpu-0", namespace="sched", labels={"app": "gpu"})], server=url)
    found(report, "extenders[0].ignorable", "pod sched/gpu-0 of this extender")


# --- B12: managed resources ------------------------------------------------------------------------------------------

PODS = {case["id"]: case["pod"] for case in json.loads((CASES / "B12-managed-resources.json").read_text())["managed"]}
CALLED = dict(
    line.split(": called=")
    for line in (CASES / "B12-managed-resources.expected.txt").read_text().partition("Per case:\n")[2].splitlines()
)
MANAGED = [{"name": GPU}]
PLACE = "extenders[0].managedResources[0].name"


@pytest.mark.parametrize("case", [pytest.param(case, id=f"B12 {case.replace('-', ' ')}") for case in PODS])
async def test_pods_that_pass_the_extender_by_are_found(tmp_path: Path, case: str) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", **PODS[case]}
    report = await look(tmp_path, [pod], managedResources=MANAGED)
    lines = [finding.problem for finding in report.findings if finding.path == PLACE]
    if CALLED[case] == "true":
        assert not lines
    elif case == "none":
        assert lines == [f"no pod names {GPU} now, so the extender is not called"]
    else:
        assert any("1 pods, such as default/in, name" in line and "pass the extender by" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "pods", "is_ignored", "problem"),
    [
        ("example.com/gpus", [], False, "no node offers example.com/gpus and no pod names it: the extender is never"),
        ("example.com/none", ["example.com/none"], False, "no node offers example.com/none, so the pods that name it"),
        ("example.com/none", ["example.com/none"], True, ""),
    ],
    ids=["nobody has it", "no node has it", "no node needs it"],
)
async def test_a_resource_that_matches_nothing_is_a_warning(
    tmp_path: Path, name: str, pods: list[str], is_ignored: bool, problem: str
) -> None:
    objects = [make_pod(f"p{place}", requests={resource: 1}) for place, resource in enumerate(pods)]
    managed = [{"name": name, "ignoredByScheduler": is_ignored}]
    report = await look(tmp_path, objects, managedResources=managed)
    assert [problem in str(finding) for finding in wrong(report)] == [True] * bool(problem)


def test_of_a_cluster_too_large_to_look_at_nothing_is_concluded() -> None:
    tree = configuration({**ONLY_FILTER, "urlPrefix": "http://h", "managedResources": MANAGED})
    decoded, _ = decode(tree)
    assert decoded is not None
    findings = list(check_census(decoded, Census({GPU: Usage()}, is_complete=False)))
    assert {finding.severity for finding in findings} == {Severity.NOTE}
    assert "too large to look at all nodes and pods" in findings[0].problem


# --- preempt replies -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("victims", "problem"),
    [
        ({"a": {"Pods": [{"UID": "uid-low"}]}}, ""),
        ({}, ""),
        ({"a": None}, "a null in the reply brings kube-scheduler down"),
        ({"a": {"Pods": [None]}}, "a null in the reply brings kube-scheduler down"),
        ({"a": {"Pods": []}}, "leaves a without victims, and the preemption fails up to 1.36"),
        ({"a": {"Pods": [{"UID": "other"}]}}, "the pod is not found on that node"),
        ({"c": {"Pods": []}}, "names what it was not asked about, and the preemption fails"),
    ],
    ids=["kept", "left out", "null victims", "a null pod", "no victims", "another pod", "another node"],
)
async def test_preempt_is_asked_about_pods_that_exist(tmp_path: Path, victims: Any, problem: str) -> None:
    body = json.dumps({"NodeNameToMetaVictims": victims}).encode()
    entry = {"filterVerb": "", "reply": Reply(body)}
    report = await look(tmp_path, [make_pod("low", node="a")], **entry)
    assert [problem in str(finding) for finding in wrong(report)] == [True] * bool(problem), report.as_text()


# --- rights ----------------------------------------------------------------------------------------------------------


async def test_a_right_that_is_missing_is_an_error(tmp_path: Path) -> None:
    options = ServerOptions(forbidden={("create", "pods/binding"), ("watch", "poddisruptionbudgets.policy")})
    report = await look(tmp_path, [own_pod("a", serviceAccountName="sa", schedulerName="x")], options=options)
    user = "system:serviceaccount:default:sa"
    assert [finding.problem for finding in wrong(report)] == [
        f"{user} may not create pods/binding in all namespaces, which the service does",
        f"{user} may not watch poddisruptionbudgets.policy in all namespaces, which the service does",
    ]


async def test_without_a_pod_of_the_service_the_rights_are_those_of_the_reader(tmp_path: Path) -> None:
    report = await look(tmp_path, [], options=ServerOptions(forbidden={("get", "pods")}))
    found(report, "", "whoever runs the doctor may not get pods in all namespaces")
    found(report, "", "checked for whoever runs the doctor")


def test_rights_are_those_that_the_manifests_grant() -> None:
    files = [file for part in ("base", "overlays/ha", "authentication") for file in (MANIFESTS / part).glob("*.yaml")]
    documents = [document for file in files for document in yaml.safe_load_all(file.read_text())]
    granted = {
        right
        for document in documents
        if document["kind"] in ("ClusterRole", "Role")
        for rule in document["rules"]
        for right in product(rule["apiGroups"], rule["resources"], rule["verbs"])
    }
    sections = {
        "leaderElection": {"enabled": True},
        "management": {"authentication": {"enabled": True}, "tls": {"certFile": "/a", "keyFile": "/b"}},
    }
    rights = needed_rights(ExtenderConfiguration.model_validate(sections), "elsewhere")
    assert {(right.group, right.resource, right.verb) for right in rights} == granted
    assert [right for right in rights if right.namespace] == [
        Right("coordination.k8s.io", "leases", "create", "elsewhere"),
        Right("coordination.k8s.io", "leases", "get", "elsewhere", "kube-scheduler-extender"),
        Right("coordination.k8s.io", "leases", "update", "elsewhere", "kube-scheduler-extender"),
    ]


def test_what_is_not_enabled_needs_no_rights() -> None:
    quiet = ExtenderConfiguration.model_validate({"events": {"enabled": False}})
    resources = {right.resource for right in needed_rights(quiet, "x")}
    assert resources.isdisjoint({"events", "leases", "tokenreviews", "subjectaccessreviews"})


async def test_a_profile_that_cannot_be_bound_here_leaves_rights_unchecked(tmp_path: Path) -> None:
    profile = {"predicates": {"enabled": [{"name": "no_such_module:Rule"}]}}
    service = ExtenderConfiguration.model_validate({"profiles": [profile]})
    report = await look(tmp_path, [], service=service)
    assert found(report, "", "rights: not checked").severity is Severity.NOTE


# --- kube-scheduler's pod --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "fields", "path", "problem"),
    [
        (scheduler_pod(flags=()), {}, "", "pod kube-system/kube-scheduler-m1 runs without --config"),
        (scheduler_pod(flags=("--kubeconfig=/c",)), {}, "", "runs without --config: no file like this one counts"),
        (
            scheduler_pod(mounts=("/etc/kubernetes",)),
            {"tlsConfig": {"caFile": "/etc/kubernetes-other/ca.crt"}},
            "extenders[0].tlsConfig.caFile",
            "is under no volume of pod kube-system/kube-scheduler-m1",
        ),
        (
            scheduler_pod(),
            {"server": "http://gpu.sched.svc:80"},
            "extenders[0].urlPrefix",
            "gpu.sched.svc does not resolve for pod kube-system/kube-scheduler-m1",
        ),
        (
            scheduler_pod(env=[{"name": "HTTP_PROXY", "value": "http://p"}]),
            {"server": "http://10.0.0.1:80"},
            "extenders[0].urlPrefix",
            "sends these calls through the proxy http://p",
        ),
    ],
    ids=["without flags", "with other flags", "a file not mounted", "a name not resolved", "a proxy in between"],
)
async def test_how_kube_scheduler_is_run_is_looked_at(
    tmp_path: Path, pod: Any, fields: dict[str, Any], path: str, problem: str
) -> None:
    finding = found(await look(tmp_path, [pod], **fields), path, problem)
    assert finding.severity is not Severity.NOTE
    assert finding.remedy


@pytest.mark.parametrize(
    ("pod", "fields"),
    [
        (scheduler_pod(flags=("--config", "/x")), {}),
        (scheduler_pod(mounts=("/etc/kubernetes",)), {"tlsConfig": {"caFile": "/etc/kubernetes/pki/ca.crt"}}),
        (scheduler_pod(dnsPolicy="ClusterFirstWithHostNet"), {"server": "http://gpu.sched.svc:80"}),
        (scheduler_pod(flags=()), {"keys": {"profiles": [{"schedulerName": "second"}]}}),
    ],
    ids=["the flag in two words", "the file below a mount", "names resolved", "another scheduler"],
)
async def test_a_kube_scheduler_run_well_has_no_findings(tmp_path: Path, pod: Any, fields: dict[str, Any]) -> None:
    report = await look(tmp_path, [pod], **fields)
    # A certificate authority for a URL of plain HTTP is a mistake of its own.
    assert not [finding for finding in wrong(report) if "not encrypted" not in finding.problem]


async def test_without_its_pod_the_variables_here_are_looked_at(tmp_path: Path) -> None:
    report = await look(tmp_path, [], server="http://10.0.0.1:80", environment={"http_proxy": "http://p:3128"})
    text = "kube-scheduler, if its environment is like this sends these calls through the proxy http://p:3128"
    assert found(report, "extenders[0].urlPrefix", text).remedy == "add 10.0.0.1 to NO_PROXY of kube-scheduler"


@pytest.mark.parametrize(
    ("url", "exempt", "is_proxied"),
    [
        ("http://ext.ns.svc", "", True),
        ("http://localhost:1", "", False),
        ("http://127.0.0.1:1", "", False),
        ("http://[::1]:1", "", False),
        ("http://ext.ns.svc", "*", False),
        ("http://ext.ns.svc", "other, ns.svc", False),
        ("http://ns.svc", ".ns.svc", True),
        ("http://ext.ns.svc", ".ns.svc", False),
        ("http://ext.ns.svc", "*.ns.svc", False),
        ("http://myns.svc", "ns.svc", True),
        ("http://10.96.0.7", "10.96.0.0/16", False),
        ("http://10.97.0.7", "10.96.0.0/16,nonsense/1", True),
        ("http://10.96.0.7", "10.96.0.7", False),
        ("http://[fd00::1]:8888", "fd00::1", False),
        ("http://ext:8888", "ext:8888", False),
        ("http://ext:8889", "ext:8888", True),
        ("http://ext", "ext:80", False),
        ("https://ext", "", False),
    ],
)
def test_proxies_are_passed_by_as_go_does(url: str, exempt: str, is_proxied: bool) -> None:
    environment = {"HTTP_PROXY": "http://proxy", "no_proxy": exempt}
    assert bool(proxy_for(urlsplit(url), environment)) == is_proxied


# --- B14: sampling ---------------------------------------------------------------------------------------------------


def test_the_sample_has_the_size_it_has_in_kube_scheduler() -> None:
    case = json.loads((CASES / "B14-sampling.json").read_text())
    size = sample_size(case["nodesInCluster"], case["percentageOfNodesToScore"])
    expected = (CASES / "B14-sampling.expected.txt").read_text()
    assert f"offers only {size} of the {case['nodesInCluster']} nodes" in expected
    assert [sample_size(*given) for given in ((99, 0), (100, 0), (5000, 0), (15000, 0), (1000, 5), (1000, 100))] == [
        99,
        100,
        500,
        750,
        100,
        1000,
    ]


@pytest.mark.parametrize(
    ("keys", "paths"),
    [
        ({}, [ALL]),
        ({ALL: 100}, []),
        ({"profiles": [{ALL: 100}, {"schedulerName": "b"}]}, [f"profiles[1].{ALL}"]),
        ({ALL: 100, "profiles": [{ALL: 0}]}, [f"profiles[0].{ALL}"]),
    ],
    ids=["by default", "all nodes", "one profile of two", "a profile that says otherwise"],
)
async def test_a_sample_is_told_with_its_size(tmp_path: Path, keys: dict[str, Any], paths: list[str]) -> None:
    page = {"metadata": {"remainingItemCount": 998}, "items": [make_node("a"), make_node("b")]}
    report = await look(tmp_path, [], Fault(path="/nodes$", status=200, body=json.dumps(page).encode()), keys=keys)
    notes = [item for item in report.findings if item.path.endswith("percentageOfNodesToScore")]
    assert [item.path for item in notes] == paths
    assert all("an extender sees 420 of the 1000 nodes" in item.problem for item in notes)


def test_a_policy_cannot_say_how_many_nodes_are_seen() -> None:
    decoded, _ = decode({"apiVersion": "v1", "kind": "Policy", "extenders": [{"filterVerb": "filter"}]})
    assert decoded is not None
    (finding,) = check_sampling(decoded, 5000)
    assert finding.path == ""
    assert finding.remedy.endswith(", in a KubeSchedulerConfiguration")


async def test_of_a_few_nodes_all_are_seen(tmp_path: Path) -> None:
    report = await look(tmp_path, [])
    assert not [finding for finding in report.findings if "percentageOfNodesToScore" in finding.path]
