"""A certificate authority for tests."""

from __future__ import annotations

import ipaddress
import ssl
import tempfile
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


class Authority:
    """Issues certificates; ``pem`` is its own certificate."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        self.pem = self._sign(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=None))

    def issue(
        self, name: str, *, is_local: bool = True, dns: str = "", uri: str = "", ends: datetime | None = None
    ) -> tuple[bytes, bytes]:
        """Return a certificate and its key in PEM, for 127.0.0.1 too if ``is_local``; left out, ``dns`` is ``name``."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))] if is_local else []
        location = [x509.UniformResourceIdentifier(uri)] if uri else []
        names = x509.SubjectAlternativeName([x509.DNSName(dns or name), *address, *location])
        pem = self._sign(_name(name), key.public_key(), names, ends)
        return pem, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def server_context(
        self, name: str = "localhost", *, clients: Authority | None = None, is_local: bool = True
    ) -> ssl.SSLContext:
        """Return the TLS context of a server, which asks for certificates of ``clients`` if given."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"".join(self.issue(name, is_local=is_local)))
            file.flush()
            context.load_cert_chain(file.name)
        if clients is not None:
            context.load_verify_locations(cadata=clients.pem.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        extension: x509.ExtensionType,
        ends: datetime | None = None,
    ) -> bytes:
        now = datetime.now(UTC)
        begins, ends = now - timedelta(hours=1), ends or now + timedelta(hours=1)
        builder = x509.CertificateBuilder(self._name, subject, key, x509.random_serial_number())
        builder = builder.not_valid_before(min(begins, ends - timedelta(hours=1))).not_valid_after(ends)
        certificate = builder.add_extension(extension, critical=False).sign(self._key, hashes.SHA256())
        return certificate.public_bytes(Encoding.PEM)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
