"""What an informer delivers to: turns lists and watch events into changes of the mirror."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

from extender.errors import ExtenderError
from extender.model.kind import object_key

_log = logging.getLogger(__name__)


class FoldingStore:
    """Folds the objects of one kind; implements ``extender.model.kind.Store``."""

    def __init__(
        self,
        keys: Callable[[], Iterable[str]],
        upsert: Callable[[Any], None],
        delete: Callable[[str], None],
        *,
        begun: Callable[[], None] = lambda: None,
        finished: Callable[[], None] = lambda: None,
    ) -> None:
        """``begun`` and ``finished`` are called at the start and at the end of each list."""
        self._keys = keys
        self._upsert = upsert
        self._delete = delete
        self._begun = begun
        self._finished = finished
        self._listed: set[str] | None = None

    def begin(self) -> None:
        """Start a list; objects held so far stay until ``finish``."""
        self._listed = set()
        self._begun()

    def upsert(self, item: Any) -> None:
        """Hold ``item``; one that cannot be read is logged, and an older version of it stays held."""
        key = object_key(item.metadata)
        if self._listed is not None:
            self._listed.add(key)
        try:
            self._upsert(item)
        except ExtenderError as error:
            _log.error("object cannot be used", extra={"object": key, "error": str(error)})

    def delete(self, item: Any) -> None:
        """Forget the object named as ``item``."""
        self._delete(object_key(item.metadata))

    def finish(self) -> None:
        """End a list: forget what it did not name."""
        listed, self._listed = self._listed or set(), None
        for key in [key for key in self._keys() if key not in listed]:
            self._delete(key)
        self._finished()
