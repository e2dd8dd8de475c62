"""NodePorts, by a table of cases, by the reported faults, and the laws of its cache under random events."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.node_ports import REASON, HostPorts, NodePorts
from extender.framework import SKIP
from extender.framework.runner import Outcome
from extender.testing.casefile import check_case, read_cases
from extender.testing.lab import Lab, pending
from extender.testing.law import check_fold_equals_rebuild, check_inverse_leaves_no_trace
from extender.testing.maker import make_node, make_pod

REPORTED = read_cases(Path(__file__).parents[1] / "data" / "cases" / "B36-host-ports.yaml")


def node(name):
    return make_node(name)


def pod(name, on=None, *, ports=()):
    return make_pod(name, node=on, ports=ports)


def port(number, ip="", protocol="TCP"):
    return {"containerPort": 1, "hostPort": number, "hostIP": ip, "protocol": protocol}


OBJECTS = [
    *map(node, ("free", "web", "dns", "local")),
    pod("early", "ghost", ports=[80]),
    pod("web-1", "web", ports=[80, 443]),
    pod("web-2", "web", ports=[8080]),
    pod("dns", "dns", ports=[port(53, protocol="UDP")]),
    pod("local", "local", ports=[port(80, "10.0.0.1"), port(80, "10.0.0.2")]),
    pod("waiting", ports=[80]),
]


@pytest.mark.parametrize(
    ("ports", "refused"),
    [
        pytest.param([], SKIP, id="a pod without host ports has no opinion asked of it"),
        pytest.param([{"containerPort": 80}], SKIP, id="a container port is no host port"),
        pytest.param([80], {"web", "local"}, id="on all addresses the port must be free on every one"),
        pytest.param([port(80, "10.0.0.1")], {"web", "local"}, id="a port taken on all addresses is taken on each"),
        pytest.param([port(80, "10.0.0.3")], {"web"}, id="another address has the same port free"),
        pytest.param([port(53)], set(), id="another protocol has the same number free"),
        pytest.param([port(53, protocol="UDP")], {"dns"}, id="the same protocol and number are taken"),
        pytest.param([9999, 8080], {"web"}, id="one port of several is enough"),
        pytest.param([9999], set(), id="a port that nobody has is free everywhere"),
    ],
)
def test_filter(ports, refused):
    found = Lab(OBJECTS).filter(NodePorts, pod("p", ports=ports))
    if refused is not SKIP:
        refused = dict.fromkeys(refused, Outcome((REASON,), resolvable=True, algorithm="NodePorts"))
    assert found == refused


def test_a_port_is_free_only_when_the_last_pod_that_has_it_is_gone():
    twins = [pod("twin-1", "a", ports=[80]), pod("twin-2", "a", ports=[80])]
    lab = Lab([node("a"), *twins])
    lab.filter(NodePorts, pod("p", ports=[80]))
    lab.delete(twins[0])
    assert lab.filter(NodePorts, pod("p", ports=[80])).keys() == {"a"}
    lab.delete(twins[1])
    assert lab.filter(NodePorts, pod("p", ports=[80])) == {}


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in REPORTED])
def test_reported_fault(case):
    check_case(case, NodePorts)


# --- the cache under random events -----------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "c"])
PORTS = st.lists(
    st.builds(
        port, st.sampled_from([80, 443]), st.sampled_from(["", "10.0.0.1", "::"]), st.sampled_from(["TCP", "UDP"])
    )
)
PODS = st.builds(pod, st.sampled_from(["p", "q", "r", "s"]), st.none() | NAMES, ports=PORTS)
EVENT = st.tuples(st.sampled_from(["apply", "apply", "delete"]), st.builds(node, NAMES) | PODS)
CROWD = st.sampled_from([[], [("apply", pod(f"x{place}", f"n{place}", ports=[80])) for place in range(70)]])
EVENTS = st.tuples(st.lists(EVENT), CROWD, st.lists(EVENT)).map(lambda parts: [*parts[0], *parts[1], *parts[2]])


@given(EVENTS)
def test_the_cache_obeys_both_laws(events):
    lab = Lab()
    check_fold_equals_rebuild(HostPorts, events, lab)
    check_inverse_leaves_no_trace(HostPorts, lab)


@given(EVENTS, PORTS.filter(bool))
def test_the_cache_agrees_with_asking_pod_by_pod(events, ports):
    lab = Lab()
    wanted = pod("p", ports=ports)
    lab.filter(NodePorts, wanted)
    for verb, item in events:
        getattr(lab, verb)(item)
    placed = list(lab.mirror.pods.values())
    refused = {
        name
        for name in lab.nodes().names()
        for info in placed
        if info.node_name == name
        and any(one.conflicts(other) for one in pending(wanted).shape.ports for other in info.shape.ports)
    }
    assert lab.filter(NodePorts, wanted).keys() == refused
