"""Pod requests: the reported faults of B33, resizing in place, and what scores assume."""

from pathlib import Path

import msgspec
import pytest
import yaml

from extender.errors import QuantityError
from extender.model.node import read_node
from extender.model.object import Node, Pod
from extender.model.request import is_extended_resource, is_scalar_resource, nonzero_requests, pod_requests

DATA = Path(__file__).parents[1] / "data" / "cases"
CASES = yaml.safe_load((DATA / "B33-pod-requests.yaml").read_text())["cases"]
EXPECTED = dict(
    line.split(": ", 1) for line in (DATA / "B33-pod-requests.expected.txt").read_text().splitlines() if ": n1=" in line
)
MI = 2**20
DEFAULT_BYTES = 200 * MI


def pod(**spec):
    status = spec.pop("status", None)
    return msgspec.convert({"spec": spec, "status": status}, Pod)


def container(name="c", restart=None, **requests):
    return {"name": name, "restartPolicy": restart, "resources": {"requests": requests}}


def verdict(case):
    """Fit one pod onto one node by its requests alone."""
    incoming = pod_requests(msgspec.convert(case["incoming"], Pod), placed=False)
    placed = [pod_requests(each, placed=True) for each in msgspec.convert(case.get("pods", []), list[Pod])]
    (node,) = (read_node(each) for each in msgspec.convert(case["nodes"], list[Node]))
    if len(placed) >= node.allocatable.get("pods", 0):
        return "n1=FAIL U (Too many pods)"
    for name, wanted in incoming.items():
        allocatable = node.allocatable.get(name, 0)
        if wanted > allocatable - sum(each.get(name, 0) for each in placed):
            return f"n1=FAIL {'UU' if wanted > allocatable else 'U'} (Insufficient {name})"
    return "n1=pass"


def test_the_expected_file_covers_every_case():
    assert set(EXPECTED) == {case["id"] for case in CASES}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_fit(case):
    assert verdict(case) == EXPECTED[case["id"]]


def test_only_resources_that_the_scheduler_counts_are_kept():
    asked = container(
        **{
            "cpu": "1500m",
            "memory": "1Ki",
            "ephemeral-storage": 2.5,
            "example.com/gpu": "1",
            "hugepages-2Mi": "4Mi",
            "attachable-volumes-csi": "3",
            "kubernetes.io/batch": 7,
            "pods": "1",
            "storage": "1Gi",
            "requests.example.com/gpu": "1",
            "example.com/none": "0",
        }
    )
    assert pod_requests(pod(containers=[asked]), placed=False) == {
        "cpu": 1500,
        "memory": 1024,
        "ephemeral-storage": 3,
        "example.com/gpu": 1,
        "hugepages-2Mi": 4 * MI,
        "attachable-volumes-csi": 3,
        "kubernetes.io/batch": 7,
    }


def test_sums_are_rounded_once_and_blanks_are_trimmed():
    trifle = container(cpu=" 400u ", memory="100m")
    assert pod_requests(pod(containers=[trifle] * 5), placed=False) == {"cpu": 2, "memory": 1}


def test_a_sidecar_counts_for_the_init_containers_after_it_only():
    before, sidecar, after = container(cpu="3"), container(restart="Always", cpu="1"), container(cpu="2")
    app = container(cpu="500m")
    assert pod_requests(pod(containers=[app], initContainers=[before, sidecar]), placed=False) == {"cpu": 3000}
    assert pod_requests(pod(containers=[app], initContainers=[sidecar, after]), placed=False) == {"cpu": 3000}
    assert pod_requests(pod(containers=[app], initContainers=[sidecar, before]), placed=False) == {"cpu": 4000}


def test_requests_of_the_pod_as_a_whole_stand_for_cpu_memory_and_huge_pages_only():
    spec = {
        "containers": [container(**{"cpu": "1", "example.com/gpu": 1})],
        "resources": {"requests": {"memory": "1Ki", "hugepages-2Mi": "2Mi", "example.com/gpu": 9}},
        "overhead": {"memory": "24"},
    }
    assert pod_requests(pod(**spec), placed=False) == {
        "cpu": 1000,
        "memory": 1048,
        "hugepages-2Mi": 2 * MI,
        "example.com/gpu": 1,
    }


INFEASIBLE = [{"type": "PodResizePending", "reason": "Infeasible"}]


