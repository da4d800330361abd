"""The launcher for Slurm: a part is a batch job, submitted held."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Sequence
from functools import cache, cached_property
from typing import ClassVar

from msgspec import structs

from topmast.adapters.engines.far import runner
from topmast.adapters.engines.far.launcher import (
    Host,
    Launcher,
    Listed,
    Part,
    Refused,
    State,
    Unreachable,
)
from topmast.adapters.engines.far.slurm.batch import MIB, NO_OP, arguments, script, trial
from topmast.adapters.engines.far.slurm.commands import TRIAL, Commands, remedy_for
from topmast.adapters.engines.far.slurm.listings import (
    host_format,
    job_format,
    new_mark,
    read_hosts,
    read_jobs,
)
from topmast.adapters.engines.far.slurm.options import SlurmOptions
from topmast.model.fleet import ClusterSpec, HostSpec

_GONE = ("invalid job id", "already finished", "already completing", "job has finished")
"""What Slurm says of a job for which there is nothing left to do."""
_SUBMITTED = re.compile(r"^(\d+)(?:;\S*)?\s*\Z", re.MULTILINE)
"""The last line of `sbatch --parsable`: the id, and perhaps the cluster."""
_PLUGINS = re.compile(r"^JobSubmitPlugins\s*=[ \t]*(\S+)", re.MULTILINE)


class SlurmLauncher(Launcher):
    """Asks one Slurm cluster, by its commands."""

    options_type: ClassVar = SlurmOptions
    many_hosts: ClassVar = True
    exact_gpus: ClassVar = False
    releases_at_once: ClassVar = 50

    def __init__(self, cluster: ClusterSpec, fleet: str, options: SlurmOptions) -> None:
        super().__init__(cluster, fleet, options)
        self._options: SlurmOptions = options
        self._commands = Commands(options)
        self.set_hosts(cluster.hosts)
        self._lock = threading.Lock()
        self._told: dict[tuple[str, float], float] = {}
        """When each part was first sent SIGTERM, by our monotonic clock."""
        self._timers: dict[tuple[str, float], threading.Timer] = {}

    def set_hosts(self, hosts: tuple[HostSpec, ...]) -> None:
        self._hosts = {self._called(host.name): host for host in hosts}

    def submit(self, part: Part) -> str:
        hosts = [self._called(host) for host in part.hosts]
        argv = arguments(part, hosts, self._options)
        text = script(part, hosts, self._options, _runner())
        try:
            said = self._commands.ask(*argv, text=text)
        except Refused as error:
            raise Refused(str(error), everyone=self._concerns_all(str(error), part)) from None
        found = _SUBMITTED.search(said)
        return found[1] if found else ""

    def _concerns_all(self, said: str, part: Part) -> bool:
        """Whether Slurm would refuse other parts for the same reason."""
        remedy = remedy_for(said)
        if remedy is None or remedy.option is None:
            return False
        by_job = {"time_limit": part.limit_s is not None, "memory_mib_per_gpu": part.memory_bytes}
        if by_job.get(remedy.option):
            return False
        if remedy.option != TRIAL:
            return not self._options.differs(remedy.option, part.tenant)
        return part.tenant not in self._options.tenants and self._lacks(part)

    def _lacks(self, part: Part) -> bool:
        """Whether Slurm would give this part not one GPU, and nothing else, on its first host."""
        gpus = min(part.gpus, 1)
        least = structs.replace(part, gpus=gpus, cpus=1.0, memory_bytes=MIB, limit_s=None)
        asked = trial(least, [self._called(part.hosts[0])], self._options)
        try:
            self._commands.ask(*asked, text=NO_OP)
        except Refused:
            return True
        except Unreachable:
            pass
        return False

    def release(self, listed: Sequence[Listed]) -> None:
        self._signal("scontrol", "release", ",".join(one.id for one in listed))

    def cancel(self, listed: Listed, grace_s: float) -> None:
        """As the base says. Runners are told first, and ended when their grace has passed.

        A plain `scancel` is that end: Slurm sends SIGTERM again, and SIGKILL after the site's
        KillWait (``--signal=KILL`` does the same). Never ``--full`` or ``--batch``: they kill tasks
        at once.
        """
        found = self._found(listed)
        if found is not None and found.state in (State.HELD, State.WAITING):
            self._scancel(found)
        if found is None or found.state is not State.RUNNING:
            return
        key = (listed.id, listed.submitted_s)
        with self._lock:
            first = key not in self._told
            told_s = self._told.setdefault(key, time.monotonic())
        left_s = told_s + grace_s - time.monotonic()
        if first:
            self._scancel(found, "--signal=TERM")
            self._scancel(found, "--signal=CONT")  # a runner that is halted hears of it then
        if left_s > 0:
            self._later(listed, left_s)
        else:
            self._scancel(found)

    def list(self) -> tuple[Listed, ...]:
        found = self._squeue(f"tm-{self._fleet}-")
        ended = [(one.id, one.submitted_s) for one in found if one.state is State.ENDED]
        with self._lock:
            timers = [self._timers.pop(key) for key in ended if key in self._timers]
            for key in ended:
                self._told.pop(key, None)
        for timer in timers:
            timer.cancel()
        return found

    def hosts(self) -> tuple[Host, ...]:
        mark = new_mark()
        said = self._commands.look("sinfo", "-N", "-a", "-h", "-o", host_format(mark))
        return read_hosts(said, mark, self._hosts, self._options, lambda: self._is_routed)

    @cached_property
    def _is_routed(self) -> bool:
        """Whether a plugin of the site may choose the partition of jobs that name none."""
        said = self._commands.look("scontrol", "show", "config")
        found = _PLUGINS.search(said)
        return found is not None and found[1] != "(null)"

    def close(self) -> None:
        with self._lock:
            timers = list(self._timers.values())
            self._timers.clear()
        for timer in timers:
            timer.cancel()

    def _called(self, host: str) -> str:
        """What Slurm calls a host of the fleet file."""
        return host.removeprefix(self._options.host_prefix)

    def _squeue(self, prefix: str, *only: str) -> tuple[Listed, ...]:
        # All states and partitions: a job that ended is listed for a while (MinJobAge).
        mark = new_mark()
        asked = ("squeue", "--me", "-a", "-h", "-t", "all", "-O", job_format(mark))
        said = self._commands.look(*asked, *only)
        return read_jobs(said, mark, prefix, self._options.tenants, self.is_recorded)

    def _found(self, listed: Listed) -> Listed | None:
        """This part as it is now; None when it is gone, or another has its id.

        What was recorded goes by id and time of submission: its task may rename it at any moment.
        """
        recorded = self._is_recorded(listed)
        try:
            found = self._squeue("" if recorded else listed.name, "-j", listed.id)
        except Unreachable as error:
            if _gone(error):
                return None
            raise
        for job in found:
            same = (job.id, job.submitted_s) == (listed.id, listed.submitted_s)
            if same and (recorded or job.name == listed.name):
                return job
        return None

    def _is_recorded(self, listed: Listed) -> bool:
        return self.is_recorded(listed.id, listed.submitted_s)

    def _scancel(self, listed: Listed, *how: str) -> None:
        # By id and name, as the id alone may be another job's since; but the name of what runs is
        # its task's to change, and one that changes it without end would never be found by it.
        named = () if self._is_recorded(listed) else (f"--name={listed.name}",)
        self._signal("scancel", *how, *named, listed.id)

    def _signal(self, *argv: str) -> None:
        try:
            self._commands.ask(*argv)
        except Refused as error:
            if not _gone(error):
                raise

    def _later(self, listed: Listed, wait_s: float) -> None:
        """End a part when its grace has passed; a shorter one that is given later counts."""
        key = (listed.id, listed.submitted_s)
        timer = threading.Timer(wait_s, self._end_if_heard, [listed])
        timer.daemon = True
        with self._lock:
            before = self._timers.pop(key, None)
            self._timers[key] = timer
        if before:
            before.cancel()
        timer.start()

    def _end_if_heard(self, listed: Listed) -> None:
        try:
            found = self._found(listed)
            if found is not None and found.state is State.RUNNING:
                self._scancel(found)
        except (Refused, Unreachable):
            return  # it is still listed, and so is cancelled again


def _gone(error: Exception) -> bool:
    return any(words in str(error).lower() for words in _GONE)


@cache
def _runner() -> str:
    """The text of the runner."""
    return runner.text()
