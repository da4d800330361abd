"""A real server of Azure's protocol on this machine (Azurite), and what a process needs to find it.

python -m tests.support.azurite install     # from npm, into the user's cache
"""

import base64
import hashlib
import hmac
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path
from unittest.mock import patch

import httpx

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "topmast-azurite"
PACKAGE = "azurite@3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Of every Azurite, as its manual says: nothing that is to be kept secret."""
VERSION = "2021-08-06"


def program() -> str | None:
    """The program, where there is one."""
    return shutil.which("azurite-blob", path=f"{CACHE}/node_modules/.bin:{os.environ['PATH']}")


def missing() -> str:
    """Why there is none; empty if there is."""
    return "" if program() else "no azurite-blob (run `make azure-tools`)"


def install() -> None:
    """Install what is missing, without the scripts of packages."""
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund", "--silent")
    if missing():
        subprocess.run(["npm", "install", *quiet, "--prefix", str(CACHE), PACKAGE], check=True)


def make_container(url: str, name: str) -> str:
    """Make an empty container; returns its URL as Topmast has it."""
    date = formatdate(usegmt=True)
    said = (
        f"x-ms-date:{date}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    )
    signed = hmac.new(base64.b64decode(KEY), f"PUT{12 * chr(10)}{said}".encode(), hashlib.sha256)
    proof = f"SharedKey {ACCOUNT}:{base64.b64encode(signed.digest()).decode()}"
    headers = {"x-ms-date": date, "x-ms-version": VERSION, "Authorization": proof}
    made = httpx.put(f"{url}/{ACCOUNT}/{name}", params={"restype": "container"}, headers=headers)
    assert made.status_code == 201, made.text
    return f"az://{name}"


@contextmanager
def azurite() -> Iterator[str]:
    """A server until the end of the block, which this process finds as its own; its URL."""
    found = program()
    assert found is not None
    words = "--inMemoryPersistence --silent --skipApiVersionCheck --disableTelemetry --blobPort 0"
    server = subprocess.Popen([found, *words.split()], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        lines = (line.strip() for line in server.stdout)
        url = next(line for line in lines if "successfully" in line).rpartition(" ")[2]
        ours = {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": url,
        }  # fmt: skip
        with patch.dict(os.environ, ours):
            yield url
    finally:
        server.terminate()
        server.wait()


def main(arguments: Sequence[str]) -> int:
    """``install``."""
    if list(arguments) != ["install"]:
        print(__doc__, file=sys.stderr)
        return 2
    install()
    if reason := missing():
        print(reason, file=sys.stderr)
    return 1 if missing() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
