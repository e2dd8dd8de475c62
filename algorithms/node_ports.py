"""NodePorts: two pods cannot have the same port of a node."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
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
        self._hidden: dict[tuple[HostPort, int], int] = {}
        self._before: dict[tuple[HostPort, int], list[int]] = {}

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

    def evict_pod(self, row: int, pod: PodInfo) -> None:
        """Give the pod's ports back as upstream does, whose used ports are a set.

        Where pods on one node claim the same port, which only an invalid state has, evicting one of them frees it.
        """
        self.remove_pod(row, pod)
        for port in pod.shape.ports:
            self._before.setdefault((port, row), []).append(self._hidden.get((port, row), 0))
            self._hide(port, row, self._count(port, row))

    def restore_pod(self, row: int, pod: PodInfo) -> None:
        """Undo ``evict_pod``."""
        self.add_pod(row, pod)
        for port in reversed(pod.shape.ports):
            before = self._before[port, row]
            self._hide(port, row, before.pop())
            if not before:
                del self._before[port, row]

    def conflicting(self, port: HostPort) -> Iterator[IntArray]:
        """Return the rows that cannot offer ``port``, in groups of shape (rows,); a row may come more than once.

        Taken on the wildcard address a port is taken on all, and wanted on that address it must be free on all.
        """
        addresses = (ANY_IP,) if port.ip == WILDCARD_IP else (port.ip, WILDCARD_IP)
        for ip in addresses:
            bag = self._bags.get(port._replace(ip=ip))
            if bag is not None:
                yield self._visible(port._replace(ip=ip), bag)

    def dump(self) -> Any:
        """Return the ports taken by node name, in order, each as often as it is taken."""
        state = defaultdict(list)
        for port in sorted(self._bags):
            for row in self._bags[port].rows.tolist():
                state[self.table.name(row)].append(tuple(port))
        return dict(state)

    def _hide(self, port: HostPort, row: int, entries: int) -> None:
        """Have so many of a port's entries on ``row`` count as gone."""
        change = entries - self._hidden.get((port, row), 0)
        for key in ((port, row), (port._replace(ip=ANY_IP), row)):
            hidden = self._hidden.get(key, 0) + change
            if hidden:
                self._hidden[key] = hidden
            else:
                self._hidden.pop(key, None)

    def _visible(self, port: HostPort, bag: RowBag) -> IntArray:
        """Return the rows of a port that do not all count as gone."""
        gone = [row for (key, row), hidden in self._hidden.items() if key == port and self._count(port, row) <= hidden]
        return bag.rows[~np.isin(bag.rows, gone)] if gone else bag.rows

    def _count(self, port: HostPort, row: int) -> int:
        bag = self._bags.get(port)
        return 0 if bag is None else int(np.count_nonzero(bag.rows == row))


class NodePorts(Predicate):
    """Refuses nodes on which another pod has one of the host ports that the pod asks for."""

    node_local = True
    ports = uses(HostPorts)

    def heeded(self, pod: PendingPod, others: Sequence[PodInfo]) -> Sequence[PodInfo]:
        """Return those that have host ports, where the pod asks for some."""
        return [other for other in others if other.shape.ports] if pod.shape.ports else ()

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
