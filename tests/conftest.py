"""What holds for every test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# On a machine that others use as well, how long an example takes says nothing about it.
settings.register_profile("unhurried", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")
