"""An authority of the lab's own, and what it signs."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_PEM = serialization.Encoding.PEM


class Authority:
    """Signs certificates into one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("lab", ())
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        self.path = folder / "ca.crt"
        self.path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM))

    def key(self, name: str) -> Path:
        """A private key alone, as service accounts are signed with."""
        return _written(self._folder / f"{name}.key", ec.generate_private_key(ec.SECP256R1()))

    def pair(
        self,
        name: str,
        groups: tuple[str, ...] = (),
        addresses: tuple[str, ...] = (),
        lives: timedelta = timedelta(days=2),
    ) -> tuple[Path, Path]:
        """Certificate and key: of a user in ``groups``, or of a server at ``addresses``."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name, groups), self._name, key.public_key(), lives)
        if addresses:
            ips = [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
            names = x509.SubjectAlternativeName([*ips, x509.DNSName("localhost")])
            builder = builder.add_extension(names, False)
        usage = ExtendedKeyUsageOID.SERVER_AUTH if addresses else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), False)
        plain = name.replace(":", "-")
        path = self._folder / f"{plain}.crt"
        path.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(_PEM))
        return path, _written(self._folder / f"{plain}.key", key)


def _written(path: Path, key: ec.EllipticCurvePrivateKey) -> Path:
    path.touch(mode=0o600)
    kind = serialization.PrivateFormat.TraditionalOpenSSL
    path.write_bytes(key.private_bytes(_PEM, kind, serialization.NoEncryption()))
    return path


def _name(name: str, groups: tuple[str, ...]) -> x509.Name:
    return x509.Name(
        [
            *(x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    lives: timedelta = timedelta(days=2),
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + lives)
    )
