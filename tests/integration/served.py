"""The service as a process of its own, with its log."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PATIENCE_SECONDS = 20.0
SERVE = (sys.executable, "-m", "extender", "serve")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a service that is expected to end by itself."""
    return subprocess.run([*SERVE, *arguments], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


class Process:
    """A running service; ``lines`` are the fields of its log."""

    def __init__(self, *arguments: str) -> None:
        self.child = subprocess.Popen([*SERVE, *arguments], stderr=subprocess.PIPE, text=True)
        self.lines: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            with contextlib.suppress(ValueError):
                self.lines.append(json.loads(line))

    def logged(self, message: str) -> dict[str, Any] | None:
        return next((line for line in list(self.lines) if line["message"] == message), None)

    def close(self) -> None:
        self.child.kill()
        self.child.wait()
        self._reader.join()
        assert self.child.stderr is not None
        self.child.stderr.close()


def until(condition: Callable[[], Any]) -> Any:
    late = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < late, "did not come about in time"
        time.sleep(0.01)
    return found
