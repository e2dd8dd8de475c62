"""The commands of the service as an administrator runs them."""

from __future__ import annotations

import subprocess
import sys

from tests.e2e.control_plane import ROOT
from tests.e2e.process import environment


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever comes of it."""
    return subprocess.run(
        [sys.executable, "-m", "extender", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=ROOT,
        env=environment(),
    )


def printed(*arguments: str) -> str:
    """Return what a command prints that succeeds without a warning."""
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout
