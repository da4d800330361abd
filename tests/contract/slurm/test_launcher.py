"""The launcher for Slurm, on a real cluster, with a stand-in for the runner."""

import itertools
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.slurmlab import SlurmCluster, slurm_cluster
from topmast.adapters.engines.far.launcher import (
    Listed,
    Part,
    Refused,
    State,
    Ticket,
    Unreachable,
)
from topmast.adapters.engines.far.slurm import SlurmLauncher, SlurmOptions, launcher
from topmast.model.fleet import ClusterSpec, HostSpec

NUMBERS = itertools.count()
SECRET = "a-token-that-only-its-owner-may-see"
RUNNER = """
import json, os, signal, sys, time
ticket = json.load(sys.stdin)
file = os.path.join(ticket["url"], sys.argv[2])
def note(word):
    with open(file, "a") as out:
        print(json.dumps([word, time.time(), sys.argv[1:], dict(os.environ), ticket]), file=out)
def told(*_):
    note("told")
    if ticket["ca"] != "stubborn":
        sys.exit(3)
signal.signal(signal.SIGTERM, told)
note("began")
while True:
    time.sleep(0.05)
"""


@dataclass
class Bench:
    """A launcher before a cluster, and what its runners wrote down."""

    lab: SlurmCluster
    folder: Path
    launcher: SlurmLauncher
    prefix: str = ""
    grace_s: float = 30.0

    def part(self, *hosts: int, **fields: Any) -> Part:
        named = tuple(self.prefix + self.lab.hosts[host] for host in hosts)
        given: dict[str, Any] = {
            "name": f"tm-fleet-j{next(NUMBERS)}-1-0", "hosts": named, "tasks": 1, "gpus": 1,
            "model": "h100", "cpus": 2.0, "memory_bytes": 0, "limit_s": None, "tenant": "vision",
            "image": "",
        }  # fmt: skip
        stubborn = fields.pop("stubborn", False)
        given |= fields
        ticket = Ticket(
            str(self.folder), "stubborn" if stubborn else "pem", SECRET, given["name"], 60.0,
            self.grace_s,
        )  # fmt: skip
        return Part(**given, ticket=ticket)

    def of(self, part: Part) -> Listed:
        """The one job of a part."""
        (found,) = [listed for listed in self.launcher.list() if listed.name == part.name]
        return found

    def until(self, part: Part, state: State) -> Listed:
        self.lab.until(lambda: self.of(part).state is state, f"{part.name} is not {state}")
        return self.of(part)

    def notes(self, host: str) -> list[Any]:
        file = self.folder / host
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def begins(self, part: Part) -> Listed:
        """Submit, not held, and wait until all runners are there."""
        self.launcher.submit(replace(part, hold=False))
        for host in part.hosts:
            self.lab.until(lambda host=host: self.notes(host), f"no runner on {host}")  # type: ignore[misc]
        return self.of(part)

    def ends(self, part: Part) -> Listed:
        return self.until(part, State.ENDED)


def make(
    lab: SlurmCluster, folder: Path, names: tuple[str, ...] = (), **options: Any
) -> SlurmLauncher:
    hosts = tuple(HostSpec(name, "H100", 8) for name in names or lab.hosts)
    given = SlurmOptions(**{"conf": str(lab.conf), "gpu": {"H100": "h100"}, **options})
    return SlurmLauncher(ClusterSpec("slurm-1", hosts, "slurm"), "fleet", given)


