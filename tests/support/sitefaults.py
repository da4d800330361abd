"""Clusters with something wrong, behind one real server: what people are told, and what runs then.

Each fault has a cluster of its own, with a GPU model of its own, so that a job for it can go nowhere
else. A cluster that cannot be trusted is closed, with a reason and a remedy; when the site is put
right it is open again, and the job runs, once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.live import live, until_state
from topmast import Client
from topmast.adapters.kernels import load_kernels
from topmast.model.views import ClusterView

PATIENCE_S = 150.0
"""A cluster that refuses is tried again after a minute."""
HUNG_S = 40.0
"""Within which one that is hung is closed: it is distrusted after a quarter of a minute."""


@dataclass
class Fault:
    """A cluster with something wrong, and what is said of it."""

    story: str
    model: str
    """Of its GPUs; its name in lower case is the cluster's."""
    options: Mapping[str, str] = field(default_factory=dict)
    hosts: Sequence[str] = ()
    """As the site calls them; none: that of the others."""
    image: str = ""
    closed: str = ""
    """A pattern of why the cluster is closed; empty: it need not be."""
    told: str = ""
    """A pattern of what people are told of its job."""
    mend: Callable[[], object] | None = None
    """What the site's people do; None: they cannot."""

    @property
    def cluster(self) -> str:
        """The name of the cluster."""
        return self.model.lower()


@dataclass
class Site:
    """One kind of engine, and its faults."""

    engine: str
    options: Mapping[str, str]
    """Of all its clusters."""
    host: str
    prefixed: bool
    """Whether hosts of different clusters are the same, told apart by a prefix."""
    faults: Sequence[Fault]

    def fleet(self) -> str:
        """The fleet file, which is JSON too."""
        clusters = {}
        for fault in self.faults:
            prefix = f"{fault.cluster}-" if self.prefixed else ""
            options = {**self.options, **fault.options}
            if self.prefixed:
                options["host_prefix"] = prefix
            names = [f"{prefix}{host}" for host in fault.hosts or (self.host,)]
            clusters[fault.cluster] = {
                "engine": self.engine, "options": options,
                "hosts": [{"names": names, "gpu": fault.model, "gpus": 8}],
                **({"image": fault.image} if fault.image else {}),
            }  # fmt: skip
        return json.dumps({"regions": {"site": {"clusters": clusters}}})


def told_of(client: Client, job: str) -> str:
    """Everything that people are told of a job."""
    story = client.story(job)
    said = [client.explain(job).summary, story.job.cause, *(entry.text for entry in story.history)]
    return "\n".join(said)


def cluster(client: Client, fault: Fault) -> ClusterView:
    """The cluster of a fault."""
    (found,) = [one for one in client.clusters() if one.name == fault.cluster]
    return found


def until_told(
    pattern: str, ask: Callable[[], str], story: str, patience_s: float = PATIENCE_S
) -> None:
    """Wait until a text has a pattern."""
    deadline_s = time.monotonic() + patience_s
    while not re.search(pattern, said := ask(), re.DOTALL):
        assert time.monotonic() < deadline_s, f"{story}: {pattern!r} is not in {said!r}"
        time.sleep(0.2)


def play(site: Site, folder: Path, hang: Callable[[], Callable[[], object]] | None = None) -> None:
    """Bring all faults before a server, see what is told, mend what can be, and see the jobs run.

    ``hang`` makes the control plane stand still, and returns what ends that.
    """
    load_kernels()  # the server is waited for, and compiling takes longer than that
    with live(folder, site.fleet()) as (_, client):
        jobs = {
            fault.model: client.submit(
                {"name": fault.model, "run": "echo ran",
                 "resources": {"accelerators": {fault.model: 1}}}
            ).id
            for fault in site.faults
        }  # fmt: skip
        for fault in site.faults:
            if fault.closed:
                until_told(fault.closed, lambda f=fault: cluster(client, f).closed, fault.story)  # type: ignore[misc]
            if fault.told:
                until_told(
                    fault.told, lambda f=fault: told_of(client, jobs[f.model]), fault.story  # type: ignore[misc]
                )  # fmt: skip
        for fault in site.faults:
            assert "ran" not in said(client, jobs[fault.model]), fault.story
            if fault.mend:
                fault.mend()
        for fault in site.faults:
            if fault.mend:
                until_state(client, jobs[fault.model], "SUCCEEDED", patience_s=PATIENCE_S)
                assert said(client, jobs[fault.model]) == "ran\n", fault.story
                assert cluster(client, fault).state == "open", fault.story
            else:
                assert client.job(jobs[fault.model]).state in ("PENDING", "RECOVERING", "STARTING")
        if hang is not None:
            _hangs(client, next(fault for fault in site.faults if fault.mend), hang)


def _hangs(client: Client, fault: Fault, hang: Callable[[], Callable[[], object]]) -> None:
    """A job runs on while nothing answers, and ends; new work waits until something does."""
    body = {"run": "sleep 5; echo ran", "resources": {"accelerators": {fault.model: 1}}}
    first = client.submit(body).id
    until_state(client, first, "RUNNING", patience_s=PATIENCE_S)
    end = hang()
    try:
        until_told(
            "gives no complete answer", lambda: cluster(client, fault).closed, "it hangs", HUNG_S
        )
        until_state(client, first, "SUCCEEDED", patience_s=PATIENCE_S)
        second = client.submit(body).id
    finally:
        end()
    until_state(client, second, "SUCCEEDED", patience_s=PATIENCE_S)
    assert [said(client, job) for job in (first, second)] == ["ran\n", "ran\n"]
    assert cluster(client, fault).state == "open"


def said(client: Client, job: str) -> str:
    """The output of all attempts of a job's first task."""
    attempts = range(1, client.job(job).attempts + 1)
    return "".join(c.text for n in attempts for c in client.logs(job, 0, attempt=n))
