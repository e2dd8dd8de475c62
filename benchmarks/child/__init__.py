"""Programs that are measured, or that others are measured against; each says its figures in lines of JSON.

They end when their input does, so that none outlives the run.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any


def say(**message: Any) -> None:
    """Tell the run something."""
    print(json.dumps(message), flush=True)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so that nothing tells of."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


async def hear() -> AsyncIterator[dict[str, Any]]:
    """Yield what the run says, until it wants the program to end."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async for line in reader:
        yield json.loads(line)


async def wait_for_end() -> None:
    """Wait until the run wants the program to end."""
    async for _ in hear():
        pass
