"""TLS of the service's own ports: contexts are built from files, and anew when the files change.

A live context is never changed: a pair that does not match would break it, and an authority cannot be taken out of it.
Each connection that says hello is handed to the context built last; those that are open live on.
"""

from __future__ import annotations

import asyncio
import logging
import re
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from extender.config import ExtenderConfiguration, MutualTlsSection, TlsSection
from extender.errors import ConfigurationError
from extender.telemetry import Metrics

_log = logging.getLogger(__name__)

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_CERTIFICATE: Final = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*)PRIVATE KEY-----")
_UNREADABLE: Final = "holds a certificate that cannot be read; write it anew"
_PLAIN: Final = "HTTP_REQUEST"
_HINTS: Final = {
    _PLAIN: "plain HTTP was sent: let urlPrefix begin with https://",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no client certificate was shown: set certFile and keyFile of tlsConfig",
    "CERTIFICATE_VERIFY_FAILED": "clientCaFile does not vouch for the client certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the caller does not trust the certificate: check caFile of its tlsConfig",
    "TLSV1_ALERT_UNKNOWN_CA": "the caller does not trust the certificate: check caFile of its tlsConfig",
}
"""What to do about failed handshakes, by OpenSSL's reason."""


class CertificateFiles:
    """The files that the section ``tls`` of a port names; ``names`` has them by key."""

    def __init__(self, port: str, section: TlsSection) -> None:
        self._path = f"{port}.tls"
        self._section = section
        self.names = {"certFile": section.cert_file, "keyFile": section.key_file}
        if isinstance(section, MutualTlsSection) and section.client_ca_file:
            self.names["clientCaFile"] = section.client_ca_file

    def read(self) -> dict[str, bytes]:
        """Return what the files hold, by key.

        Raises:
            ConfigurationError: some cannot be read; all findings at once.
        """
        contents, problems = {}, []
        for key, file in self.names.items():
            try:
                contents[key] = Path(file).read_bytes()
            except OSError as error:
                problems.append(f"{self._path}.{key}: {file}: cannot be read: {error.strerror}; mount it or correct it")
        if problems:
            raise ConfigurationError(problems)
        return contents

    def build(self, contents: dict[str, bytes]) -> ssl.SSLContext:
        """Return a context of what the files hold, having checked that it can be used.

        Raises:
            ConfigurationError: it cannot; all findings at once.
        """
        problems = [f"{self._path}.{key}: {self.names[key]}: {text}" for key, text in _flaws(contents)]
        if problems:
            raise ConfigurationError(problems)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[self._section.min_version]
        # Whoever resumes a session is not verified again: without tickets, and see _hand_over.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.set_alpn_protocols(["http/1.1"])
        try:
            # With a password, if an empty one, an encrypted key is an error and not a prompt on the terminal.
            context.load_cert_chain(self.names["certFile"], self.names["keyFile"], password="")
        except ssl.SSLError as error:
            text = f"cannot be used with keyFile {self.names['keyFile']}: {error.reason or error}; they must be a pair"
            raise ConfigurationError(f"{self._path}.certFile: {self.names['certFile']}: {text}") from None
        except OSError as error:  # gone since it was read
            raise ConfigurationError(f"{self._path}.certFile: cannot be read: {error.strerror}") from None
        if "clientCaFile" in contents:
            self._trust(context, contents["clientCaFile"])
        return context

    def _trust(self, context: ssl.SSLContext, authorities: bytes) -> None:
        """Have ``context`` ask for client certificates; as in Go, what is in the file counts although it is no root."""
        context.verify_mode = ssl.CERT_REQUIRED
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        # Comments around certificates may be in any encoding, which OpenSSL's binding does not take.
        text = b"\n".join(_CERTIFICATE.findall(authorities)).decode("ascii", "replace")
        try:
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError):
            raise ConfigurationError(
                f"{self._path}.clientCaFile: {self.names['clientCaFile']}: {_UNREADABLE}"
            ) from None


def certificate_problems(configuration: ExtenderConfiguration) -> Iterator[str]:
    """Yield what is wrong with the certificates of both ports, each with key, file and remedy."""
    for port, section in (("server", configuration.server.tls), ("management", configuration.management.tls)):
        if section.cert_file:
            files = CertificateFiles(port, section)
            try:
                files.build(files.read())
            except ConfigurationError as error:
                yield from error.problems


