"""Programs that a test starts, stops and kills, each by its own process id, with its output in a file."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PATIENCE_SECONDS = 90.0
_END_SECONDS = 30.0
_POLL_SECONDS = 0.1
_TAIL_BYTES = 4000


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nothing listens on."""
    opened = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in opened]
    finally:
        for each in opened:
            each.close()


def eventually(condition: Callable[[], object], what: str, seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until ``condition`` holds; the last of what it raised explains why it did not."""
    late = time.monotonic() + seconds
    problem: Exception | None = None
    while True:
        try:
            if condition():
                return
            problem = None
        except Exception as error:
            problem = error
        if time.monotonic() > late:
            raise TimeoutError(f"{what} did not come about within {seconds:g} s: {problem}") from problem
        time.sleep(_POLL_SECONDS)


class Program:
    """One program, which may be started more than once; ``log`` has what it wrote, all its lives together."""

    def __init__(
        self, command: Sequence[str], log: Path, *, directory: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = log.stem
        self.command = list(command)
        self.log = log
        self._directory = directory
        self._environment = dict(environment or {})
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The id of the process that runs."""
        assert self._running is not None
        return self._running.pid

    def start(self, is_ready: Callable[[], object]) -> None:
        """Start the program and wait until it is ready."""
        assert self._running is None
        with self.log.open("ab") as output:
            output.write(f"--- {' '.join(self.command)}\n".encode())
            output.flush()
            self._running = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._directory,
                env=environment() | self._environment,
            )
        try:
            eventually(lambda: self.has_ended() or is_ready(), f"readiness of {self.name}")
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.tail()}") from error
        assert not self.has_ended(), f"{self.name} ended at once\n{self.tail()}"

    def has_ended(self) -> bool:
        """Say whether the program that was started has ended of its own accord."""
        return self._running is not None and self._running.poll() is not None

    def stop(self) -> int:
        """Ask the program to end, and make it end if it does not; return its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the program as a lost machine would."""
        self._end(signal.SIGKILL)

    def hang_up(self) -> None:
        """Send SIGHUP, which has the service load its configuration anew."""
        os.kill(self.pid, signal.SIGHUP)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep the program from running for a while; its connections stay open, and nothing answers on them."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def wait(self, seconds: float) -> int:
        """Wait until the program ends of its own accord, and return its exit code."""
        assert self._running is not None
        running = self._running
        code = running.wait(seconds)
        self._running = None
        return code

    def tail(self) -> str:
        """Return the last lines it wrote."""
        return self.log.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")

    def _end(self, number: signal.Signals) -> int:
        if self._running is None:
            return 0
        running, self._running = self._running, None
        running.send_signal(number)
        try:
            return running.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            return running.wait()


def environment() -> dict[str, str]:
    """Return the environment without what would lead calls to loopback elsewhere, or change a setting."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.lower().endswith("_proxy") and not name.startswith("SCHEDULER_EXTENDER_") and name != "KUBECONFIG"
    }