@pytest.mark.parametrize(
    ("granted", "conditions", "millis"),
    [
        pytest.param({"resources": {"requests": {"cpu": "3"}}}, None, 3000, id="what is set counts while it is more"),
        pytest.param({"resources": {"requests": {"cpu": "1"}}}, None, 2000, id="what is asked for counts while more"),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2500m"}},
            None,
            2500,
            id="what is allocated counts while it is more",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "1500m"}},
            INFEASIBLE,
            1500,
            id="what is asked for does not count once infeasible",
        ),
        pytest.param(
            {"resources": {"requests": {"cpu": "1"}}},
            [{"type": "PodResizePending", "reason": "Deferred"}, *INFEASIBLE],
            2000,
            id="the first condition of its type decides",
        ),
        pytest.param(
            {"allocatedResources": {"cpu": "3"}}, None, 2000, id="nothing counts before resources are reported"
        ),
    ],
)
def test_resizing_in_place(granted, conditions, millis):
    status = {"conditions": conditions, "containerStatuses": [{"name": "c", **granted}]}
    resized = pod(containers=[container(cpu="2")], status=status)
    assert pod_requests(resized, placed=True) == {"cpu": millis}
    assert pod_requests(resized, placed=False) == {"cpu": 2000}


def test_sidecars_resize_in_place_and_other_init_containers_do_not():
    granted = {"resources": {"requests": {"cpu": "5"}}}
    status = {"initContainerStatuses": [{"name": "side", **granted}, {"name": "init", **granted}]}
    sidecar, init = container("side", "Always", cpu="1"), container("init", cpu="1")
    assert pod_requests(pod(initContainers=[sidecar], status=status), placed=True) == {"cpu": 5000}
    assert pod_requests(pod(initContainers=[init], status=status), placed=True) == {"cpu": 1000}


def test_requests_of_the_pod_as_a_whole_resize_in_place():
    spec = {"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "250m"}}
    status = {"resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "3"}}
    assert pod_requests(pod(**spec, status=status), placed=True) == {"cpu": 3250}
    assert pod_requests(pod(**spec, status=status), placed=False) == {"cpu": 2250}


@pytest.mark.parametrize("placed", [True, False], ids=["as load of a node", "as the pod to place"])
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, (0, 0), id="a pod without containers"),
        pytest.param({"containers": [container(), container()]}, (200, 2 * DEFAULT_BYTES), id="defaults by container"),
        pytest.param({"containers": [container(cpu="0", memory=0)]}, (0, 0), id="an explicit zero is no default"),
        pytest.param({"containers": [container(cpu="1")]}, (1000, DEFAULT_BYTES), id="defaults by resource"),
        pytest.param(
            {"containers": [container(cpu="50m", memory="1Mi")], "initContainers": [container()]},
            (100, DEFAULT_BYTES),
            id="an init container has defaults too",
        ),
        pytest.param(
            {"containers": [container()], "overhead": {"cpu": "1m", "memory": 1}},
            (101, DEFAULT_BYTES + 1),
            id="overhead is on top",
        ),
    ],
)
def test_nonzero(spec, expected, placed):
    assert nonzero_requests(pod(**spec), placed=placed) == expected


@pytest.mark.parametrize(
    ("resources", "as_load", "to_place"),
    [
        pytest.param({"cpu": "2", "memory": "1Mi"}, (2000, MI), (1100, MI + DEFAULT_BYTES), id="both are stated"),
        pytest.param({"cpu": "2"}, (2000, MI), (1100, MI + DEFAULT_BYTES), id="one is stated and one summed"),
    ],
)
def test_requests_of_the_pod_as_a_whole_count_as_load_only_when_scored(resources, as_load, to_place):
    spec = {"containers": [container(cpu="1"), container(memory="1Mi")], "resources": {"requests": resources}}
    assert nonzero_requests(pod(**spec), placed=True) == as_load
    assert nonzero_requests(pod(**spec), placed=False) == to_place


def test_a_resource_that_neither_pod_nor_containers_state_has_its_default_by_container():
    spec = {"containers": [container(cpu="1"), container()], "resources": {"requests": {"cpu": "2"}}}
    assert nonzero_requests(pod(**spec), placed=True) == (2000, 2 * DEFAULT_BYTES)


def test_a_faulty_quantity_names_its_resource():
    with pytest.raises(QuantityError, match=r"^cpu: '1K' is not a quantity"):
        pod_requests(pod(containers=[container(cpu="1K")]), placed=False)


@pytest.mark.parametrize(
    ("name", "extended", "scalar"),
    [
        pytest.param("example.com/gpu", True, True, id="a vendor's device"),
        pytest.param("hugepages-2Mi", False, True, id="huge pages"),
        pytest.param("attachable-volumes-aws-ebs", False, True, id="attachable volumes"),
        pytest.param("kubernetes.io/batch", False, True, id="a prefixed native resource"),
        pytest.param("node.kubernetes.io/batch", False, True, id="a native resource of a subdomain"),
        pytest.param("requests.example.com/gpu", False, False, id="the form of a quota"),
        pytest.param("example.com/a/b", False, False, id="two slashes"),
        pytest.param("Example.com/gpu", False, False, id="a prefix in capitals"),
        pytest.param(f"example.com/{'x' * 64}", False, False, id="a name of 64 characters"),
        pytest.param("gpu", False, False, id="no prefix"),
        pytest.param("cpu", False, False, id="cpu"),
    ],
)
def test_resource_names(name, extended, scalar):
    assert (is_extended_resource(name), is_scalar_resource(name)) == (extended, scalar)
