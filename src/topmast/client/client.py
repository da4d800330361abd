"""`Client`: a method for each route of the REST interface, typed with what people are shown."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Self

import httpx
from msgspec import Struct

from topmast.adapters.backoff import Backoff
from topmast.client.accounts import AccountsCalls
from topmast.client.address import find_server, most_age_s_of
from topmast.client.credentials import token_for
from topmast.client.documents import Job, document_of
from topmast.client.events import events
from topmast.client.execs import ExecCalls
from topmast.client.hosts import HostsCalls
from topmast.client.identity import new_key, this_user
from topmast.client.logs import AllLogsReader, LogChunk, LogReader
from topmast.client.profile import ProfileCalls
from topmast.client.sweeps import SweepsCalls
from topmast.client.transport import Transport, path_of, patiently, why
from topmast.client.verbs import VerbsCalls
from topmast.client.webhooks import WebhooksCalls
from topmast.client.whatif import WhatIfCalls
from topmast.client.workdir import snapshot
from topmast.model.act_views import JobFileView
from topmast.model.errors import TopmastError
from topmast.model.plan_views import CapacityPlanView, DataPlanView
from topmast.model.states import TERMINAL
from topmast.model.views import (
    BulkReceipt,
    ClusterView,
    DatasetView,
    DrainView,
    EventView,
    Explanation,
    GpuView,
    Health,
    HostStory,
    HostView,
    JobPage,
    JobStory,
    JobView,
    Receipt,
    RegionView,
    TenantView,
    UsageRow,
)

PAGE_JOBS = 1000
MANY_JOBS = 50
PATIENCE_S = 30.0
"""How long a call that waits puts up with a server that has gone away, to start again perhaps."""
FIRST_LOOK_S = 0.1
LONGEST_LOOK_S = 2.0


class WaitTimeout(TopmastError):
    """Jobs that had not ended when the time to wait was over."""


class UsageReport(Struct, frozen=True):
    """GPU-hours over a period, by tenant, user, GPU model or label."""

    usage: tuple[UsageRow, ...]
    since_s: float
    until_s: float
    by: str


class Client(
    AccountsCalls,
    VerbsCalls,
    ExecCalls,
    HostsCalls,
    ProfileCalls,
    SweepsCalls,
    WebhooksCalls,
    WhatIfCalls,
):
    """Speaks to a Topmast server.

    The server is ``server``, or the one that runs on the folder ``state``, or ``$TOPMAST_SERVER``,
    or the one on the default state folder. It is shown the token of ``$TOPMAST_TOKEN`` or of
    `topmast login`. Jobs are submitted for ``user``, by default the one of the token, or of the
    process. Every failure is a `TopmastError`.
    """

    def __init__(
        self,
        server: str | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        timeout_s: float = 30.0,
        user: str | None = None,
        transport: httpx.BaseTransport | None = None,
        most_age_s: float | None = None,
        on_pause: Callable[[float, str], object] = lambda wait_s, why: None,
    ) -> None:
        """``timeout_s``: so long a request may take, one about many jobs ten times as long.

        ``on_pause``: called with the seconds and the cause before it waits, as a limit asks it to.

        ``most_age_s``: a standby may answer what only reads, if it is no older than this.

        By default that of ``$TOPMAST_MOST_AGE_S``, or 0: the leader alone answers. It does not say
        yet what was done a moment ago.
        """
        self._user = user
        self._transport = Transport(
            lambda: find_server(server, state), timeout_s, transport, most_age_s_of(most_age_s),
            on_pause,
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._transport.close()

    @property
    def url(self) -> str:
        """Where the server is."""
        return self._transport.url

    @property
    def age_s(self) -> float | None:
        """How many seconds old the last answer was, if a standby gave it; else None."""
        return self._transport.age_s

    @property
    def asked_again(self) -> tuple[str, ...]:
        """What servers said before others answered: how far an act came before a stop, say."""
        return tuple(self._transport.asked_again)

    @property
    def user(self) -> str:
        """The user that jobs are submitted for; empty: the one that the token proves."""
        if self._user is not None:
            return self._user
        return "" if token_for(self.url) else this_user()

    @property
    def _me(self) -> dict[str, str]:
        return {"user": self.user}

    def health(self) -> Health:
        """Whether the server works, and on what."""
        return self._transport.get(Health, "/health")

    # ---------------------------------------------------------------------------------- submitting

    def submit(
        self, job: Job, *, workdir: str | os.PathLike[str] | None = None, key: str | None = None
    ) -> Receipt:
        """Submit ``job``; when this returns, it is never lost.

        ``workdir`` is a folder to snapshot, or the digest of a snapshot; by default what the job
        says. Calls with the same ``key`` submit one job, however many they are.
        """
        document, folder = document_of(job)
        named = os.fspath(workdir) if workdir is not None else None
        if named is not None and not named.startswith("sha256:"):
            folder, named = Path(named), None
        if named is None and folder is not None:
            named = self.upload_workdir(folder)
        body = {"job": document, "user": self.user, "workdir": named or ""}
        many = "sweep" in document
        return self._transport.post(Receipt, "/jobs", body, key=key or new_key(), many=many)

    def submit_many(self, jobs: Iterable[Job], *, key: str | None = None) -> BulkReceipt:
        """Submit all of ``jobs``, or none if one of them cannot be accepted.

        ``depends_on`` of a job may have the names of jobs that come before it.
        """
        documents = []
        snapshots: dict[Path, str] = {}
        called = Counter[str]()
        for job in jobs:
            document, folder = document_of(job, called)
            called[str(document.get("name", ""))] += 1
            if folder is not None:
                if folder not in snapshots:
                    snapshots[folder] = self.upload_workdir(folder)
                document["workdir"] = snapshots[folder]
            documents.append(document)
        body = {"jobs": documents, "user": self.user}
        key = key or new_key()
        return self._transport.post(BulkReceipt, "/jobs/bulk", body, key=key, many=True)

    def dry_run(self, job: Job, *, workdir: str | os.PathLike[str] | None = None) -> Explanation:
        """Where ``job`` would run if it were submitted now, or why it would wait.

        Raises whatever `submit` would raise, also about the folder, of which nothing is sent.
        """
        document, folder = document_of(job)
        named = os.fspath(workdir) if workdir is not None else None
        if named is not None:
            folder = None if named.startswith("sha256:") else Path(named)
        if folder is not None:
            snapshot(folder)
        body = {"job": document, "user": self.user}
        return self._transport.post(Explanation, "/jobs/dry-run", body)

    def upload_workdir(self, folder: str | os.PathLike[str]) -> str:
        """Snapshot ``folder``, upload it unless the server has it, and return its digest."""
        packed = snapshot(Path(folder))
        path = f"/workdirs/{packed.digest}"
        known = self._transport.send("HEAD", path, missing_ok=True)
        if known.status_code == 404:
            headers = {"Content-Type": "application/gzip"}
            self._transport.send("PUT", path, content=packed.content, headers=headers)
        return packed.digest

    # ---------------------------------------------------------------------------------------- jobs

    def job_page(
        self,
        *,
        states: str | Iterable[str] = (),
        tenant: str | None = None,
        order: str | None = None,
        limit: int = PAGE_JOBS,
        cursor: str | None = None,
        selector: str | None = None,
        fold: bool = False,
    ) -> JobPage:
        """One page of jobs, and how many there are in each state.

        ``states`` are names of states, or ``active`` for all that have not ended; ``selector`` is a
        text such as ``user=ada,name=train-*``. ``order``
        ``queue``: first the jobs that hold GPUs, then those that wait, by rank. Otherwise the
        newest come first. With ``fold`` the first page has the sweeps in place of their jobs.
        """
        wanted = states if isinstance(states, str) else ",".join(states)
        return self._transport.get(
            JobPage, "/jobs",
            state=wanted or None, tenant=tenant, order=order, limit=limit, cursor=cursor,
            selector=selector, fold="true" if fold else None,
        )  # fmt: skip

    def jobs(
        self,
        *,
        states: str | Iterable[str] = (),
        tenant: str | None = None,
        order: str | None = None,
        selector: str | None = None,
    ) -> Iterator[JobView]:
        """All jobs, as `job_page` selects them, fetched page by page.

        By rank, a job that changes its place meanwhile may be missed or come twice; newest first,
        none is.
        """
        cursor = None
        wanted = states if isinstance(states, str) else tuple(states)
        while True:
            page = self.job_page(
                states=wanted, tenant=tenant, order=order, cursor=cursor, selector=selector
            )
            yield from page.jobs
            cursor = page.next_cursor
            if cursor is None:
                return

    def job(self, job: str) -> JobView:
        """One job as it stands."""
        return self._transport.get(JobView, path_of("jobs", job))

    def story(self, job: str) -> JobStory:
        """One job with its history and its attempts."""
        return self._transport.get(JobStory, path_of("jobs", job, "story"))

    def explain(self, job: str) -> Explanation:
        """Why a job stands where it stands: a verdict for every region and cluster."""
        return self._transport.get(Explanation, path_of("jobs", job, "explain"))

    def job_file(self, job: str) -> JobFileView:
        """The job file of a job, with what was changed since; it can be submitted again."""
        return self._transport.get(JobFileView, path_of("jobs", job, "spec"))

    def cancel(self, job: str, *, reason: str = "", dry_run: bool = False) -> JobView:
        """Cancel a job; what runs gets its grace period. Repeating it changes nothing."""
        body = {**self._me, **why(reason, dry_run)}
        return self._transport.post(JobView, path_of("jobs", job, "cancel"), body)

    def wait(
        self,
        jobs: str | Iterable[str],
        *,
        timeout_s: float | None = None,
        on_change: Callable[[JobView], None] | None = None,
    ) -> list[JobView]:
        """Wait until every one of ``jobs`` has ended; their last views, in the order given.

        ``on_change`` is called with each job at first, and whenever its view has changed.
        """
        ids = [jobs] if isinstance(jobs, str) else list(jobs)
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        views: dict[str, JobView] = {}
        backoff = Backoff(FIRST_LOOK_S, LONGEST_LOOK_S, 1.5)
        while True:
            open_ids = [job for job in ids if job not in views or not _ended(views[job])]
            changed = False
            for job, view in self._look_at(list(dict.fromkeys(open_ids)), first=not views):
                if view != views.get(job):
                    views[job], changed = view, True
                    if on_change is not None:
                        on_change(view)
            left = [job for job in ids if not _ended(views[job])]
            if not left:
                return [views[job] for job in ids]
            if changed:
                backoff.reset()
            pause_s = backoff.take()
            if deadline_s is not None and time.monotonic() + pause_s > deadline_s:
                pause_s = deadline_s - time.monotonic()
                if pause_s <= 0:
                    raise WaitTimeout(_unfinished(left, views, timeout_s or 0.0))
            time.sleep(pause_s)

    def _look_at(self, jobs: list[str], first: bool) -> Iterator[tuple[str, JobView]]:
        """Jobs as they stand; a server that was there before has some time to come back."""
        patience_s = 0.0 if first else PATIENCE_S
        listed: dict[str, JobView] = {}
        if len(jobs) > MANY_JOBS:
            # Most of many jobs are still open, and a page tells of a thousand of them.
            everything = patiently(lambda: list(self.jobs(states="active")), patience_s)
            listed = {view.id: view for view in everything}
        for job in jobs:
            view = listed.get(job) or patiently(partial(self.job, job), patience_s)
            yield job, view

    def logs(
        self,
        job: str,
        task: int | None = 0,
        *,
        attempt: int | None = None,
        follow: bool = False,
        on_wait: Callable[[JobView], None] = lambda job: None,
    ) -> Iterator[LogChunk]:
        """What a task of a job writes, in its latest attempt (or in ``attempt``).

        ``task`` None is the task that made the job fail, or the first.

        With ``follow`` it continues with new output and later attempts, until the job has ended
        (with ``attempt``: until that attempt has). ``on_wait`` is then called from time to time
        while the job waits for an attempt.
        """
        path = path_of("jobs", job, "logs")
        look = partial(self.job, job)
        reader = LogReader(self._transport, path, task, look, PATIENCE_S, on_wait)
        return reader.read(attempt, follow)

    def all_logs(
        self,
        job: str,
        *,
        attempt: int | None = None,
        follow: bool = False,
        on_wait: Callable[[JobView], None] = lambda job: None,
    ) -> Iterator[LogChunk]:
        """What all tasks of a job write; as `logs`. Each chunk says of which task it is."""
        path, look = path_of("jobs", job, "logs"), partial(self.job, job)
        reader = AllLogsReader(self._transport, path, 0, look, PATIENCE_S, on_wait)
        return reader.read(attempt, follow)

    # --------------------------------------------------------------------------------------- fleet

    def regions(self) -> list[RegionView]:
        """Every region at a glance."""
        return self._transport.get(dict[str, list[RegionView]], "/regions")["regions"]

    def clusters(self) -> list[ClusterView]:
        """Every cluster at a glance."""
        return self._transport.get(dict[str, list[ClusterView]], "/clusters")["clusters"]

    def hosts(self) -> list[HostView]:
        """Every host, with what it has free and the jobs on it."""
        return self._transport.get(dict[str, list[HostView]], "/hosts")["hosts"]

    def gpus(self) -> list[GpuView]:
        """The GPUs of each model in each cluster."""
        return self._transport.get(dict[str, list[GpuView]], "/gpus")["gpus"]

    def tenants(self) -> list[TenantView]:
        """The quota of each tenant, and what it uses, borrows and lends."""
        return self._transport.get(dict[str, list[TenantView]], "/tenants")["tenants"]

    def host_story(self, host: str) -> HostStory:
        """A host with its history."""
        return self._transport.get(HostStory, path_of("hosts", host, "story"))

    def drain_plan(self, host: str, *, also: Iterable[str] = ()) -> DrainView:
        """What a drain of a host does now, or would do, with others drained ``also``."""
        others = ",".join(also) or None
        return self._transport.get(DrainView, path_of("hosts", host, "drain"), also=others)

    # ------------------------------------------------------------------------------------ datasets

    def datasets(self) -> list[DatasetView]:
        """Every dataset: its replicas, and the copies on their way."""
        return self._transport.get(dict[str, list[DatasetView]], "/datasets")["datasets"]

    def capacity_plan(self) -> CapacityPlanView:
        """The plan of which hosts belong to which clusters."""
        return self._transport.get(CapacityPlanView, "/plans/capacity")

    def data_plan(self) -> DataPlanView:
        """The plan of where data lies: its figures, what is done of it, what went wrong."""
        return self._transport.get(DataPlanView, "/plans/data")

    def add_dataset(
        self,
        name: str,
        region: str,
        *,
        path: str | None = None,
        source: str | os.PathLike[str] | None = None,
        allowed: Iterable[str] | None = None,
        min_replicas: int | None = None,
        reason: str = "",
        dry_run: bool = False,
    ) -> DatasetView:
        """Make a dataset known in ``region``: what lies at ``path`` in the region's store.

        With ``source``, a folder of the server's machine, its files are brought there first.
        ``allowed`` are the only regions that may ever hold it. What is not given of a dataset that
        the fleet file names stays as it is there; of another one, any region and one replica.
        """
        body: dict[str, object] = {"name": name, "region": region}
        body |= why(reason, dry_run)
        if min_replicas is not None:
            body["min_replicas"] = min_replicas
        if path is not None:
            body["path"] = path
        if source is not None:
            body["source"] = str(Path(source).resolve())
        if allowed is not None:
            body["allowed"] = list(allowed)
        return self._transport.post(DatasetView, "/datasets", body, repeatable=dry_run)

    def replicate(
        self, dataset: str, region: str, *, reason: str = "", dry_run: bool = False
    ) -> DatasetView:
        """Copy a dataset to ``region``; this returns when the copy is ordered."""
        body = {"region": region, **self._me, **why(reason, dry_run)}
        return self._transport.post(DatasetView, path_of("datasets", dataset, "replicas"), body)

    def drop(
        self, dataset: str, region: str, *, reason: str = "", dry_run: bool = False
    ) -> DatasetView:
        """Drop the replica of a dataset in ``region``."""
        path = path_of("datasets", dataset, "replicas", region)
        return self._transport.delete(DatasetView, path, reason, dry_run)

    def remove_dataset(
        self, dataset: str, *, reason: str = "", dry_run: bool = False
    ) -> DatasetView:
        """Forget a dataset and delete all its replicas; returns what there was."""
        return self._transport.delete(DatasetView, path_of("datasets", dataset), reason, dry_run)

    # -------------------------------------------------------------------------------------- records

    def usage(
        self, by: str = "tenant", *, since_s: float | None = None, until_s: float | None = None
    ) -> UsageReport:
        """GPU-hours held, kept and lost, by ``tenant``, ``user``, ``gpu`` or ``label.KEY``.

        Times are since the epoch.
        """
        return self._transport.get(UsageReport, "/usage", by=by, since=since_s, until=until_s)

    def events(self, *, after: int | None = None) -> Iterator[EventView]:
        """Events as they happen, without end; ``after`` is the number of the last one seen."""
        return events(self._transport, after, PATIENCE_S)


def _ended(job: JobView) -> bool:
    return job.state in TERMINAL


def _unfinished(left: list[str], views: Mapping[str, JobView], timeout_s: float) -> str:
    named = ", ".join(f"{job} is {views[job].state}" for job in left[:3])
    more = f", and {len(left) - 3} more" if len(left) > 3 else ""
    return f"time is up: not all jobs ended within {timeout_s:g} s: {named}{more}"
