"""Which devices a pod would get on each of many nodes: one greedy choice for all candidates at once.

Tables have shape (places, candidates), one cell a device.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from extender.framework.candidate import Nodes
from extender.framework.device import DeviceAsk, DeviceRequest
from extender.framework.device_convention import CONVENTIONS
from extender.framework.device_pool import DevicePool
from extender.model.column import BoolArray, IntArray

SPREAD: Final = "spread"
SAME_NUMA: Final = "sameNuma"
SAME_LINK_GROUP: Final = "sameLinkGroup"

_NEVER: Final = 2**62
"""The rank of a device that cannot be chosen, and the size of a group that is none."""


class DevicePacking:
    """Gives devices to one pod ask by ask, on every candidate; as if no pod had any where ``empty``.

    ``used_memory``, ``used_cores`` and ``users`` include what is settled. ``fits``, shape (candidates,), is narrowed by
    the caller: elsewhere nothing is given. ``chosen`` has for each ask the places given, shape (count, candidates).
    """

    def __init__(
        self, pool: DevicePool, nodes: Nodes, request: DeviceRequest, policy: str, *, empty: bool = False
    ) -> None:
        take = nodes.take
        self.memory, self.cores, self._sharers = take(pool.memory), take(pool.cores), take(pool.sharers)
        used = take(pool.used_memory), take(pool.used_cores), take(pool.users)
        self.used_memory, self.used_cores, self.users = [np.zeros_like(table) for table in used] if empty else used
        self._unknown = np.zeros(len(nodes), np.int64) if empty else take(pool.unknown)
        self.kind: BoolArray = take(pool.exists)
        self.kind = self.kind & (take(pool.convention) == list(CONVENTIONS).index(request.convention.name))
        self.healthy: BoolArray = self.kind & take(pool.healthy)
        self.accepted: BoolArray = self.healthy
        if request.models or request.unwanted_models:
            accepted = np.array([request.accepts(model) for model in pool.models], np.bool_)
            self.accepted = self.healthy & accepted[take(pool.model)] if len(accepted) else self.healthy
        self._is_spread = policy == SPREAD
        self._groups: IntArray | None = None
        if policy in (SAME_NUMA, SAME_LINK_GROUP):
            self._groups = take(pool.numa if policy == SAME_NUMA else pool.link_group)
        self._columns = np.arange(len(nodes))
        self.fits: BoolArray = np.ones(len(nodes), np.bool_)
        self.chosen: list[IntArray] = []
        self._used_before = self.used_memory, self.used_cores
        self._needs: list[tuple[IntArray | int, IntArray | int]] = []

    def needs(self, ask: DeviceAsk) -> tuple[IntArray | int, IntArray | int]:
        """Return the memory and the compute that a device would have to give: a table, or the same for all."""
        if ask.whole:
            return self.memory, self.cores
        if ask.memory_percent is None:
            return ask.memory, ask.cores
        return self.memory * ask.memory_percent // 100, ask.cores

    def has_room(self, ask: DeviceAsk) -> BoolArray:
        """Return which devices take one pod more, whatever it needs of them; a table."""
        room: BoolArray = self.users == 0 if ask.exclusive else self.users < self._sharers
        return room

    def has_memory(self, ask: DeviceAsk) -> BoolArray:
        """Return which devices have enough memory left; a table."""
        enough: BoolArray = self.memory - self.used_memory >= self.needs(ask)[0]
        return enough

    def has_compute(self, ask: DeviceAsk) -> BoolArray:
        """Return which devices have enough compute left; a table.

        A pod without a share of it cannot go where none is left (source: the Fit of HAMi's NVIDIA devices).
        """
        enough: BoolArray
        if ask.whole or ask.cores:
            enough = self.cores - self.used_cores >= self.needs(ask)[1]
        else:
            enough = (self.used_cores < self.cores) | (self.cores == 0)
        return enough

    def near(self, passed: BoolArray, ask: DeviceAsk) -> BoolArray:
        """Return of each candidate's devices that passed the smallest group that is large enough; a table.

        They are all returned where the policy does not mind, or one device is asked for.
        """
        groups = self._groups
        if groups is None or ask.count < 2:
            return passed
        best, smallest = np.full(len(self._columns), -1), np.full(len(self._columns), _NEVER)
        for group in range(int(groups.max(initial=-1)) + 1):
            size = _count(passed & (groups == group))
            better = (size >= ask.count + self._unknown) & (size < smallest)
            best[better], smallest[better] = group, size[better]
        near: BoolArray = passed & (groups == best)
        return near

    def suffice(self, passed: BoolArray, ask: DeviceAsk) -> BoolArray:
        """Return which candidates have as many devices that passed as are asked for; shape (candidates,).

        Devices of pods that do not say which ones they got are taken to be among them.
        """
        enough: BoolArray = _count(passed) >= ask.count + self._unknown
        return enough

    def give(self, passed: BoolArray, ask: DeviceAsk) -> None:
        """Choose among the devices that passed: the fullest ones that will do or, to spread, the emptiest."""
        by_memory = ask.whole or ask.memory or ask.memory_percent is not None
        left = self.memory - self.used_memory if by_memory else self.cores - self.used_cores
        rank = np.where(passed, -left if self._is_spread else left, _NEVER)
        chosen: IntArray = np.zeros((min(ask.count, len(rank)), len(self._columns)), np.int64)
        for turn in range(len(chosen)):
            if turn:
                rank[chosen[turn - 1], self._columns] = _NEVER
            chosen[turn] = rank.argmin(axis=0)
        self.chosen.append(chosen)
        self._needs.append(self.needs(ask))

    def settle(self) -> None:
        """Count what was given last as used, before the next ask."""
        memory, cores = self._needs[-1]
        given = np.zeros(self.memory.shape, np.bool_)
        given[self.chosen[-1], self._columns] = self.fits
        self.used_memory = self.used_memory + given * memory
        self.used_cores = self.used_cores + given * cores
        self.users = self.users + given

    def fullness(self) -> IntArray:
        """Return how full the devices given and the whole node would be, in percent; shape (candidates,).

        The mean of both, each by whichever is scarcer of memory and compute.
        """
        of_devices, of_node = [], []
        for place, (used, total) in enumerate(zip(self._used_before, (self.memory, self.cores), strict=True)):
            asked, used_there, total_there = np.zeros((3, len(self._columns)), np.int64)
            for chosen, needs in zip(self.chosen, self._needs, strict=True):
                cells, need = (chosen, self._columns), needs[place]
                asked += need * len(chosen) if isinstance(need, int) else need[cells].sum(axis=0)
                used_there += used[cells].sum(axis=0)
                total_there += total[cells].sum(axis=0)
            of_devices.append(_percent(used_there + asked, total_there))
            of_node.append(_percent(used.sum(axis=0) + asked, total.sum(axis=0)))
        return ((np.maximum(*of_devices) + np.maximum(*of_node)) / 2).astype(np.int64)


def _count(passed: BoolArray) -> NDArray[np.uint8]:
    """Return how many of each candidate's devices passed; one byte holds ``MOST_DEVICES``."""
    count: NDArray[np.uint8] = np.add.reduce(passed.view(np.uint8), axis=0, dtype=np.uint8)
    return count


def _percent(used: IntArray, total: IntArray) -> NDArray[np.float64]:
    share: NDArray[np.float64] = np.minimum(used * 100.0 / np.maximum(total, 1), 100.0)
    return share
