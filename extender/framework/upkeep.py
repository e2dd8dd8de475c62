"""The caches that a mirror keeps: each event is folded into all of them, and one that raises is set apart.

Nobody knows the state of a cache that raised. It is told nothing more, the algorithms that read it fail with what it
raised, and all others go on as if it were not there. It can be built anew::

    build ──> whole ──raises──> broken ──build──> whole
                                  └──────raises──────> broken
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from operator import methodcaller
from typing import Any, Literal, TypeAlias

from extender.errors import FAULTS, CacheError
from extender.framework.cache import Cache
from extender.framework.filling import Filling
from extender.model.kind import Kind, object_key
from extender.model.node import NodeInfo
from extender.model.pod import PodInfo
from extender.model.table import NodeTable

_log = logging.getLogger(__name__)

PodEvent: TypeAlias = Literal["add_pod", "remove_pod", "evict_pod", "restore_pod"]
Event: TypeAlias = Literal["grow", "add_node", "remove_node", "add", "remove"] | PodEvent


class Upkeep:
    """Keeps caches up to date: ``whole`` are those that are, ``broken`` those that were and raised.

    ``failures`` counts by name how often one raised.
    """

    def __init__(self, table: NodeTable) -> None:
        self.whole: dict[type[Cache], Cache] = {}
        self.broken: dict[type[Cache], Cache] = {}
        self.failures: Counter[str] = Counter()
        self._table = table
        self._told: tuple[Cache | Filling, ...] = ()
        self._told_pods: tuple[tuple[Cache | Filling, ...], tuple[Cache | Filling, ...]] = ((), ())
        table.on_grow(lambda capacity: self.fold("grow", capacity))

    def held(self, cache_class: type[Cache]) -> Cache | None:
        """Return the cache of a class, broken or not; None where it is not kept."""
        found = self.whole.get(cache_class)
        return self.broken.get(cache_class) if found is None else found

    @property
    def classes(self) -> set[type[Cache]]:
        """The classes of all caches that are kept, broken or not."""
        return {*self.whole, *self.broken}

    def fold(self, event: Event, *about: Any) -> None:
        """Call the method ``event`` of every cache."""
        self.tell(self._told, event, *about)

    def fold_pod(self, event: PodEvent, row: int, pod: PodInfo) -> None:
        """Do the same for a pod, and pass over the caches that would do nothing with it."""
        if self._told_pods[0] is not self._told:
            self._told_pods = (self._told, tuple(each for each in self._told if each.folds_pods()))
        self.tell(self._told_pods[1], event, row, pod)

    def fold_object(self, event: Event, kind: Kind, item: Any) -> None:
        """Call the method ``event`` of every cache of a kind."""
        self.tell([each for each in self._told if kind in each.kinds], event, kind, item)

    def tell(self, caches: Iterable[Cache | Filling], event: Event, *about: Any) -> None:
        """Call the method ``event`` of some caches; one that raises has a ``cache_error`` then, and stops no other."""
        call = methodcaller(event, *about)
        for each in caches:
            try:
                call(each)
            except FAULTS as error:
                self._set_apart(each, f"{event} of {_subject(about)}", error)

    def tell_pods(
        self, caches: Iterable[Cache], event: Literal["add_pod", "remove_pod"], placed: Sequence[tuple[int, PodInfo]]
    ) -> None:
        """Do the same for many pods, each with its row; caches with a ``cache_error`` are left out."""
        for cache in caches:
            if cache.cache_error is not None:
                continue
            call: Callable[[int, PodInfo], None] = getattr(cache, event)
            about: tuple[Any, ...] = ()
            try:
                for about in placed:
                    call(*about)
            except FAULTS as error:
                self._set_apart(cache, f"{event} of {_subject(about)}", error)

    def build(
        self,
        cache_class: type[Cache],
        replay: Callable[[Cache | Filling], Iterator[None]],
        objects_a_step: int,
    ) -> Generator[None]:
        """Build a cache from what ``replay`` tells, so many objects a step; events may be folded between two steps.

        Closing the iterator before its end leaves nothing of it. A broken one stays what it is until then.

        Raises:
            CacheError: it raised, and is not kept; a broken one stays broken.
        """
        built = self._make(cache_class)
        filling = Filling(built)
        self._told += (filling,)
        try:
            for place, _ in enumerate(replay(filling), 1):
                if built.cache_error is not None:
                    break
                if place % objects_a_step == 0:
                    yield
            if built.cache_error is not None:
                raise built.cache_error
            self._told = tuple(built if each is filling else each for each in self._told)
            self.whole[cache_class] = built
            self.broken.pop(cache_class, None)
        finally:
            self._told = tuple(each for each in self._told if each is not filling)

    def drop(self, cache_class: type[Cache]) -> None:
        """Keep a cache no longer, broken or not."""
        dropped = self.whole.pop(cache_class, None)
        self.broken.pop(cache_class, None)
        self._told = tuple(each for each in self._told if each is not dropped)

    def _make(self, cache_class: type[Cache]) -> Cache:
        try:
            return cache_class(self._table)
        except FAULTS as error:
            raise self._note(cache_class, "the constructor", error) from error

    def _set_apart(self, told: Cache | Filling, what: str, error: BaseException) -> None:
        cache = told.cache if isinstance(told, Filling) else told
        self._told = tuple(each for each in self._told if each is not told)
        if self.whole.get(type(cache)) is cache:
            self.broken[type(cache)] = self.whole.pop(type(cache))
        cache.cache_error = self._note(type(cache), what, error)
        cache.cache_error.__cause__ = error

    def _note(self, cache_class: type[Cache], what: str, error: BaseException) -> CacheError:
        """Return how a cache raised; it is counted, and where one is broken by it logged, unless it was just that."""
        name, broken = cache_class.__name__, self.broken.get(cache_class)
        noted = CacheError(name, f"{what} raised {type(error).__name__}: {error}")
        self.failures[name] += 1
        if broken is not None and str(broken.cache_error) != str(noted):
            _log.error("cache broken", extra={"cache": name, "error": str(noted)}, exc_info=error)
            broken.cache_error = noted
        return noted


def _subject(about: tuple[Any, ...]) -> str:
    """Name what an event is about."""
    match about:
        case (_, PodInfo(key=key)):
            return f"pod {key}"
        case (_, NodeInfo(name=name)):
            return f"node {name}"
        case (Kind(plural=plural), item):
            return f"{plural} {object_key(item.metadata)}"
    return " ".join(map(str, about))
