"""What-ifs for the dashboard: `topmast whatif` in a process of its own, one at a time."""

from __future__ import annotations

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from topmast.model import ids
from topmast.model.errors import Conflict, Faults, NotFound
from topmast.model.files.changes import changes_within
from topmast.model.files.fields import one_of
from topmast.model.fleet import Fleet
from topmast.model.whatif_views import WhatIfAsk, WhatIfProgress, WhatIfView
from topmast.ports import Clock

KEPT = 20
"""Results that can still be looked at."""
LONGEST_S = 3_600.0
MOST_AHEAD_S = 30 * 86_400.0
MOST_CHANGES = 20
NICE = "nice", "-n", "10"
"""It gives way to the server."""
NO_GPUS = "cpu"
"""The kind of hosts without GPUs."""
RUNNING, DONE, FAILED = "running", "done", "failed"


def _figures(line: bytes) -> WhatIfProgress | None:
    """What a line tells in numbers; None for one in words."""
    try:
        return msgspec.json.decode(line, type=WhatIfProgress)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _at(told: WhatIfProgress, view: WhatIfView) -> WhatIfView:
    return replace(view, progress=told.text, jobs_over=told.jobs_over, jobs=told.jobs)


def check_named(faults: Faults, asked: WhatIfAsk, fleet: Fleet, jobs: Collection[str]) -> None:
    """Note each name of which there is none, at its own field. ``jobs``: those not ended."""
    hosts = {cluster.name: cluster.hosts for one in fleet.regions for cluster in one.clusters}
    for key in asked.add_hosts:
        cluster, _, kind = key.partition(":")
        field = f"add_hosts.{key[:100]}"
        if cluster not in hosts:
            faults.add(f"no cluster '{cluster[:40]}'", field, one_of(cluster, list(hosts)))
            continue
        kinds = list(dict.fromkeys(h.model if h.gpus else NO_GPUS for h in hosts[cluster]))
        if not kinds:
            faults.add(f"cluster '{cluster}' has no host to take as a model", field)
        elif kind and kind not in kinds:
            faults.add(f"no host of kind '{kind[:40]}' in {cluster}", field, one_of(kind, kinds))
    tenants, models = [tenant.name for tenant in fleet.tenants], fleet.models()
    for key in asked.quotas:
        tenant, _, model = key.partition(":")
        field = f"quotas.{key[:100]}"
        if tenant not in tenants:
            faults.add(f"no tenant '{tenant[:40]}'", field, one_of(tenant, tenants))
        elif model not in models:
            faults.add(f"no GPU model '{model[:40]}'", field, one_of(model, list(models)))
    regions = [region.name for region in fleet.regions]
    for name in asked.lose_regions:
        if name not in regions:
            field = f"lose_regions.{name[:100]}"
            faults.add(f"no region '{name[:40]}'", field, one_of(name, regions))
    for job in asked.jobs:
        if ids.job_number(job) >= 0 and job not in jobs:
            faults.add(f"no job '{job[:40]}' that has not ended", f"jobs.{job[:40]}")