@pytest.fixture
def bench(lab: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setattr(launcher, "_runner", lambda: RUNNER)
    bench = Bench(lab, tmp_path, make(lab, tmp_path))
    yield bench
    bench.launcher.close()
    if left := [job for job, _, state, _ in lab.jobs() if state in ("PENDING", "RUNNING")]:
        lab.run("scancel", *left, check=False)
    lab.until(
        lambda: set(lab.states().values()) == {"idle"}, "the cluster is not empty after the test"
    )


def test_a_part_runs_on_exactly_its_hosts_and_only_when_released(bench: Bench) -> None:
    """It is held first; then one runner on each host has the ticket, and the GPUs that were asked for."""
    part = bench.part(0, 2, gpus=3, cpus=8.0, memory_bytes=1000 << 20, limit_s=3600.0)
    bench.launcher.submit(part)
    held = bench.of(part)
    assert (held.state, held.evicted) == (State.HELD, False)
    assert abs(held.submitted_s - time.time()) < 30
    time.sleep(2.5)
    assert bench.of(part).state is State.HELD, "nothing runs before it is released"
    running = bench.begins(bench.part(0, name="tm-fleet-other-1-0"))  # beside it, on one of them
    assert running.state is State.RUNNING

    (bench.folder / "lab0").unlink()
    bench.launcher.release([held])
    for host in ("lab0", "lab2"):
        bench.lab.until(lambda host=host: bench.notes(host), f"no runner on {host}")  # type: ignore[misc]
        ((word, _, argv, env, ticket),) = bench.notes(host)
        assert (word, argv) == ("began", ["-", host])
        assert ticket["token"] == SECRET
        assert len(env["CUDA_VISIBLE_DEVICES"].split(",")) == 3
        assert env["SLURM_CPUS_PER_TASK"] == "8"
    assert not bench.notes("lab1")
    shown = bench.lab.run("scontrol", "show", "job", bench.of(part).id)
    for want in ("NodeList=lab[0,2]", "TimeLimit=01:00:00", "MinMemoryNode=1000M", "Requeue=0"):
        assert want in shown


def test_releasing_again_changes_nothing(bench: Bench) -> None:
    """Also when it runs, has ended, or is not there at all."""
    part = bench.part(0)
    running = bench.begins(part)
    bench.launcher.release([running])
    bench.launcher.cancel(running, 10.0)
    bench.launcher.release([bench.ends(part)])
    bench.launcher.release([Listed("tm-fleet-none-1-0", "99999", 0.0, State.HELD)])


def test_cancel_tells_the_runners_and_waits_for_their_grace(bench: Bench) -> None:
    """SIGTERM reaches every runner at once; one that does not end is killed, and not before its grace."""
    part = bench.part(0, 1, stubborn=True)
    running = bench.begins(part)
    begun_s = time.time()
    bench.launcher.cancel(running, 4.0)
    bench.launcher.cancel(running, 4.0)  # again: the grace does not begin anew
    for host in part.hosts:
        bench.lab.until(lambda host=host: len(bench.notes(host)) > 1, "not told")  # type: ignore[misc]
    time.sleep(2.5)
    assert len(bench.lab.bodies(part.name)) >= 2, "killed before the grace was over"
    assert [word for word, *_ in bench.notes("lab0")] == ["began", "told"]
    ended = bench.ends(part)
    assert time.time() - begun_s > 4.0
    assert ended.why.startswith("CANCELLED")
    bench.lab.until(lambda: not bench.lab.bodies(part.name), "processes live on")


@pytest.mark.slow
def test_a_shorter_second_grace_counts(bench: Bench) -> None:
    """An operator need not wait for the first one."""
    part = bench.part(1, stubborn=True)
    running = bench.begins(part)
    bench.launcher.cancel(running, 600.0)
    bench.launcher.cancel(running, 1.0)
    bench.ends(part)


def test_a_runner_that_ends_by_itself_is_listed_as_ended(bench: Bench) -> None:
    """With its status; that is no eviction."""
    part = bench.part(2)
    running = bench.begins(part)
    bench.launcher.cancel(running, 60.0)
    ended = bench.ends(part)
    assert not ended.evicted
    assert "(status 3)" in ended.why
    assert (ended.id, ended.submitted_s) == (running.id, running.submitted_s)


def test_a_held_part_is_cancelled_at_once(bench: Bench) -> None:
    """There is nothing to tell."""
    part = bench.part(0)
    bench.launcher.submit(part)
    bench.launcher.cancel(bench.of(part), 600.0)
    assert bench.of(part).state is State.ENDED
    assert bench.of(part).evicted


def test_cancel_never_ends_another_part_with_the_same_id(bench: Bench) -> None:
    """After a crash Slurm gives ids again: name and time of submission tell which is meant."""
    part = bench.part(0)
    running = bench.begins(part)
    for other in (
        Listed("tm-fleet-old-1-0", running.id, running.submitted_s, State.RUNNING),
        Listed(part.name, running.id, running.submitted_s - 100, State.RUNNING),
    ):
        bench.launcher.cancel(other, 0.0)
    time.sleep(1.0)
    assert bench.of(part).state is State.RUNNING
    assert len(bench.notes("lab0")) == 1


def test_what_an_administrator_ends_is_evicted(bench: Bench) -> None:
    """Cancelled by root: not by the runner's will."""
    part = bench.part(0)
    running = bench.begins(part)
    bench.lab.run("scancel", running.id)
    ended = bench.ends(part)
    assert ended.evicted
    assert ended.why.startswith("CANCELLED")


def test_hosts_say_what_slurm_says(bench: Bench) -> None:
    """Drained with its reason, and open again; a host that Slurm does not have is said to be unknown."""
    asks = make(bench.lab, bench.folder, (*bench.lab.hosts, "lab7"))
    bench.lab.run(
        "scontrol", "update", "NodeName=lab1", "State=DRAIN", "Reason=fan | broken, rack 7"
    )
    try:
        by_name = {host.name: host for host in asks.hosts()}
        assert by_name["lab0"].answers
        assert by_name["lab0"].closed == ""
        assert by_name["lab1"].answers
        assert "fan | broken, rack 7" in by_name["lab1"].closed
        assert not by_name["lab7"].answers
        assert "knows no host lab7" in by_name["lab7"].closed
    finally:
        bench.lab.run("scontrol", "update", "NodeName=lab1", "State=RESUME")
    bench.lab.until(  # for a moment after that, Slurm waits for the host's daemon
        lambda: not any(host.closed for host in bench.launcher.hosts()), "it stays closed"
    )


def test_a_part_waits_with_its_reason(bench: Bench) -> None:
    """On a host that is drained, or for a GPU that the site does not have."""
    bench.lab.run("scontrol", "update", "NodeName=lab1", "State=DRAIN", "Reason=x")
    try:
        closed, unknown = bench.part(1), bench.part(0, model="A100")
        for part in (closed, unknown):
            bench.launcher.submit(part)
            bench.launcher.release([bench.of(part)])
        bench.lab.until(lambda: "ReqNodeNotAvail" in bench.of(closed).why, "no reason")
        bench.lab.until(lambda: "BadConstraints" in bench.of(unknown).why, "no reason")
        assert "gpu.MODEL" in bench.of(unknown).why
        assert bench.of(unknown).state is State.WAITING
    finally:
        bench.lab.run("scontrol", "update", "NodeName=lab1", "State=RESUME")


def test_gpu_models_and_hosts_are_called_as_the_site_calls_them(bench: Bench) -> None:
    """The fleet's H100 is the site's h100, and its east-lab0 the site's lab0."""
    bench.launcher = make(
        bench.lab, bench.folder, tuple(f"east-{host}" for host in bench.lab.hosts),
        host_prefix="east-", gpu={"H100": "h100", "B200": "any"}, cpus_per_gpu=4.0,
        memory_mib_per_gpu=500,
    )  # fmt: skip
    bench.prefix = "east-"
    part = bench.part(0, model="H100", gpus=2, cpus=0.0)
    running = bench.begins(part)
    ((_, _, argv, env, _),) = bench.notes("east-lab0")
    assert argv == ["-", "east-lab0"]
    assert env["SLURM_CPUS_PER_TASK"] == "8"
    shown = bench.lab.run("scontrol", "show", "job", running.id)
    assert "gpu:h100:2" in shown
    assert "MinMemoryNode=1000M" in shown
    assert [host.name for host in bench.launcher.hosts()] == ["east-lab0", "east-lab1", "east-lab2"]
    untyped = bench.part(1, model="B200")
    bench.begins(untyped)


@pytest.mark.parametrize(
    ("options", "hosts", "want"),
    [
        ({"partition": {"": "nosuch"}}, ("lab0",), "(?i)invalid partition.*option `partition`"),
        ({"partition": {"vision": "no"}}, ("lab0",), "(?i)invalid partition"),
        ({"reservation": {"": "nosuch"}}, ("lab0",), "(?i)reservation.*show reservation"),
        ({"constraint": {"": "nosuch"}}, ("lab0",), "(?i)feature.*option `constraint`"),
        ({}, ("elsewhere",), "(?i)node name.*fleet discover slurm"),
        ({}, ("lab0", "lab0"), "named twice"),
        ({}, ("lab[0-2]",), "not a name of a host"),
    ],
)
def test_what_slurm_refuses_is_refused_in_its_words(
    bench: Bench, options: dict[str, Any], hosts: tuple[str, ...], want: str
) -> None:
    """With what to do; nothing is left behind."""
    asks = make(bench.lab, bench.folder, **options)
    part = bench.part(hosts=hosts)
    with pytest.raises(Refused, match=want):
        asks.submit(part)
    assert not [listed for listed in asks.list() if listed.name == part.name]


def test_what_no_job_would_get_is_told_from_what_one_asks_too_much(bench: Bench) -> None:
    """Slurm has the same words for both: a GPU type that it lacks is refused to all."""
    for fields, everyone in (({"model": "A100"}, True), ({"gpus": 9}, False)):
        part = bench.part(0, hold=False, **fields)
        with pytest.raises(Refused, match=r"(?i)node configuration.*option `gpu\.MODEL") as refused:
            bench.launcher.submit(part)
        assert refused.value.everyone is everyone, fields
    own = make(bench.lab, bench.folder, account={"vision": "a"})
    with pytest.raises(Refused) as refused:
        own.submit(bench.part(0, hold=False, model="A100"))
    assert not refused.value.everyone, "what the tenant says itself may be the reason"


def test_hosts_that_jobs_would_not_get_are_closed(bench: Bench) -> None:
    """GPUs of another type, and another partition: told before any job is tried."""
    asks = make(bench.lab, bench.folder, gpu={})  # the fleet's H100 is the site's h100
    assert [host.misfit for host in asks.hosts()] == [True] * 3
    assert "(set option `gpu.H100: h100`)" in asks.hosts()[0].closed
    bench.lab.run("scontrol", "create", "PartitionName=small", "Nodes=lab0", "State=UP")
    try:
        in_small, *others = make(bench.lab, bench.folder, partition={"": "small"}).hosts()
        assert (in_small.closed, in_small.misfit) == ("", False)
        assert all("is not in partition small" in host.closed for host in others)
    finally:
        bench.lab.run("scontrol", "delete", "PartitionName=small")


def test_other_fleets_are_not_listed(bench: Bench) -> None:
    """One account may serve two Topmasts, and have jobs of its own."""
    bench.lab.run("sbatch", "--hold", "-J", "tm-fleet2-j1-1-0", text="#!/bin/sh\n")
    bench.lab.run("sbatch", "--hold", "-J", "mine", text="#!/bin/sh\n")
    assert "tm-fleet2-j1-1-0" in [name for _, name, *_ in bench.lab.jobs()]
    assert [listed.name for listed in bench.launcher.list()] == [
        name for _, name, *_ in bench.lab.jobs() if name.startswith("tm-fleet-")
    ]


def test_no_name_of_a_job_forges_another(bench: Bench) -> None:
    """Slurm takes any name, line breaks too, and prints it as it is: also a whole row of a listing."""
    part = bench.part(0)
    running = bench.begins(part)
    forged = (
        "COMPLETED",
        str(int(running.submitted_s)),
        running.run.split("@")[1],
        "0",
        "1",
        "None",
    )
    row = "|".join((running.id, part.name, *forged))
    names = (f"x|COMPLETED|1|2|0|1|None\n{row}", f"\n{row}\n", "a\nb", "|", "\ntm-fleet-")
    for name in names:
        bench.lab.run("sbatch", "--hold", "-J", name, text="#!/bin/sh\n")
    ended = bench.begins(bench.part(1))
    bench.lab.run("scontrol", "update", f"JobId={ended.id}", f"JobName=y|\n{row}")
    mine = [listed for listed in bench.launcher.list() if listed.name == part.name]
    assert [(one.id, one.state, one.run) for one in mine] == [
        (running.id, State.RUNNING, running.run)
    ]
    assert set(names) < {name for _, name, *_ in bench.lab.jobs()}, "it takes them as they are"
    bench.launcher.cancel(running, 10.0)
    bench.ends(part)


def test_no_secret_is_shown(bench: Bench) -> None:
    """Not by any command, to any account; not by any process; only the script has it."""
    part = bench.part(0, 1)
    running = bench.begins(part)
    looks = [
        ["scontrol", "show", "job", "-dd", running.id],
        ["squeue", "-a", "-o", "%all"],
        ["squeue", "-a", "-O", "All"],
        ["scontrol", "show", "step", running.id],
    ]
    for look in looks:
        assert SECRET not in bench.lab.run(*look, check=False), look
    for entry in Path("/proc").iterdir():
        for name in ("cmdline", "environ"):
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    assert SECRET.encode() not in (entry / name).read_bytes(), entry
                except OSError:
                    continue
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    for look in (["scontrol", "write", "batch_script", running.id, "-"], *looks):
        asked = subprocess.run([*nobody, *look], env=bench.lab.env, capture_output=True, cwd="/")
        assert SECRET.encode() not in asked.stdout + asked.stderr
    for file in bench.lab.folder.rglob("*script"):
        assert file.stat().st_mode & 0o077 == 0 or file.parent.stat().st_mode & 0o007 == 0


def test_runners_and_listings_tell_one_run_of_a_job_from_another(bench: Bench) -> None:
    """A controller with an old state runs a job again under the same id and time of submission."""
    part = bench.part(0)
    bench.launcher.submit(part)
    saved = bench.lab.folder / "state" / "job_state"
    bench.lab.until(
        lambda: saved.exists() and part.name.encode() in saved.read_bytes(), "it is not saved"
    )
    old = bench.lab.saved_state()
    bench.launcher.release([bench.of(part)])
    bench.lab.until(lambda: bench.notes("lab0"), "no runner")
    ((_, _, _, env, _),) = bench.notes("lab0")
    assert env["TOPMAST_RUN"] == bench.of(part).run != ""
    bench.launcher.cancel(bench.of(part), 30.0)
    first = bench.ends(part)
    assert env["TOPMAST_RUN"] == first.run

    bench.lab.restart_with(old)
    bench.lab.until(lambda: bench.of(part).state is State.HELD, "it has not its old state")
    bench.launcher.release([bench.of(part)])
    bench.lab.until(lambda: len(bench.notes("lab0")) > 2, "it does not run again")
    again = bench.of(part)
    assert (again.id, again.submitted_s) == (first.id, first.submitted_s)
    runs = [note[3]["TOPMAST_RUN"] for note in bench.notes("lab0") if note[0] == "began"]
    assert runs == [first.run, again.run]
    assert again.run != first.run, "the end of the second proves nothing of the first"


@pytest.mark.slow
def test_a_controller_that_hangs_or_is_dead_gives_no_answer(bench: Bench) -> None:
    """Nothing is taken for an empty list, and nothing waits for ever."""
    asks = make(bench.lab, bench.folder, command_s=3.0)
    part = bench.part(0)
    bench.lab.signal_controller(signal.SIGSTOP)
    try:
        for call in (asks.list, asks.hosts, lambda: asks.submit(part)):
            with pytest.raises(Unreachable, match="did not answer within 3 s"):
                call()
    finally:
        bench.lab.signal_controller(signal.SIGCONT)
    # What was asked of it meanwhile may happen now, and is held.
    bench.lab.until(lambda: bench.launcher.list() or True, "no answer")
    assert all(found.state is State.HELD for found in asks.list() if found.name == part.name)
    bench.lab.kill_controller()
    try:
        for call in (asks.list, asks.hosts, lambda: asks.submit(bench.part(1))):
            with pytest.raises(Unreachable):
                call()
    finally:
        bench.lab.start_controller()
    bench.lab.until(lambda: set(bench.lab.states().values()) == {"idle"}, "hosts do not return")


@pytest.mark.slow
def test_hosts_that_are_silent_do_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part there counts as running as long as its tasks may live; then its end is no truth."""
    monkeypatch.setattr(launcher, "_runner", lambda: RUNNER)
    with slurm_cluster("cut", nodes=2) as lab:
        bench = Bench(lab, tmp_path, make(lab, tmp_path))
        part = bench.part(0, 1)
        bench.begins(part)
        lab.kill_daemon("cut0")
        lab.until(lambda: not bench.launcher.hosts()[0].answers, "it is said to answer")
        assert bench.launcher.hosts()[1].answers
        assert lab.bodies(part.name)
        lab.start_daemon("cut0")
        lab.until(lambda: bench.launcher.hosts()[0].answers, "it is said to be silent")
        assert bench.launcher.hosts()[0].closed == ""


@pytest.mark.slow
def test_what_slurm_preempts_or_times_out_is_evicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner is told first; the site's own jobs go before ours, as the site has decided."""
    monkeypatch.setattr(launcher, "_runner", lambda: RUNNER)
    high = "PartitionName=high Nodes=pre[0-1] PriorityTier=10 State=UP"
    with slurm_cluster("pre", nodes=2, parameters=(high,)) as lab:
        bench = Bench(lab, tmp_path, make(lab, tmp_path), grace_s=5.0)
        preempted, timed = bench.part(0, gpus=8, stubborn=True), bench.part(1, limit_s=60.0)
        for part in (preempted, timed):
            bench.begins(part)
        lab.run(
            "sbatch", "-p", "high", "--nodelist=pre0", "--gres=gpu:8", "-J", "theirs",
            text="#!/bin/sh\nsleep 60\n",
        )  # fmt: skip
        assert bench.ends(preempted).evicted
        assert [word for word, *_ in bench.notes("pre0")][:2] == ["began", "told"]
        lab.until(lambda: len(bench.notes("pre1")) > 1, "not told before its time", 120.0)
        lab.until(lambda: bench.of(timed).state is State.ENDED, "not ended", 120.0)


def test_an_account_without_any_rights_is_enough(bench: Bench, tmp_path: Path) -> None:
    """Neither root nor an operator: it submits, lists, releases and cancels its own, and sees hosts."""
    (bin := tmp_path / "bin").mkdir()
    for name in ("sbatch", "squeue", "sinfo", "scontrol", "scancel"):
        be = "exec setpriv --reuid=65534 --regid=65534 --clear-groups"
        (bin / name).write_text(f'#!/bin/sh\n{be} /usr/bin/{name} "$@"\n')
        (bin / name).chmod(0o755)
    bench.folder = bench.lab.folder / "notes"
    bench.folder.mkdir()
    bench.folder.chmod(0o777)
    bench.launcher = make(bench.lab, tmp_path, bin=str(bin), python="/usr/bin/python3")
    part = bench.part(0, 1)
    running = bench.begins(part)
    assert {note[3]["SLURM_JOB_UID"] for note in bench.notes("lab0")} == {"65534"}
    assert all(host.answers and not host.closed for host in bench.launcher.hosts())
    bench.launcher.cancel(running, 10.0)
    assert bench.ends(part).why.startswith("FAILED")


def test_many_are_submitted_and_listed_in_one_question(bench: Bench, tmp_path: Path) -> None:
    """Forty held parts, with hostile values; one `squeue` has all, each once, one `sinfo` all hosts."""
    (bin := tmp_path / "bin").mkdir()
    run = tmp_path / "run"
    for name in ("sbatch", "squeue", "sinfo", "scontrol", "scancel"):
        (bin / name).write_text(f'#!/bin/sh\necho {name} >> {run}\nexec /usr/bin/{name} "$@"\n')
        (bin / name).chmod(0o755)
    counted = make(bench.lab, tmp_path, bin=str(bin))
    parts = [bench.part(index % 3, tenant="a b'\"$(x);|") for index in range(40)]
    for part in parts:
        counted.submit(part)
    assert run.read_text().split() == ["sbatch"] * (1 + len(parts)), "its version, and the parts"
    run.unlink()
    names = [listed.name for listed in counted.list() if listed.state is State.HELD]
    assert sorted(names) == sorted(part.name for part in parts)
    assert len(counted.hosts()) == len(bench.lab.hosts)
    assert run.read_text().split() == ["squeue", "sinfo"]
