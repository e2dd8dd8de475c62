"""A profile of one thread, taken from another by looking at its stack many times a second.

While a profile is taken the interpreter switches threads at the shortest notice: otherwise a thread would be seen only
where it gives up the interpreter of its own accord, and short requests never. What libraries do without the interpreter
counts for the function that called them.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

import msgspec

HERTZ: Final = 200
_SWITCH_SECONDS: Final = 0.00001

WAITING: Final = "(waiting)"
"""Stands for all stacks in which the event loop itself is innermost: nothing to do, or sending and receiving."""
_LOOPS: Final = frozenset({"Runner.run", "BaseEventLoop.run_forever", "BaseEventLoop.run_until_complete"})

Function: TypeAlias = tuple[str, str, int]
"""Label, file and first line."""


@dataclass
class Profile:
    """How often each stack was seen, outermost function first."""

    stacks: Counter[tuple[Function, ...]] = field(default_factory=Counter)

    def collapsed(self) -> bytes:
        """Return one line a stack, as flamegraph.pl, inferno and speedscope read them."""
        lines = (f"{';'.join(label for label, _, _ in stack)} {count}\n" for stack, count in self.stacks.most_common())
        return "".join(lines).encode()

    def speedscope(self, name: str) -> bytes:
        """Return the profile in the file format of speedscope."""
        functions = list(dict.fromkeys(function for stack in self.stacks for function in stack))
        places = {function: place for place, function in enumerate(functions)}
        document: dict[str, Any] = {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": name,
            "exporter": "kube-scheduler-extender",
            "shared": {"frames": [{"name": label, "file": file, "line": line} for label, file, line in functions]},
            "profiles": [
                {
                    "type": "sampled",
                    "name": name,
                    "unit": "seconds",
                    "startValue": 0,
                    "endValue": self.stacks.total() / HERTZ,
                    "samples": [[places[function] for function in stack] for stack in self.stacks],
                    "weights": [count / HERTZ for count in self.stacks.values()],
                }
            ],
        }
        return msgspec.json.encode(document)


def profile(thread_id: int, seconds: float, is_over: Callable[[], bool]) -> Profile:
    """Return a profile of a thread; it blocks for ``seconds``, or until ``is_over``."""
    found = Profile()
    until, usual = time.monotonic() + seconds, sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        while time.monotonic() < until and not is_over():
            time.sleep(1 / HERTZ)
            frame = sys._current_frames().get(thread_id)
            if frame is not None:
                found.stacks[_stack(frame)] += 1
    finally:
        sys.setswitchinterval(usual)
    return found


def _stack(innermost: FrameType) -> tuple[Function, ...]:
    if innermost.f_code.co_qualname in _LOOPS:
        return ((WAITING, "", 0),)
    functions: list[Function] = []
    frame: FrameType | None = innermost
    while frame is not None:
        functions.append(_function(frame))
        frame = frame.f_back
    return tuple(reversed(functions))


def _function(frame: FrameType) -> Function:
    """Return a function; its label has the last two parts of its module's path, and its qualified name."""
    code = frame.f_code
    path = Path(code.co_filename)
    return f"{path.parent.name}/{path.stem}:{code.co_qualname}", code.co_filename, code.co_firstlineno