class ServerTls:
    """The certificates of one port; ``context`` is what to listen with.

    ``port`` is the section of the configuration, ``server`` or ``management``.
    """

    def __init__(self, port: str, section: TlsSection, metrics: Metrics) -> None:
        """Load the files.

        Raises:
            ConfigurationError: they cannot be used; names the key, the file and the remedy.
        """
        self._port = port
        self._section = section
        self._metrics = metrics
        self._files = CertificateFiles(port, section)
        self._problem = ""
        self._replaced_at = 0.0
        self._contents = self._files.read()
        self._current = self.context = self._files.build(self._contents)
        self.context.sni_callback = self._hand_over
        self.context.sslobject_class = _reporting(self._on_failure)
        self._note_expiry()

    async def follow(self) -> None:
        """Look at the files every ``reloadSeconds``, for ever."""
        while True:
            await asyncio.sleep(self._section.reload_seconds)
            self.check()

    def check(self) -> None:
        """Take over what the files hold now; what cannot be used leaves the last good context in place."""
        try:
            contents = self._files.read()
            if contents == self._contents:
                self._problem = ""
                return
            context = self._files.build(contents)
        except ConfigurationError as error:
            self._metrics.reloaded(self._port, "failed")
            if str(error) != self._problem:  # a rotation may be half done, or stay so: say it once
                _log.warning("certificates not replaced", extra={"port": self._port, "problem": str(error)})
            self._problem = str(error)
            return
        self._problem = ""
        self._contents, self._current, self._replaced_at = contents, context, time.time()
        self._metrics.reloaded(self._port, "ok")
        _log.info("certificates replaced", extra={"port": self._port})
        self._note_expiry()

    def _hand_over(self, handshake: ssl.SSLObject | ssl.SSLSocket, _: str | None, __: ssl.SSLContext) -> int | None:
        """Have a handshake go on with the context built last; OpenSSL calls this also where no server is named."""
        if handshake.session_reused:  # there is a session only then
            session = handshake.session
            if session is None or session.time <= self._replaced_at:
                return ssl.ALERT_DESCRIPTION_HANDSHAKE_FAILURE  # it was verified against authorities of before
        handshake.context = self._current
        return None

    def _on_failure(self, error: ssl.SSLError) -> None:
        self._metrics.closed(self._port, "handshake_failed")
        reason = error.reason or type(error).__name__
        detail = getattr(error, "verify_message", "")
        _log.warning(
            "TLS handshake failed",
            extra={"port": self._port, "reason": reason, "detail": detail, "hint": _HINTS.get(reason, "")},
        )

    def _note_expiry(self) -> None:
        """Tell when the certificates in use expire."""
        now = time.time()
        for key, contents in self._contents.items():
            if key == "keyFile":
                continue
            file = self._files.names[key]
            expiry = _first_expiry(contents)
            self._metrics.expiry(self._port, file, expiry)
            if expiry < now:
                when = datetime.fromtimestamp(expiry, UTC).isoformat()
                _log.warning("certificate has expired", extra={"port": self._port, "file": file, "expired": when})


def _flaws(contents: dict[str, bytes]) -> list[tuple[str, str]]:
    """Return what OpenSSL would only tell cryptically, by key of the configuration."""
    flaws: list[tuple[str, str]] = []
    for key in ("certFile", "clientCaFile"):
        if key in contents and not _CERTIFICATE.search(contents[key]):
            flaws.append((key, "holds no certificate in PEM; give one that begins with -----BEGIN CERTIFICATE-----"))
        elif key in contents and not _is_readable(contents[key]):
            flaws.append((key, _UNREADABLE))
    begin = _KEY.search(contents["keyFile"])
    if begin is None:
        flaws.append(("keyFile", "holds no private key in PEM; give the key of the certificate in certFile"))
    elif b"ENCRYPTED" in begin[1] or b"Proc-Type: 4,ENCRYPTED" in contents["keyFile"]:
        flaws.append(("keyFile", "is encrypted; give the key without a passphrase"))
    return flaws


def _reporting(on_failure: Callable[[ssl.SSLError], None]) -> type[ssl.SSLObject]:
    """Return a handshake that tells why it failed, to the log and to the caller.

    Event loops do neither: they drop the alert that OpenSSL has written, so that kube-scheduler would read ``EOF``.
    Asking for more input has them send it; the caller then hangs up, or the handshake times out. One that sent plain
    HTTP is hung up on.
    """

    class Handshake(ssl.SSLObject):
        _failure: ssl.SSLError | None = None

        def do_handshake(self) -> None:
            if self._failure is not None:
                raise self._failure
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLSyscallError):
                raise
            except ssl.SSLError as error:
                self._failure = error
                on_failure(error)
                if error.reason == _PLAIN:
                    raise  # who speaks no TLS reads no alert, and would wait for an answer
                raise ssl.SSLWantReadError from error

    return Handshake


# --- X.509 -----------------------------------------------------------------------------------------------------------


def _first_expiry(pem: bytes) -> float:
    """Return when the first of the certificates in ``pem`` expires, in seconds since the epoch."""
    return min(_expiry(ssl.PEM_cert_to_DER_cert(block.decode())) for block in _CERTIFICATE.findall(pem))


def _is_readable(pem: bytes) -> bool:
    try:
        _first_expiry(pem)
    except (ValueError, IndexError):
        return False
    return True


def _expiry(der: bytes) -> float:
    """Return when a certificate expires, in seconds since the epoch. Source: RFC 5280, 4.1."""
    _, certificate, _ = _element(der, 0)
    _, content, _ = _element(der, certificate)
    tag, _, end = _element(der, content)
    if tag == 0xA0:  # the version, which certificates of version 1 leave out, stands before the serial number
        _, _, end = _element(der, end)
    for _ in range(2):  # the algorithm of the signature, the issuer
        _, _, end = _element(der, end)
    _, validity, _ = _element(der, end)
    _, _, begin = _element(der, validity)
    tag, content, end = _element(der, begin)
    text = der[content:end].decode()
    form = "%y%m%d%H%M%SZ" if tag == 0x17 else "%Y%m%d%H%M%SZ"  # UTCTime before 2050, GeneralizedTime after
    return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()


def _element(der: bytes, start: int) -> tuple[int, int, int]:
    """Return the tag of the DER element at ``start``, where its content begins and where it ends."""
    length, content = der[start + 1], start + 2
    if length & 0x80:
        octets = length & 0x7F
        length = int.from_bytes(der[content : content + octets])
        content += octets
    return der[start], content, content + length
