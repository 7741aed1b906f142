"""A forwarder that speaks TLS, and whose connections break after the server has answered, as a bad link breaks them."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from milepost_testkit.proxies.recording_proxy import RecordingProxy

_DAMAGED_RECORD = b"\x17\x03\x03\x00\x20" + bytes(32)
"""One of TLS that says how long it is, and does not decrypt."""


class TlsProxy(RecordingProxy):
    """As its base, over TLS: where that resets a connection, what comes of the answer here cannot be decrypted.

    Attributes:
        certificate: file of the one that clients have to trust.
    """

    def __init__(self, upstream_port: int, folder: Path) -> None:
        super().__init__(upstream_port)
        self.certificate = folder / "certificate.pem"
        self.certificate.write_bytes(_made_certificate())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.endpoint_url = self.endpoint_url.replace("http:", "https:")

    def _handler(self, upstream_port: int) -> type[BaseHTTPRequestHandler]:
        class Handler(super()._handler(upstream_port)):  # type: ignore[misc]
            def _reset(self) -> None:
                os.write(self.connection.fileno(), _DAMAGED_RECORD)
                self.close_connection = True

        return Handler


def _made_certificate() -> bytes:
    """Return a key, and the certificate that it signed for itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a proxy of tests")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