class WhatIfs:
    """Starts them and keeps what they found. ``command``: what runs one, but for the changes."""

    def __init__(self, command: Sequence[str], profiles: Sequence[str], clock: Clock) -> None:
        nice = NICE if shutil.which(NICE[0]) else ()
        self._command = (*nice, *command)
        self.profiles = tuple(profiles)
        self._clock = clock
        self._views: OrderedDict[str, WhatIfView] = OrderedDict()
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def running(self) -> WhatIfView | None:
        """The one that has not ended."""
        newest = next(reversed(self._views.values()), None)
        return newest if newest is not None and newest.state == RUNNING else None

    def start(self, asked: WhatIfAsk, by: str) -> WhatIfView:
        """Begin one for an account. Raises InvalidInput, and Conflict while another runs."""
        self.check(asked).refuse()
        arguments = self._arguments(asked)
        if other := self.running:
            raise Conflict(f"what-if {other.id} of {other.by} runs: wait until it is done")
        self._number += 1
        view = WhatIfView(f"w{self._number}", asked, RUNNING, self._clock.now(), by=by)
        self._views[view.id] = view
        while len(self._views) > KEPT:
            self._views.popitem(last=False)
        self._task = asyncio.create_task(self._run(view, arguments))
        return view

    def view(self, number: str) -> WhatIfView:
        """One of the latest. Raises NotFound."""
        if number not in self._views:
            raise NotFound(f"no what-if '{number[:40]}': the last {KEPT} since the start are kept")
        return self._views[number]

    def latest(self) -> tuple[WhatIfView, ...]:
        """Those that are kept, the newest first."""
        return tuple(reversed(self._views.values()))

    def check(self, asked: WhatIfAsk) -> Faults:
        """What no what-if of this server can be asked, each fault at its own field."""
        faults = Faults()
        if not 60.0 <= asked.for_s <= MOST_AHEAD_S:
            faults.add("from a minute to 30 days", "for_s")
        if asked.profile and asked.profile not in self.profiles:
            known = f"one of {', '.join(self.profiles)}"
            faults.add(f"no profile {asked.profile[:40]!r}", "profile", known)
        many = (asked.add_hosts, asked.quotas, asked.lose_regions, *asked.jobs.values())
        if sum(len(changes) for changes in many) > MOST_CHANGES:
            faults.add(f"more than {MOST_CHANGES} changes", "")
        for job, document in asked.jobs.items():
            faults.of(partial(changes_within, document, f"jobs.{job[:40]}"))
            if ids.job_number(job) < 0:
                faults.add(f"'{job[:40]}' is not the id of a job", f"jobs.{job[:40]}")
        return faults

    def _arguments(self, asked: WhatIfAsk) -> list[str]:
        found = [f"--for={asked.for_s:.0f}s"]
        for key, count in asked.add_hosts.items():
            cluster, _, kind = key.partition(":")
            found.append(f"--add-hosts={cluster}:{count}" + (f":{kind}" if kind else ""))
        found += [f"--quota={key}={gpus}" for key, gpus in asked.quotas.items()]
        found += [f"--lose-region={region}" for region in asked.lose_regions]
        found += [
            f"--job={job}:{key}={msgspec.json.encode(to).decode()}"
            for job, document in asked.jobs.items()
            for key, to in document.items()
        ]
        return [*found, *([f"--profile={asked.profile}"] if asked.profile else [])]

    async def _run(self, view: WhatIfView, arguments: Sequence[str]) -> None:
        try:
            found, why = await asyncio.wait_for(self._result(view.id, arguments), LONGEST_S)
        except TimeoutError:
            found, why = b"", f"it took longer than {LONGEST_S / 60:g} minutes"
        except OSError as error:
            found, why = b"", str(error)
        ended = replace(view, ended_s=self._clock.now())
        if found:
            ended = replace(ended, state=DONE, result=msgspec.json.decode(found))
        else:
            ended = replace(ended, state=FAILED, why=why or "its process died")
        self._note(view.id, lambda _: ended)

    async def _result(self, number: str, arguments: Sequence[str]) -> tuple[bytes, str]:
        """What the process prints, or why it failed."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command, *arguments, "--json", stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe, stderr=pipe,
        )  # fmt: skip
        self._process = process
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            printed, last = await asyncio.gather(
                process.stdout.read(), self._follow(number, process.stderr)
            )
            status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
        return (printed, "") if status == 0 else (b"", last)

    async def _follow(self, number: str, lines: asyncio.StreamReader) -> str:
        """Show each line as progress; the last one that is no figure."""
        last = ""
        async for line in lines:
            told = _figures(line)
            if told is None:
                last = line.decode(errors="replace").strip()[:1_000] or last
                told = WhatIfProgress(0, 0, last)
            self._note(number, partial(_at, told))
        return last

    def _note(self, number: str, change: Callable[[WhatIfView], WhatIfView]) -> None:
        if number in self._views:
            self._views[number] = change(self._views[number])

    def close(self) -> None:
        """End the one that runs."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
