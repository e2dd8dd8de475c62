"""Decoding requests and encoding replies, next to the standard library's json."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from msgspec import Raw

from benchmarks.cluster import node_name
from benchmarks.report import Row, row
from benchmarks.request import bodies
from benchmarks.stopwatch import time_function
from benchmarks.workload import Cluster, Codec, Plan, Verb
from extender import wire
from extender.model.column import IntArray
from extender.model.name_list import NameList
from extender.model.pod import PendingPod

Work: TypeAlias = Callable[[], Any]

_REASON = "Insufficient cpu"


def measure(plan: Plan, workloads: Sequence[Codec]) -> Iterator[Row]:
    """Yield a row a case: what is decoded or encoded."""
    for workload in workloads:
        for case, work, plain in _cases(workload):
            ours = time_function(work, plan.rounds, plan.round_seconds / 2)
            theirs = time_function(plain, plan.rounds, plan.round_seconds / 2)
            ratio = ours.cpu_seconds / theirs.cpu_seconds
            yield row(workload.name, case, "message", ours, baseline="json", ratio=ratio, target=workload.target)


def _cases(workload: Codec) -> Iterator[tuple[str, Work, Work]]:
    by_name = _body(names=workload.names)
    names = [node_name(place) for place in range(workload.names)]
    listed = NameList.of(names)
    odd = np.arange(len(names)) % 2
    kept, failed = names[::2], dict.fromkeys(names[1::2], _REASON)
    scores = np.arange(len(names)) % (wire.MAX_EXTENDER_SCORE + 1)
    host_scores = [{"Host": name, "Score": score} for name, score in zip(names, scores.tolist(), strict=True)]
    whole = _body(whole_nodes=workload.whole_nodes)
    raws = wire.decode_filter(whole).nodes or []
    objects = [json.loads(bytes(raw)) for raw in raws]
    yield f"decode {len(names)} names", lambda: _decode_names(by_name), lambda: json.loads(by_name)
    yield f"decode {len(raws)} nodes", lambda: _decode_nodes(whole), lambda: json.loads(whole)
    yield (
        f"encode {len(names)} names, half refused",
        lambda: _encode_halves(listed, odd),
        lambda: _dump({"Nodes": None, "NodeNames": kept, "FailedNodes": failed}),
    )
    yield (
        f"encode {len(raws)} nodes",
        lambda: wire.encode_filter_nodes(raws, (), ()),
        lambda: _dump({"Nodes": {"items": objects}, "NodeNames": None, "FailedNodes": {}}),
    )
    yield (
        f"encode {len(names)} scores",
        lambda: wire.HostScores(listed).filled(scores),
        lambda: _dump(host_scores),
    )


def _body(*, names: int = 0, whole_nodes: int = 0) -> bytes:
    count = names or whole_nodes
    return next(bodies(Verb(name="", verb="filter", names=names, whole_nodes=whole_nodes), Cluster(count, 0), 0))


def _encode_halves(names: NameList, odd: IntArray) -> bytes:
    kept, refused = names.split(odd, 2)
    return wire.encode_filter_names(kept, [(refused, _REASON)], ())


def _decode_names(body: bytes) -> tuple[PendingPod, NameList | None]:
    request = wire.decode_filter(body)
    return PendingPod(wire.decode_pod(request.pod)), NameList.read(bytes(request.names or Raw(b"[]")))


def _decode_nodes(body: bytes) -> tuple[PendingPod, list[Raw] | None]:
    request = wire.decode_filter(body)
    return PendingPod(wire.decode_pod(request.pod)), request.nodes


def _dump(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
