"""ServiceAntiAffinity, by a table of cases, and as the score of ServiceAffinity."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from algorithms.service_affinity import ServiceAffinity
from algorithms.service_anti_affinity import ServiceAntiAffinity
from extender.testing.lab import Lab
from extender.testing.maker import make_node, make_pod

# Two nodes of no zone, two of zone 1 and two of zone 2.
NAMES = ["01", "02", "11", "12", "21", "22"]
NODES = [make_node(name, labels={} if name[0] == "0" else {"zone": name[0]}) for name in NAMES]
SERVICE = {"kind": "Service", "metadata": {"name": "s", "namespace": "ns"}, "spec": {"selector": {"app": "web"}}}
BY_ZONE = {"labels": ["zone"]}


def placed(*nodes, namespace="ns", app="web"):
    """Return a pod on each of the nodes."""
    return [
        make_pod(
            f"{app}-{place}", node=node, namespace=namespace, uid=f"{namespace}-{app}-{place}", labels={"app": app}
        )
        for place, node in enumerate(nodes)
    ]


def pod(app="web"):
    return make_pod("p", namespace="ns", labels={"app": app, "rev": "1"})


@pytest.mark.parametrize(
    ("objects", "pod", "raw", "normalized"),
    [
        pytest.param([], pod(), [0] * 6, [0, 0, 100, 100, 100, 100], id="nothing at all"),
        pytest.param([SERVICE], pod(), [0] * 6, [0, 0, 100, 100, 100, 100], id="a service without pods"),
        pytest.param(placed("11"), pod(), [0] * 6, [0, 0, 100, 100, 100, 100], id="pods without a service"),
        pytest.param(
            [SERVICE, *placed("11", app="api")], pod(), [0] * 6, [0, 0, 100, 100, 100, 100], id="pods of other services"
        ),
        pytest.param(
            [SERVICE, *placed("11")], pod("api"), [0] * 6, [0, 0, 100, 100, 100, 100], id="a pod of no service"
        ),
        pytest.param(
            [SERVICE, *placed("11", "21")], pod(), [0, 0, 1, 0, 1, 0], [0, 0, 50, 50, 50, 50], id="a pod in each zone"
        ),
        pytest.param(
            [SERVICE, *placed("21")], pod(), [0, 0, 0, 0, 1, 0], [0, 0, 100, 100, 0, 0], id="one pod in one zone"
        ),
        pytest.param(
            [SERVICE, *placed("11", "21", "22")],
            pod(),
            [0, 0, 1, 0, 1, 1],
            [0, 0, 66, 66, 33, 33],
            id="one pod in one zone and two in the other",
        ),
        pytest.param(
            [SERVICE, *placed("01", "11", "11", "21")],
            pod(),
            [1, 0, 2, 0, 1, 0],
            [0, 0, 50, 50, 75, 75],
            id="pods outside all zones count in the sum",
        ),
        pytest.param(
            [SERVICE, *placed("11", namespace="other"), *placed("21")],
            pod(),
            [0, 0, 0, 0, 1, 0],
            [0, 0, 100, 100, 0, 0],
            id="pods of other namespaces do not count",
        ),
    ],
)
def test_score(objects, pod, raw, normalized):
    found = Lab([*NODES, *objects]).score(ServiceAntiAffinity, pod, BY_ZONE)
    assert (list(found.raw.values()), list(found.normalized.values())) == (raw, normalized)


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(NAMES)), st.lists(st.sampled_from(["zone", "kubernetes.io/hostname", "rack"]), min_size=1)
)
def test_it_scores_as_service_affinity_does(nodes, labels):
    lab = Lab([*NODES, SERVICE, *placed(*nodes)])
    assert lab.score(ServiceAntiAffinity, pod(), {"labels": labels}) == lab.score(
        ServiceAffinity, pod(), {"antiAffinityLabelsPreference": labels}
    )


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({}, id="labels must be given"),
        pytest.param({"labels": []}, id="one at least"),
        pytest.param({"label": "zone"}, id="unknown keys are refused"),
        pytest.param({"labels": ["zone", "bad key!"]}, id="keys that no label has are refused"),
    ],
)
def test_arguments_that_are_refused(args):
    with pytest.raises(ValidationError, match="label"):
        ServiceAntiAffinity.Arguments.model_validate(args)
