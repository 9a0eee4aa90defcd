"""The certificate by which the service and its own Triton server know each other, drawn anew at each start.

Triton changes its models for whoever reaches its port, and loads code that a request carries. On loopback that would be
every user of the machine; with mutual TLS it is who may read this key.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from revelator.channels import Tls

VALID = timedelta(days=3650)  # longer than a service runs


def draw_certificate(folder: Path, address: str) -> Tls:
    """Writes a key and a certificate for an IP address, which is its own authority, into a folder for this user alone.
    Both sides show it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "revelator")])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + VALID)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))]), critical=False)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)
    secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    pem = serialization.Encoding.PEM
    (folder / "key.pem").write_bytes(key.private_bytes(pem, *secret))
    (folder / "cert.pem").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(pem))
    return Tls(folder / "cert.pem", folder / "cert.pem", folder / "key.pem")
