"""A launcher over the lab, with a stand-in for the runner."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.kubelab.image import NAME
from tests.support.kubelab.lab import Lab
from tests.support.kubelab.programs import until
from topmast.adapters.engines.far.kubernetes.launcher import KubernetesLauncher
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
from topmast.adapters.engines.far.launcher import Listed, Part, State, Ticket
from topmast.model.fleet import ClusterSpec, HostSpec

SOON_S = 60.0
RUNNER = """
import json, os, signal, sys, time

ticket = json.load(open(sys.argv[1]))
def leave(number, frame):
    print("SIGTERM", flush=True)
    time.sleep(2.0)
    sys.exit(7)
signal.signal(signal.SIGTERM, leave)
open("/tmp/scratch", "w").close()
print("runs", ticket["part"], sys.argv[2], os.getuid(), flush=True)
time.sleep(ticket["lease_s"])
"""
"""Runs for as long as the lease, and takes two seconds to leave when it is asked to."""


class Launched:
    """Everything that a test of the launcher needs."""

    def __init__(self, lab: Lab, folder: Path, **options: Any) -> None:
        self.lab = lab
        self.fleet = secrets.token_hex(4)
        self._runner = folder / "runner.py"
        self._runner.write_text(RUNNER)
        self._numbers = itertools.count(1)
        given = {"kubeconfig": str(lab.kubeconfig), "timeout_s": 10.0, **options}
        self.launcher = self.other(**given)

    def other(self, **options: Any) -> KubernetesLauncher:
        """Another launcher of the same fleet."""
        hosts = tuple(HostSpec(f"h{index}", "H100", 8) for index in range(2))
        cluster = ClusterSpec("lab-1", hosts, engine="kubernetes")
        return KubernetesLauncher(
            cluster, self.fleet, KubernetesOptions(**options), runner=self._runner
        )

    def part(self, host: str = "h0", lasts_s: float = 600.0, **fields: Any) -> Part:
        """A part with a name of its own."""
        name = fields.pop("name", f"tm-{self.fleet}-j{next(self._numbers)}-1-0")
        given: dict[str, Any] = {
            "hosts": (host,), "tasks": 1, "gpus": 1, "model": "H100", "cpus": 0.1,
            "memory_bytes": 64 << 20, "limit_s": None, "tenant": "vision", "image": NAME,
            "ticket": Ticket("https://10.0.0.1:1", "", "s3cret-token", name, lasts_s, 5.0),
        }  # fmt: skip
        return Part(name, **{**given, **fields})

    def seen(self, name: str) -> Listed | None:
        """The part as it is listed now."""
        found = [one for one in self.launcher.list() if one.name == name]
        assert len(found) <= 1
        return found[0] if found else None

    def until(self, name: str, state: State, within_s: float = SOON_S) -> Listed:
        """Wait for a state."""
        self.wait(lambda: (one := self.seen(name)) is not None and one.state is state,
                  f"{name} to be {state}", within_s)  # fmt: skip
        found = self.seen(name)
        assert found is not None
        return found

    def wait(self, ask: Callable[[], bool], what: str, within_s: float = SOON_S) -> None:
        """Wait until something is so."""
        try:
            until(ask, within_s, what)
        except TimeoutError as error:
            error.add_note(f"listed: {self.launcher.list()}")
            raise

    def started(self, **fields: Any) -> Listed:
        """A part that runs, as its kubelet says."""
        part = self.part(**fields)
        self.launcher.submit(part)
        found: list[Listed] = []

        def runs() -> bool:
            one = self.seen(part.name)
            found[:] = [one] if one else []
            runs = one is not None and one.state is State.RUNNING and not one.why
            return runs and bool(self.runners(found[0]))

        self.wait(runs, f"{part.name} to run")
        return found[0]

    def runners(self, one: Listed) -> list[int]:
        """The processes of a part, but that of its sandbox, as the machine itself says."""
        assert self.lab.nodes is not None
        _, _, uid = one.id.partition("/")
        found = [pid for node in self.lab.nodes.all for pid in node.processes(uid)]
        return [pid for pid in found if b"/var/run/topmast/runner.py" in _words(pid)]

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *error: object) -> None:
        # Not waited for: a kubelet takes up to a minute to let go of what never started.
        for one in self.launcher.list():
            self.launcher.cancel(one, 1.0)
            self.launcher.forget(one)
        self.launcher.close()


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []
