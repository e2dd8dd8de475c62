"""NodePorts: two pods cannot have the same port of a node."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from extender.framework import (
    SKIP,
    WILDCARD_IP,
    Cache,
    HostPort,
    IntArray,
    Nodes,
    NodeTable,
    PendingPod,
    PodInfo,
    Predicate,
    Refusal,
    RowBag,
    Skip,
    uses,
)

REASON: Final = "node(s) didn't have free ports for the requested pod ports"
"""Why a node is refused; evicting the pods that have the ports can help (source: plugins/nodeports of 1.36)."""

ANY_IP: Final = ""
"""Stands for every address: rows under it have the port on some address."""


class HostPorts(Cache):
    """Which rows have a port taken, by address, protocol and number; each port is kept under ``ANY_IP`` as well."""

    def __init__(self, table: NodeTable) -> None:
        super().__init__(table)
        self._bags: dict[HostPort, RowBag] = {}

    def add_pod(self, row: int, pod: PodInfo) -> None:
        """Take the pod's ports."""
        for port in pod.shape.ports:
            for key in (port, port._replace(ip=ANY_IP)):
                self._bags.setdefault(key, RowBag()).add(row)

    def remove_pod(self, row: int, pod: PodInfo) -> None:
        """Give the pod's ports back."""
        for port in pod.shape.ports:
            for key in (port, port._replace(ip=ANY_IP)):
                bag = self._bags[key]
                bag.remove(row)
                if not len(bag):
                    del self._bags[key]

    def conflicting(self, port: HostPort) -> Iterator[IntArray]:
        """Return the rows that cannot offer ``port``, in groups of shape (rows,); a row may come more than once.

        Taken on the wildcard address a port is taken on all, and wanted on that address it must be free on all.
        """
        addresses = (ANY_IP,) if port.ip == WILDCARD_IP else (port.ip, WILDCARD_IP)
        for ip in addresses:
            bag = self._bags.get(port._replace(ip=ip))
            if bag is not None:
                yield bag.rows

    def dump(self) -> Any:
        """Return the ports taken by node name, in order, each as often as it is taken."""
        state = defaultdict(list)
        for port in sorted(self._bags):
            for row in self._bags[port].rows.tolist():
                state[self.table.name(row)].append(tuple(port))
        return dict(state)


class NodePorts(Predicate):
    """Refuses nodes on which another pod has one of the host ports that the pod asks for."""

    ports = uses(HostPorts)

    def filter(self, pod: PendingPod, nodes: Nodes) -> Skip | list[Refusal]:
        """Mark the rows of each port; a pod without host ports has no opinion asked of it."""
        wanted = pod.shape.ports
        if not wanted:
            return SKIP
        taken = np.zeros(nodes.table.capacity, np.bool_)
        for port in wanted:
            for rows in self.ports.conflicting(port):
                taken[rows] = True
        return [Refusal(nodes.take(taken), REASON)]
