"""From the nodes a request names or brings along to rows of the node table."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TypeVar

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from extender import wire
from extender.errors import RequestError
from extender.framework.candidate import Nodes
from extender.framework.mirror import Mirror
from extender.framework.outcome import Filtered
from extender.model.column import BoolArray, IntArray
from extender.model.name_list import NameList
from extender.model.node import NodeInfo, read_node
from extender.wire import FilterRequest, HostScores

Cells = TypeVar("Cells", bound=np.generic)

_REMEMBERED_LISTS = 8

_GO_HEAD = re.compile(
    rb'\{"metadata":\{"name":"([!#-\[\]-~]+)",(?:"generateName":"[^"\\]*",)?(?:"uid":"[^"\\]*",)?'
    rb'"resourceVersion":"(\d+)"'
)
"""How Go begins a Node with a name in ASCII: enough to recognise a version without decoding the rest."""


class Asked:
    """The nodes of one request in the order asked, without repeats.

    ``nodes`` are those with a node object; ``known`` says which of ``names`` they are, shape (names,), or is None where
    all are. ``nodes`` may stand in the order of the table, which is cheaper to judge: ``places`` says where in them
    each known name is, shape (known names,), and is None where the order is that of ``names``. ``raws`` are the node
    objects as they came, in nodes mode.
    """

    def __init__(
        self,
        names: NameList,
        nodes: Nodes,
        *,
        places: IntArray | None = None,
        known: BoolArray | None = None,
        raws: list[Raw] | None = None,
    ) -> None:
        self.names = names
        self.nodes = nodes
        self.places = places
        self.known = known
        self.raws = raws
        self.replied: tuple[Filtered, bytes] | None = None
        """What ``/filter`` last made of them, and its reply: pods of one owner get the same one after the other."""

    def in_order(self, answers: IntArray) -> IntArray:
        """Return answers for ``nodes``, shape (known names,), in the order of the names."""
        return answers if self.places is None else answers.take(self.places)

    def over_all(self, answers: NDArray[Cells]) -> NDArray[Cells]:
        """Return answers for the known names, shape (known names,), over all names; zero for those not known."""
        if self.known is None:
            return answers
        everyone: NDArray[Cells] = np.zeros(len(self.names), answers.dtype)
        everyone[self.known] = answers
        return everyone

    def kept(self, names: NameList, fits: BoolArray) -> Asked:
        """Return what remains: ``names`` are those of ``nodes`` that ``fits`` says, shape (known names,), in order."""
        if self.places is None:
            return Asked(names, self.nodes.where(fits))
        remains = np.zeros(len(self.nodes), np.bool_)
        remains[self.places] = fits
        places = (np.cumsum(remains) - 1).take(self.places[fits])
        return Asked(names, self.nodes.where(remains), places=places)

    @cached_property
    def hosts(self) -> HostScores:
        """The reply of ``/prioritize`` about ``names``, but for the scores."""
        return HostScores(self.names)


class CandidateReader:
    """Reads name lists and node lists; remembers the last few name lists, which repeat from pod to pod."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._remembered: deque[tuple[bytes, int, Asked]] = deque(maxlen=_REMEMBERED_LISTS)

    @contextmanager
    def read(self, request: FilterRequest) -> Iterator[Asked]:
        """Yield the candidates of a request.

        Node objects that the mirror does not hold in just that version are put into it while the caller looks, so
        that they are judged as they came.

        Raises:
            RequestError: the names or a node cannot be read.
            QuantityError: a node's allocatable cannot be read.
        """
        if request.names is not None:
            yield self._by_name(request.names)
            return
        raws, others = self._by_node(request.nodes or [])
        names = NameList.of(raws)
        with self._mirror.what_if(nodes=others):
            index = self._mirror.table.index
            rows = np.fromiter((index[name] for name in raws), np.int64, len(raws))
            yield Asked(names, Nodes(self._mirror.table, rows), raws=list(raws.values()))

    def remember(self, asked: Asked) -> None:
        """Note what a list of names means: the answer to ``/filter`` is what ``/prioritize`` asks about next."""
        text, generation = asked.names.text, self._mirror.table.generation
        if not any(known_at == generation and known == text for known, known_at, _ in self._remembered):
            self._remembered.appendleft((text, generation, asked))

    def _by_name(self, names: Raw) -> Asked:
        wanted, generation = bytes(names), self._mirror.table.generation
        # A few long texts are compared sooner than one of them is hashed.
        for text, known_at, asked in self._remembered:
            if known_at == generation and text == wanted:
                return asked
        read = NameList.read(wanted)
        asked = self._resolve(_distinct(names) if read is None else read)
        self.remember(asked)
        return asked

    def _resolve(self, names: NameList) -> Asked:
        table = self._mirror.table
        rows = table.rows_of(names)
        # Telling names apart by their rows is cheaper than by themselves; unknown ones have no row.
        if len(names) and (rows.min() < 0 or np.bincount(rows).max() > 1):
            names = _distinct(Raw(names.text))
            rows = table.rows_of(names)
        known = (rows >= 0) & table.present[rows]
        if not known.all():
            return Asked(names, Nodes(table, rows[known]), known=known)
        first = int(rows.min(initial=table.capacity))
        if int(rows.max(initial=-1)) - first + 1 != len(rows):
            return Asked(names, Nodes(table, rows))
        return Asked(names, Nodes(table, np.arange(first, first + len(rows))), places=rows - first)

    def _by_node(self, nodes: list[Raw]) -> tuple[dict[str, Raw], list[NodeInfo]]:
        table = self._mirror.table
        raws: dict[str, Raw] = {}
        others: list[NodeInfo] = []
        for place, raw in enumerate(nodes):
            name, version = _head(raw, place)
            row = table.index.get(name)
            held = None if row is None else table.infos[row]
            if held is not None and version and held.resource_version == version:
                raws.setdefault(name, raw)
                continue
            node = read_node(wire.decode_node(raw))
            if not node.name:
                raise RequestError(f"Nodes.items[{place}].metadata.name: is missing; send whole Node objects")
            if node.name not in raws:
                raws[node.name] = raw
                others.append(node)
        return raws, others


def _distinct(names: Raw) -> NameList:
    """Return names without repeats.

    Raises:
        RequestError: it is not a list of strings.
    """
    return NameList.of(dict.fromkeys(wire.decode_names(names)))


class _HeadMeta(msgspec.Struct, rename="camel", gc=False):
    name: str | None = None
    resource_version: str | None = None


class _Head(msgspec.Struct, gc=False):
    metadata: _HeadMeta | None = None


_head_decoder = msgspec.json.Decoder(_Head)


def _head(node: Raw, place: int) -> tuple[str, str]:
    """Return name and resource version of a raw node, empty where they stand under keys in another casing."""
    view = memoryview(node)[:512]
    quick = _GO_HEAD.match(view)
    if quick:
        return quick[1].decode(), quick[2].decode()
    try:
        meta = _head_decoder.decode(node).metadata
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"Nodes.items[{place}]: {error}; send whole Node objects") from None
    return ((meta and meta.name) or "", (meta and meta.resource_version) or "")
