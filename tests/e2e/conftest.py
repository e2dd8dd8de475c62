"""What the tests with a real control plane share."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print what was measured to whoever runs the tests."""
    reporter = request.config.pluginmanager.getplugin("terminalreporter")
    return lambda text: reporter.write_line(f"\nmeasured: {text}")
