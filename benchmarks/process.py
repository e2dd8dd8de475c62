"""The programs of ``benchmarks.child``, run in processes of their own and spoken to in lines of JSON."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from benchmarks.stopwatch import cpu_seconds_of

_ROOT = Path(__file__).parents[1]
_STOP_SECONDS = 10.0


class Child:
    """A running program; leaving the context ends it."""

    def __init__(self, program: str, *arguments: object) -> None:
        self._program = program
        command = [sys.executable, "-m", f"benchmarks.child.{program}", *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Close the program's input, which tells it to end."""
        with self._process:
            try:
                self._process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def read(self) -> dict[str, Any]:
        """Return the next thing the program says.

        Raises:
            RuntimeError: it ended instead; its error output says why.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"benchmarks.child.{self._program} ended with status {self._process.wait()}")
        said: dict[str, Any] = json.loads(line)
        return said

    def write(self, **message: Any) -> None:
        """Tell the program something."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def cpu_seconds(self) -> float:
        """Return the processor time the program has used so far."""
        return cpu_seconds_of(self._process.pid)
