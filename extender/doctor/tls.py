"""TLS towards an extender as kube-scheduler has it: what is verified, against whom, and which certificate is presented.

Sources: makeTransport of ``pkg/scheduler/extender.go`` and TLSConfigFor of client-go ``transport``, 1.36.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from extender.registration.entry import TlsSettings


class UnusableTls(Exception):
    """The settings cannot be used here; ``key`` is the field at fault and ``missing`` whether a file is not there."""

    def __init__(self, key: str, problem: str, *, missing: bool = False) -> None:
        super().__init__(problem)
        self.key = key
        self.missing = missing


def context_for(tls: TlsSettings, *, verifies: bool) -> ssl.SSLContext:
    """Return the context kube-scheduler would connect with; without an authority the system's roots are trusted.

    Raises UnusableTls.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # As Go: any certificate of the bundle ends a chain, key identifiers are not asked for, the common name is no name.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.hostname_checks_common_name = False
    if not verifies:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif tls.has_authority:
        authority = tls.ca_data or _read("caFile", tls.ca_file)
        try:
            context.load_verify_locations(cadata=authority.decode())
        except (ssl.SSLError, ValueError) as error:
            raise UnusableTls(
                "caFile" if not tls.ca_data else "caData", f"holds no certificate: {_text(error)}"
            ) from error
    else:
        context.load_default_certs()
    if tls.has_certificate and tls.has_key:
        certificate = tls.cert_data or _read("certFile", tls.cert_file)
        key = tls.key_data or _read("keyFile", tls.key_file)
        with tempfile.NamedTemporaryFile(suffix=".pem") as file:
            file.write(certificate + b"\n" + key)
            file.flush()
            try:
                context.load_cert_chain(file.name, password="")
            except (ssl.SSLError, ValueError) as error:
                raise UnusableTls("certFile", f"and its key do not go together: {_text(error)}") from error
    return context


def _read(key: str, file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UnusableTls(key, f"{file}: cannot be read on this machine: {error.strerror}", missing=True) from error


def _text(error: Exception) -> str:
    return (error.reason if isinstance(error, ssl.SSLError) else str(error)) or type(error).__name__
