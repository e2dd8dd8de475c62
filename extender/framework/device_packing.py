"""Which devices a pod would get on each of many nodes: one greedy choice for all candidates at once.

Tables have shape (places, candidates), one cell a device.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from extender.framework.device import MOST_DEVICES, DeviceAsk, DeviceRequest
from extender.framework.device_table import DeviceTables
from extender.model.column import BoolArray, IntArray

SPREAD: Final = "spread"
SAME_NUMA: Final = "sameNuma"
SAME_LINK_GROUP: Final = "sameLinkGroup"

_NEVER: Final = 2**62
"""The rank of a device that cannot be chosen, and the size and number of a group that is none."""

Cells: TypeAlias = tuple[IntArray, IntArray] | EllipsisType
"""Places and candidates of some devices, or ``...`` for all."""


class DevicePacking:
    """Gives devices to one pod ask by ask, on every candidate; as if no pod had any where ``empty``.

    ``used_memory``, ``used_cores`` and ``users`` include what is settled. ``fits``, shape (candidates,), is where all
    asks up to now were met: elsewhere nothing is given. ``chosen`` has for each ask that counts the places given, shape
    (count, candidates).
    """

    def __init__(self, tables: DeviceTables, request: DeviceRequest, policy: str, *, empty: bool = False) -> None:
        self.memory, self.cores, self._sharers = tables.memory, tables.cores, tables.sharers
        used = tables.used_memory, tables.used_cores, tables.users
        self.used_memory, self.used_cores, self.users = [np.zeros_like(table) for table in used] if empty else used
        self._unknown = np.zeros_like(tables.unknown) if empty else tables.unknown
        self.exists: BoolArray = tables.exists
        self.healthy: BoolArray = tables.exists & tables.healthy
        self.accepted: BoolArray = self.healthy
        if (request.models or request.unwanted_models) and tables.models:
            accepted = np.array([request.accepts(model) for model in tables.models], np.bool_)
            self.accepted = self.healthy & accepted[tables.model]
        self._asks = [ask for ask in request.asks if ask.count]
        self._is_spread = policy == SPREAD
        self._groups: IntArray | None = None
        if policy in (SAME_NUMA, SAME_LINK_GROUP):
            self._groups = tables.numa if policy == SAME_NUMA else tables.link_group
        self._columns = np.arange(len(tables.unknown))
        self.fits: BoolArray = np.ones(len(self._columns), np.bool_)
        self.chosen: list[IntArray] = []
        self._used_before = self.used_memory, self.used_cores

    def pack(self, *, choose: bool) -> BoolArray:
        """Give devices for all asks, as far as they are met, and return ``fits``."""
        for _ in self.unmet(choose=choose):
            pass
        return self.fits

    def unmet(self, *, choose: bool) -> Iterator[tuple[DeviceAsk, BoolArray]]:
        """Give devices for one ask after the other; yield each that is not met, with the candidates it is for.

        What is used is then as before that ask. For the last one devices are given only to ``choose``: no verdict hangs
        on it. Candidates are out with the first ask that is not met.
        """
        passed, before = self.accepted, None
        for place, ask in enumerate(self._asks):
            if ask == before:  # all is as it was, but for the devices just given
                cells = self.chosen[-1], self._columns
                passed[cells] = self.accepted[cells] & self._does(ask, cells)
            else:
                passed = self.accepted & self._does(ask, ...)
            near, before = self.near(passed, ask), ask
            failing = self.fits & ~self.suffice(near, ask)
            if failing.any():
                self.fits = self.fits & ~failing
                yield ask, failing
                if not self.fits.any():
                    return
            is_last = place == len(self._asks) - 1
            if choose or not is_last:
                self._give(near, ask)
            if not is_last:
                self._settle(ask)

    def needs(self, ask: DeviceAsk, cells: Cells = ...) -> tuple[IntArray | int, IntArray | int]:
        """Return the memory and the compute that devices would have to give: a table or some cells, or one for all.

        A share of the memory is at least 1, so that a device without any has none to share.
        """
        if ask.whole:
            return self.memory[cells], self.cores[cells]
        if ask.memory_percent is None:
            return ask.memory, ask.cores
        return np.maximum(self.memory[cells] * ask.memory_percent // 100, 1), ask.cores

    def has_room(self, ask: DeviceAsk, cells: Cells = ...) -> BoolArray:
        """Return which devices take one pod more, whatever it needs of them; a table, or some cells of it."""
        room: BoolArray = self.users[cells] == 0 if ask.exclusive else self.users[cells] < self._sharers[cells]
        return room

    def has_memory(self, ask: DeviceAsk, cells: Cells = ...) -> BoolArray:
        """Return which devices have enough memory left; a table, or some cells of it."""
        left = self.memory[cells] - self.used_memory[cells]
        enough: BoolArray = left >= self.needs(ask, cells)[0]
        return enough

    def has_compute(self, ask: DeviceAsk, cells: Cells = ...) -> BoolArray:
        """Return which devices have enough compute left; a table, or some cells of it.

        A pod without a share of it cannot go where none is left (source: the Fit of HAMi's NVIDIA devices).
        """
        cores, used = self.cores[cells], self.used_cores[cells]
        some_left: BoolArray = (used < cores) | (cores == 0)
        return cores - used >= self.needs(ask, cells)[1] if ask.whole or ask.cores else some_left

    def grouped(self, passed: BoolArray, ask: DeviceAsk) -> BoolArray:
        """Return the devices that passed and are told to be near to others, if that matters; a table."""
        return passed if self._groups is None or ask.count < 2 else passed & (self._groups >= 0)

    def near(self, passed: BoolArray, ask: DeviceAsk) -> BoolArray:
        """Return of each candidate's devices that passed the smallest group that is large enough; a table.

        They are all returned where the policy does not mind, or one device is asked for.
        """
        groups = self._groups
        if groups is None or ask.count < 2:
            return passed
        best, smallest = np.full(len(self._columns), _NEVER), np.full(len(self._columns), _NEVER)
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

    def _does(self, ask: DeviceAsk, cells: Cells) -> BoolArray:
        return self.has_room(ask, cells) & self.has_memory(ask, cells) & self.has_compute(ask, cells)

    def _give(self, passed: BoolArray, ask: DeviceAsk) -> None:
        """Choose among the devices that passed: the fullest ones that will do or, to spread, the emptiest."""
        by_memory = ask.whole or ask.memory or ask.memory_percent is not None
        left = self.memory - self.used_memory if by_memory else self.cores - self.used_cores
        # Rank and place are one number: the least of a column is found much faster than where it is.
        places = np.arange(len(left))[:, None]
        rank = np.where(passed, (-left if self._is_spread else left) * MOST_DEVICES + places, _NEVER)
        chosen: IntArray = np.zeros((min(ask.count, len(rank)), len(self._columns)), np.int64)
        for turn in range(len(chosen)):
            if turn:
                rank[chosen[turn - 1], self._columns] = _NEVER
            chosen[turn] = np.minimum.reduce(rank, axis=0) % MOST_DEVICES
        self.chosen.append(chosen)

    def _settle(self, ask: DeviceAsk) -> None:
        """Count what was given last as used, before the next ask."""
        if len(self.chosen) == 1:  # the tables are those of all requests
            self.used_memory, self.used_cores = self.used_memory.copy(), self.used_cores.copy()
            self.users = self.users.copy()
        cells = self.chosen[-1], self._columns
        memory, cores = self.needs(ask, cells)
        self.used_memory[cells] += self.fits * memory
        self.used_cores[cells] += self.fits * cores
        self.users[cells] += self.fits

    def given(self, asks: Sequence[DeviceAsk], candidate: int = 0) -> Iterator[list[tuple[int, int, int]]]:
        """Yield for each ask the places given of one candidate, each with its memory and compute."""
        chosen = iter(self.chosen)
        for ask in asks:
            memory, cores = (np.broadcast_to(need, self.memory.shape)[:, candidate] for need in self.needs(ask))
            places = sorted(next(chosen)[:, candidate].tolist()) if ask.count else []
            yield [(place, int(memory[place]), int(cores[place])) for place in places]

    def fullness(self) -> IntArray:
        """Return how full the devices given and the whole node would be, in percent; shape (candidates,).

        The mean of both, each by whichever is scarcer of memory and compute.
        """
        of_devices, of_node = [], []
        for place, (used, total) in enumerate(zip(self._used_before, (self.memory, self.cores), strict=True)):
            asked, used_there, total_there = np.zeros((3, len(self._columns)), np.int64)
            for chosen, ask in zip(self.chosen, self._asks, strict=False):
                cells = chosen, self._columns
                need = self.needs(ask, cells)[place]
                total_there += np.add.reduce(total[cells], axis=0)
                used_there += np.add.reduce(used[cells], axis=0)
                asked += len(chosen) * need if isinstance(need, int) else np.add.reduce(need, axis=0)
            of_devices.append(_percent(used_there + asked, total_there))
            of_node.append(_percent(np.add.reduce(used, axis=0) + asked, np.add.reduce(total, axis=0)))
        return ((np.maximum(*of_devices) + np.maximum(*of_node)) / 2).astype(np.int64)


def _count(passed: BoolArray) -> NDArray[np.uint8]:
    """Return how many of each candidate's devices passed; one byte holds ``MOST_DEVICES``."""
    count: NDArray[np.uint8] = np.add.reduce(passed.view(np.uint8), axis=0, dtype=np.uint8)
    return count


def _percent(used: IntArray, total: IntArray) -> NDArray[np.float64]:
    share: NDArray[np.float64] = np.minimum(used * 100.0 / np.maximum(total, 1), 100.0)
    return share
