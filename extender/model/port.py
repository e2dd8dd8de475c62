"""The host ports of a pod, and when two of them conflict.

Source of the rules: kube-scheduler ``framework/types.go`` (``HostPortInfo``) and ``util.GetHostPorts``, 1.36.
"""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

from extender.model.object import Container, Pod

WILDCARD_IP = "0.0.0.0"
"""The address that conflicts with every address; ``::`` is an address like any other."""


class HostPort(NamedTuple):
    """A port taken on the node: address, protocol and number, none of them empty."""

    ip: str
    protocol: str
    port: int

    def conflicts(self, other: HostPort) -> bool:
        """Tell whether one node cannot offer both ports."""
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (self.ip == other.ip or WILDCARD_IP in (self.ip, other.ip))
        )


def host_ports(pod: Pod) -> tuple[HostPort, ...]:
    """Return the distinct host ports of the containers that keep running, in sorted order.

    Those are the containers and the sidecars; other init containers give their ports back.
    """
    spec = pod.spec
    if spec is None:
        return ()
    sidecars = (each for each in spec.init_containers or () if each.restart_policy == "Always")
    return tuple(sorted({port for each in chain(sidecars, spec.containers or ()) for port in _container_ports(each)}))


def _container_ports(container: Container) -> list[HostPort]:
    return [
        HostPort(port.host_ip or WILDCARD_IP, port.protocol or "TCP", port.host_port)
        for port in container.ports or ()
        if port.host_port is not None and port.host_port > 0
    ]
