"""The two laws of caches, as checks for tests.

Folding events one by one gives what building from the end state gives; and folding an event and then its inverse
leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from extender.framework.cache import Cache
from extender.testing.lab import Lab


def check_fold_equals_rebuild(
    cache: type[Cache], events: Iterable[tuple[str, Mapping[str, Any]]], lab: Lab | None = None
) -> None:
    """Fold ``events``, pairs of ``apply`` or ``delete`` and a plain object, and compare with a fresh cache.

    Raises:
        AssertionError: the folded cache differs from one built from what exists at the end.
        CacheError: it raised.
    """
    lab = lab or Lab()
    folded = lab.mirror.cache(cache)
    for verb, item in events:
        getattr(lab, verb)(item)
    rebuilt = cache(lab.mirror.table)
    lab.mirror.fill(rebuilt)
    assert folded.dump() == rebuilt.dump()  # noqa: S101 - this is an assertion for tests


def check_inverse_leaves_no_trace(cache: type[Cache], lab: Lab) -> None:
    """Take every placed pod and every node out and put it back, one at a time and all at once.

    Raises:
        AssertionError: afterwards the cache is not what it was.
        CacheError: it raised.
    """
    mirror = lab.mirror
    held = mirror.cache(cache)
    before = held.dump()
    placed = [info for info in mirror.pods.values() if info.node_name]
    for group in [*([info] for info in placed), placed]:
        with mirror.what_if(without=group):
            pass
        _check_trace(held, before)
    for node in list(lab.nodes().infos()):
        with mirror.what_if(nodes=[node]):
            pass
        _check_trace(held, before)


def _check_trace(cache: Cache, before: Any) -> None:
    if cache.cache_error is not None:
        raise cache.cache_error
    assert cache.dump() == before  # noqa: S101
