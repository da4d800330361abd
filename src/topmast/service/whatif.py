"""What-ifs for the dashboard: `topmast whatif` in a process of its own, one at a time."""

from __future__ import annotations

import asyncio
import shutil
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from topmast.model import ids
from topmast.model.errors import Conflict, InvalidInput, NotFound
from topmast.model.files.changes import changes_within
from topmast.model.whatif_views import WhatIfAsk, WhatIfProgress, WhatIfView
from topmast.ports import Clock

KEPT = 20
"""Results that can still be looked at."""
LONGEST_S = 3_600.0
MOST_AHEAD_S = 30 * 86_400.0
MOST_CHANGES = 20
NICE = "nice", "-n", "10"
"""It gives way to the server."""
RUNNING, DONE, FAILED = "running", "done", "failed"


def _figures(line: bytes) -> WhatIfProgress | None:
    """What a line tells in numbers; None for one in words."""
    try:
        return msgspec.json.decode(line, type=WhatIfProgress)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def _at(told: WhatIfProgress, view: WhatIfView) -> WhatIfView:
    return replace(view, progress=told.text, jobs_over=told.jobs_over, jobs=told.jobs)


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

    def start(self, asked: WhatIfAsk) -> WhatIfView:
        """Begin one. Raises InvalidInput, and Conflict while another runs."""
        arguments = self._arguments(asked)
        if self._task is not None and not self._task.done():
            raise Conflict("another what-if runs: wait until it is done")
        self._number += 1
        view = WhatIfView(f"w{self._number}", asked, RUNNING, self._clock.now())
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

    def _arguments(self, asked: WhatIfAsk) -> list[str]:
        if not 60.0 <= asked.for_s <= MOST_AHEAD_S:
            raise InvalidInput("from a minute to 30 days", field="for_s")
        if asked.profile and asked.profile not in self.profiles:
            known = f"one of {', '.join(self.profiles)}"
            raise InvalidInput(f"no profile {asked.profile[:40]!r}", field="profile", remedy=known)
        edits = [(job, key, to) for job, of in asked.jobs.items() for key, to in of.items()]
        many = (asked.add_hosts, asked.quotas, asked.lose_regions, edits)
        if sum(len(changes) for changes in many) > MOST_CHANGES:
            raise InvalidInput(f"more than {MOST_CHANGES} changes", field="add_hosts")
        found = [f"--for={asked.for_s:.0f}s"]
        for key, count in asked.add_hosts.items():
            cluster, _, kind = key.partition(":")
            found.append(f"--add-hosts={cluster}:{count}" + (f":{kind}" if kind else ""))
        found += [f"--quota={key}={gpus}" for key, gpus in asked.quotas.items()]
        found += [f"--lose-region={region}" for region in asked.lose_regions]
        for job, document in asked.jobs.items():
            changes_within(document, f"jobs.{job[:40]}")
            if ids.job_number(job) < 0:
                raise InvalidInput(f"'{job[:40]}' is not the id of a job", field="jobs")
        for job, key, to in edits:
            found.append(f"--job={job}:{key}={msgspec.json.encode(to).decode()}")
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
