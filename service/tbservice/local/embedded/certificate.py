"""The certificate with which SeaweedFS's components authenticate each other.

In a separate module, because `cryptography` is slow to import.
"""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from tbservice.local.embedded.ports import LOOPBACK

VALID_FROM = datetime(2000, 1, 1, tzinfo=UTC)
VALID_TO = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
"""No well-defined expiration date (RFC 5280, 4.1.2.5).

Who reads the file can read the data too, so an expiry would protect nothing and break a start.
"""


def create_certificate() -> str:
    """Return a self-signed certificate and its private key, both as PEM in one string.

    It is the certificate of authority, server and client: a peer that trusts only this certificate
    accepts only peers that have its key.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tbhub")])

    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(VALID_FROM)
        .not_valid_after(VALID_TO)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )

    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return (certificate.public_bytes(Encoding.PEM) + private).decode()
