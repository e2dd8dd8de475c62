"""TLS towards the API server: contexts are built from certificates, and anew when the certificates change."""

from __future__ import annotations

import logging
import ssl
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from extender.errors import ConfigurationError

_log = logging.getLogger(__name__)

Pem: TypeAlias = Path | bytes
"""Certificates or a key in PEM: a file, which may be replaced at any time, or the text itself."""


@dataclass(frozen=True)
class Pair:
    """A client certificate and its key, both in PEM."""

    certificate: bytes
    key: bytes


class TlsContext:
    """The client side of TLS; ``current`` follows certificates that are rotated on disk or issued by a plug-in.

    A new context is built rather than the old one changed: loading a mismatched pair into a live context breaks it, and
    a certificate authority cannot be taken out of one. Files that cannot be used leave the last good context in place.
    """

    def __init__(
        self,
        origin: str,
        *,
        authority: Pem | None = None,
        certificate: Pem | None = None,
        key: Pem | None = None,
        verify: bool = True,
        issued: Callable[[], Pair | None] = lambda: None,
        check_seconds: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._origin = origin
        self._sources = (authority, certificate, key)
        self._verify = verify
        self._issued = issued
        self._check_seconds = check_seconds
        self._clock = clock
        self._check_at = 0.0
        self._pair: Pair | None = None
        self._material: tuple[bytes | None, ...] | None = None
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """Return the context to connect with; files are looked at again every ``check_seconds``.

        Raises ConfigurationError when there has never been a usable one.
        """
        now = self._clock()
        if self._context is not None and now < self._check_at and self._issued() is self._pair:
            return self._context
        self._check_at = now + self._check_seconds
        try:
            self._context = self._rebuild(self._context)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            problem = f"{self._origin}: the certificates cannot be used: {error}; check authority, certificate and key"
            if self._context is None:
                raise ConfigurationError(problem) from error
            _log.warning("certificates not replaced", extra={"problem": problem})
        return self._context

    def _rebuild(self, context: ssl.SSLContext | None) -> ssl.SSLContext:
        """Return ``context`` if it is made of what the sources say now, else a new one."""
        pair = self._issued()
        material = tuple(source.read_bytes() if isinstance(source, Path) else source for source in self._sources)
        if pair is not None:
            material = (material[0], pair.certificate, pair.key)
        if context is None or material != self._material:
            context = _build(*material, verify=self._verify)
        self._material, self._pair = material, pair
        return context


def _build(authority: bytes | None, certificate: bytes | None, key: bytes | None, *, verify: bool) -> ssl.SSLContext:
    """Return a client context; without ``authority`` the roots of the system are trusted."""
    if authority is not None and not authority.strip():
        # Empty data would count as none, and every public authority would be trusted.
        raise ValueError("the certificate authority is empty")
    context = ssl.create_default_context(cadata=authority.decode() if authority is not None else None)
    # Since Python 3.13 the default refuses authorities without a key identifier, which many clusters have.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate is not None:
        # OpenSSL loads a pair from a file only; the name is gone before the first connection is made.
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(certificate + b"\n" + (key or b""))
            file.flush()
            # With a password, if an empty one, an encrypted key is an error and not a prompt on the terminal.
            context.load_cert_chain(file.name, password="")
    return context
