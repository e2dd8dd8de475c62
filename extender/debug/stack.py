"""Where every thread and every task is right now."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any


def thread_report() -> str:
    """Return the stacks of all threads, each with its innermost call last."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    blocks = []
    for number, frame in sys._current_frames().items():
        stack = "".join(traceback.format_list(traceback.extract_stack(frame)))
        blocks.append(f"thread {names.get(number, number)}:\n{stack}")
    return "\n".join(blocks)


def task_report() -> str:
    """Return the stacks of all tasks of the running loop, each with what it waits in last."""
    blocks = []
    for task in sorted(asyncio.all_tasks(), key=asyncio.Task.get_name):
        lines = "".join(f"  {line}\n" for line in _waiting_in(task.get_coro()))
        blocks.append(f"task {task.get_name()}:\n{lines}")
    return "\n".join(blocks)


def _waiting_in(awaited: Any) -> Iterator[str]:
    """Yield the places of a chain of coroutines and generators, each awaiting the next."""
    while awaited is not None:
        frame = next((found for name in _FRAMES if (found := getattr(awaited, name, None)) is not None), None)
        yield _place(frame) if frame is not None else type(awaited).__qualname__
        awaited = next((found for name in _AWAITED if (found := getattr(awaited, name, None)) is not None), None)


_FRAMES = ("cr_frame", "gi_frame", "ag_frame")
_AWAITED = ("cr_await", "gi_yieldfrom", "ag_await")


def _place(frame: FrameType) -> str:
    return f'File "{frame.f_code.co_filename}", line {frame.f_lineno}, in {frame.f_code.co_qualname}'
