"""Where the calls to one extender go: to its URL, or to another address that stands in for it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from extender.errors import ConfigurationError
from extender.registration.entry import Entry


@dataclass(frozen=True)
class Target:
    """One extender and an address; names and paths stay those of its URL, wherever ``address`` leads."""

    entry: Entry
    address: SplitResult
    """Scheme, host and port that are called."""
    named: SplitResult
    """The URL in the file."""

    @property
    def host(self) -> str:
        """The host that is connected to."""
        return self.address.hostname or ""

    @property
    def port(self) -> int:
        """The port that is connected to."""
        return self.address.port or {"http": 80, "https": 443}[self.address.scheme]

    @property
    def is_https(self) -> bool:
        """Whether calls are encrypted; the URL in the file decides."""
        return self.named.scheme == "https"

    @property
    def server_name(self) -> str:
        """The name that the certificate must have."""
        return self.entry.tls.server_name or self.named.hostname or ""

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return f"{self.named.scheme}://{self.address.netloc.rpartition('@')[2]}"

    @property
    def timeout_seconds(self) -> float:
        """How long a call may take here: as long as for kube-scheduler, but not for ever."""
        return min(self.entry.timeout_seconds or _LONGEST_SECONDS, _LONGEST_SECONDS)

    def url(self, word: str, path: str | None = None) -> str:
        """Return the URL of a verb, under the path of the file's URL unless another one is given."""
        prefix = self.named.path if path is None else path
        query = f"?{self.named.query}" if self.named.query and path is None else ""
        # As kube-scheduler joins them: a query takes the verb along.
        return f"{self.origin}{f'{prefix}{query}'.rstrip('/')}/{word}"


_LONGEST_SECONDS = 10.0


def targets_of(entries: tuple[Entry, ...], instead: list[str]) -> list[Target]:
    """Return the targets of all extenders whose URL can be used; ``instead`` has other addresses, in their order.

    Raises ConfigurationError when an address is none, or there are more than extenders.
    """
    if len(instead) > len(entries):
        raise ConfigurationError(
            f"--extender-url: is given {len(instead)} times, but the file has {len(entries)} extenders; "
            "name one address an extender, in their order"
        )
    others = [_origin(url) for url in instead]
    targets = []
    for place, entry in enumerate(entries):
        named = entry.address
        if named is not None:
            targets.append(Target(entry, others[place] if place < len(others) else named, named))
    return targets


def _origin(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or parts.path.strip("/") or parts.query or parts.fragment:
        raise ConfigurationError(
            f"--extender-url: {url!r} is no address; write http://HOST:PORT, the path is that of urlPrefix"
        )
    return parts
