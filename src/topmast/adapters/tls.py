"""The certificate of a server, read again when its files change."""

from __future__ import annotations

import ssl
import time
from functools import partial
from pathlib import Path

import structlog

from topmast.adapters.secretfile import require_private
from topmast.model.errors import Faults, InvalidInput

LOOK_S = 1.0
"""How often the files are looked at."""

log = structlog.get_logger(__name__)


class Certificate:
    """A certificate and its key in files that another program renews."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        faults = Faults()
        for file, field in ((certificate, "--tls-cert"), (key, "--tls-key")):
            faults.of(partial(_require_readable, file, field))
        faults.refuse()
        self._seen = self._stamp()
        self._looked_s = time.monotonic()
        try:
            self._context = self._read()
        except (OSError, ValueError) as error:
            raise InvalidInput(
                f"{certificate} and {key} are no certificate with its key: {error}",
                field="--tls-cert", remedy="name files in PEM form that belong together",
            ) from None  # fmt: skip
        require_private(key, "--tls-key")

    def context(self) -> ssl.SSLContext:
        """What new connections are greeted with. Files that cannot be read change nothing."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            stamp = self._stamp()
            if stamp != self._seen:
                self._renew(stamp)
        return self._context

    def _renew(self, stamp: list[tuple[int, int, int]]) -> None:
        try:
            self._context = self._read()
        except (OSError, ValueError) as error:
            # Half of the pair may be there: it is looked at again.
            log.error("the new certificate cannot be used", why=str(error))
            return
        self._seen = stamp
        try:
            require_private(self._files[1], "--tls-key")
        except (OSError, InvalidInput) as error:
            # The next start will refuse it; until then one that expires would be worse.
            log.error("the key of the new certificate is not private", why=str(error))
        log.info("a new certificate is in use", file=str(self._files[0]))

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(*self._files)
        return context

    def _stamp(self) -> list[tuple[int, int, int]]:
        found = []
        for file in self._files:
            try:
                status = file.stat()
            except OSError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return found


def _require_readable(file: Path, field: str) -> None:
    """Raises InvalidInput, which says more than the library: it names no file."""
    try:
        file.open("rb").close()
    except OSError as error:
        raise InvalidInput(
            f"{file} cannot be read: {error.strerror}",
            field=field,
            remedy="name a file in PEM form",
        ) from None
