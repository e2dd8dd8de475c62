"""What requests are authorised with: nothing, a fixed header, or a token in a file that is replaced now and then."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from extender.errors import ConfigurationError

_log = logging.getLogger(__name__)

TOKEN_MAX_AGE_SECONDS = 30.0
"""Age at which a token file is read again; the kubelet replaces tokens well before they expire."""


class Credential(Protocol):
    """A source of the ``Authorization`` header."""

    is_renewable: bool
    """Whether a request that was refused is worth a second try with a fresh value."""

    async def header(self) -> str | None:
        """Return the value to send, or None for none. Raises ConfigurationError rather than going anonymous."""

    async def renew(self, rejected: str | None) -> None:
        """Get a fresh value after the server refused ``rejected``. Raises ConfigurationError when there is none."""


class FixedHeader:
    """A header that never changes; ``None`` stands for requests without one."""

    is_renewable = False

    def __init__(self, value: str | None = None) -> None:
        self._value = value

    @classmethod
    def bearer(cls, token: str, origin: str) -> FixedHeader:
        """Return the header of a bearer token. Raises ConfigurationError when it is none."""
        return cls(bearer(token, origin))

    @classmethod
    def basic(cls, username: str, password: str) -> FixedHeader:
        """Return the header of a user name and a password."""
        return cls("Basic " + base64.b64encode(f"{username}:{password}".encode()).decode())

    async def header(self) -> str | None:
        """Return the fixed value."""
        return self._value

    async def renew(self, rejected: str | None) -> None:
        """Do nothing: a fixed value cannot be replaced."""


class TokenFile:
    """A bearer token in a file, read again at least every ``max_age_seconds`` and after a refusal.

    While the file cannot be read, the last token it held counts, and before that ``fallback``.
    """

    is_renewable = True

    def __init__(
        self,
        path: Path,
        *,
        fallback: str | None = None,
        max_age_seconds: float = TOKEN_MAX_AGE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._value = bearer(fallback, str(path)) if fallback else None
        self._max_age_seconds = max_age_seconds
        self._clock = clock
        self._read_at: float | None = None

    async def header(self) -> str | None:
        """Return the header of the token. Raises ConfigurationError when there has never been one."""
        if self._read_at is None or self._clock() - self._read_at >= self._max_age_seconds:
            self._read()
        return self._value

    async def renew(self, rejected: str | None) -> None:
        """Read the file again unless another request has done so since ``rejected`` was sent."""
        if self._value == rejected:
            self._read()

    def _read(self) -> None:
        try:
            self._value = bearer(self._path.read_text(), str(self._path))
        except (OSError, UnicodeDecodeError, ConfigurationError) as error:
            problem = error if isinstance(error, ConfigurationError) else f"{self._path}: no token: {error}"
            if self._value is None:
                raise ConfigurationError(f"{problem}; mount a token there or name another file") from error
            _log.warning("token file not read again", extra={"problem": str(problem)})
        self._read_at = self._clock()


def bearer(token: str, origin: str) -> str:
    """Return the header value for ``token``; ``origin`` is named when it cannot be one.

    Files end in a newline more often than not, and one in a header makes every request fail: it is stripped.

    Raises ConfigurationError.
    """
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigurationError(f"{origin}: the token is empty or holds characters that no token has")
    return f"Bearer {token}"
