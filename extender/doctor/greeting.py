"""Whether version and clock of the API server suit the file and this machine."""

from __future__ import annotations

from collections.abc import Iterator

from extender.doctor.api import Greeting
from extender.registration.dialect import Dialect, newest, parse_release
from extender.registration.finding import Finding, error, note, warning

_TOLERATED_SKEW_SECONDS = 5.0


def check_greeting(greeting: Greeting, dialect: Dialect) -> Iterator[Finding]:
    """Yield what is wrong; kube-scheduler may be one minor release older than its API server."""
    skew = greeting.skew_seconds
    if skew is not None and abs(skew) > _TOLERATED_SKEW_SECONDS:
        yield warning(
            "",
            f"the clock of the API server is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} this machine's: "
            "certificates, tokens and leases are judged by different times",
            "set the clocks by NTP",
        )
    try:
        minor = parse_release(greeting.version)
    except ValueError:
        yield note("", f"the API server calls its version {greeting.version!r}, which says nothing of the release")
        return
    if dialect.serves(minor):
        return
    problem = f"{dialect.api_version} is read by kube-scheduler {dialect.releases}, and the API server is 1.{minor}"
    remedy = f"write it anew: scheduler-extender register --api-version {newest(minor).name}"
    if dialect.serves(minor - 1):
        yield warning("apiVersion", f"{problem}: kube-scheduler does not start once it is of that release", remedy)
    else:
        yield error("apiVersion", f"{problem}: kube-scheduler does not start", remedy)
