"""A real Prometheus, from Debian's package: unpacked for the user alone, so that no service starts.

python -m tests.support.prometheus install
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.support.live import free_ports

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "topmast-prometheus"
PATIENCE_S = 60.0


def found(name: str) -> str | None:
    """Where the program ``prometheus`` or ``promtool`` is."""
    return shutil.which(name) or shutil.which(name, path=str(CACHE / "usr/bin"))


def install() -> int:
    """Fetch and unpack the package, unless the programs are there."""
    if found("prometheus") and found("promtool"):
        return 0
    with tempfile.TemporaryDirectory() as folder:
        fetched = subprocess.run(["apt-get", "-qq", "download", "prometheus"], cwd=folder)
        packages = sorted(Path(folder).glob("prometheus_*.deb"))
        if fetched.returncode or not packages:
            print("error: the package prometheus cannot be fetched", file=sys.stderr)
            return 1
        CACHE.mkdir(parents=True, exist_ok=True)
        return subprocess.run(["dpkg-deb", "-x", packages[0], CACHE]).returncode


class Prometheus:
    """One that runs; asked over its interface."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """What a query finds now; raises AssertionError with the words of Prometheus."""
        answer = httpx.get(f"{self.url}/api/v1/query", params={"query": expression}, timeout=30)
        document = answer.json()
        assert document["status"] == "success", f"{expression}: {document.get('error')}"
        result: list[dict[str, Any]] = document["data"]["result"]
        return result


@contextmanager
def running(folder: Path, configuration: str) -> Iterator[Prometheus]:
    """A Prometheus on a loopback port, with its data in ``folder``."""
    program = found("prometheus")
    assert program is not None
    file = folder / "prometheus.yml"
    file.write_text(configuration, "utf-8")
    (port,) = free_ports(1)
    command = [
        program, f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        until_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < until_s:
            assert process.poll() is None, (folder / "prometheus.log").read_text("utf-8")[-2_000:]
            with suppress(httpx.HTTPError):
                if httpx.get(f"{url}/-/ready", timeout=5).status_code == 200:
                    break
            time.sleep(0.05)
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


if __name__ == "__main__":
    sys.exit(install() if sys.argv[1:] == ["install"] else 2)
