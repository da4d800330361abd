"""The listener's own certificate: runners trust exactly this one, by the ticket."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from topmast.adapters.engines.local import files
from topmast.model.errors import Unavailable

YEARS = 20
NAME = "topmast"


class Certificate:
    """Made at the first use, and kept: runners of before a restart have it in their tickets."""

    def __init__(self, folder: Path, today: datetime.datetime) -> None:
        self._file = folder / "listener.pem"
        if not self._file.exists():
            files.write_file(self._file, _make(today))
        try:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.minimum_version = ssl.TLSVersion.TLSv1_2
            self.context.load_cert_chain(self._file)
            text = self._file.read_text()
        except (OSError, ValueError) as error:
            raise Unavailable(f"{self._file} cannot be used: {error}; restore it") from None
        self.pem = text[text.index("-----BEGIN CERTIFICATE") :]


def _make(today: datetime.datetime) -> bytes:
    """A key, and a certificate of it by itself. Clocks of hosts may be a day behind ours."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - datetime.timedelta(days=2))
        .not_valid_after(today + datetime.timedelta(days=366 * YEARS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
