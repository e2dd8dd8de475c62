"""Host ports: the reported faults of B36, and the canonical form."""

from pathlib import Path

import msgspec
import pytest
import yaml

from extender.model.object import Container, ContainerPort, Pod, PodSpec
from extender.model.port import HostPort, host_ports

DATA = Path(__file__).parents[1] / "data" / "cases"
CASES = yaml.safe_load((DATA / "B36-host-ports.yaml").read_text())["cases"]
EXPECTED = dict(
    line.split(": ", 1) for line in (DATA / "B36-host-ports.expected.txt").read_text().splitlines() if ": n1=" in line
)


def test_the_expected_file_covers_every_case():
    assert set(EXPECTED) == {case["id"] for case in CASES}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["id"]) for case in CASES])
def test_conflicts(case):
    wanted = host_ports(msgspec.convert(case["incoming"], Pod))
    used = [port for pod in msgspec.convert(case["pods"], list[Pod]) for port in host_ports(pod)]
    conflict = any(one.conflicts(other) for one in wanted for other in used)
    assert conflict is any(other.conflicts(one) for one in wanted for other in used)
    assert ("n1=FAIL U (ports)" if conflict else "n1=pass") == EXPECTED[case["id"]]


def test_ports_are_distinct_and_sorted_and_have_no_empty_part():
    ports = [
        ContainerPort(443, host_ip="10.0.0.1"),
        ContainerPort(80),
        ContainerPort(80, 8080, "", ""),
        ContainerPort(0),
    ]
    sidecar = Container(ports=[ContainerPort(53, protocol="UDP")], restart_policy="Always")
    pod = Pod(spec=PodSpec(containers=[Container(ports=ports)], init_containers=[sidecar]))
    assert host_ports(pod) == (
        HostPort("0.0.0.0", "TCP", 80),
        HostPort("0.0.0.0", "UDP", 53),
        HostPort("10.0.0.1", "TCP", 443),
    )


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(Pod(), id="a pod without a spec"),
        pytest.param(Pod(spec=PodSpec(containers=[Container(ports=[ContainerPort(None, 80)])])), id="no host port"),
    ],
)
def test_no_ports(pod):
    assert host_ports(pod) == ()
