"""What every benchmark needs: a server of its own, jobs to submit, and the machine it ran on."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import topmast
from topmast.adapters.kernels import load_kernels
from topmast.bench.servers import peak_rss_bytes
from topmast.model.errors import Unavailable

START_PATIENCE_S = 60.0
FLEET = {
    "regions": {
        region: {
            "clusters": {
                f"{region}-1": {"hosts": [{"count": 2, "gpu": model, "gpus": 8}]},
            }
        }
        for region, model in (("east", "H100"), ("west", "A100"), ("north", "H100"))
    },
    "tenants": {f"team{i}": {"quota": {"H100": 16, "A100": 8}} for i in range(4)},
}
BANDS = ("critical", "high", "normal", "low", "opportunistic")


@contextlib.contextmanager
def folder(state: Path | None) -> Iterator[Path]:
    """The state folder of a benchmark: as given, or one that is removed afterwards.

    A new one is for its owner alone, as a server wants it.
    """
    if state is not None:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield state
    else:
        with tempfile.TemporaryDirectory(prefix="topmast-bench-") as made:
            yield Path(made)


class Server:
    """A `topmast up` of its own process."""

    def __init__(self, state: Path, *options: str) -> None:
        load_kernels()  # a server that is still compiling decides more slowly
        fleet = state / "fleet.yaml"
        fleet.write_text(json.dumps(FLEET), encoding="utf-8")
        self.state = state
        self.spawned_s = time.time()
        command = [sys.executable, "-m", "topmast.app", "up", "--json", "--port", "0"]
        command += ["--fleet", str(fleet), "--state", str(state), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise Unavailable("the server under test did not start; see its log")
        self.ready_s = time.time()
        self.url: str = json.loads(line)["url"]

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL if that does not help."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.kill()

    def peak_rss_bytes(self) -> int:
        """The most memory that the server has held (VmHWM)."""
        return peak_rss_bytes(self.process.pid)


def job(rng: random.Random, number: int) -> dict[str, Any]:
    """One generated job: 160 shapes over four tenants and five bands."""
    return {
        "name": f"job-{number}",
        "tenant": f"team{rng.randrange(4)}",
        "priority": BANDS[rng.randrange(5)],
        "num_nodes": rng.choice((1, 2)),
        "resources": {"accelerators": f"H100:{rng.choice((1, 2, 4, 8))}"},
        "envs": {"SEED": str(rng.randrange(1_000_000))},
        "run": "python train.py --epochs 10\n",
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "python": platform.python_version(),
        "version": topmast.__version__,
    }


def write(folder: Path, name: str, document: dict[str, Any]) -> None:
    """Keep figures as ``name``.json."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, indent=1) + "\n"
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
