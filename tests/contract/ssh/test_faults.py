"""What becomes of gangs when hosts behind SSH are cut off, restarted, or lose their server."""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.engines import Rig, order, site_of
from tests.crash.far import living
from tests.support.sshlab import SshLab, until
from topmast.adapters.engines.far.ssh import SshEngine, SshOptions
from topmast.adapters.engines.registry import read_options
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.job import Checkpoint
from topmast.model.messages import (
    HostClosed,
    HostDown,
    HostOpened,
    HostUp,
    StartGang,
    TaskExited,
    TaskLost,
)
from topmast.model.plan import Seat

NUMBERS = itertools.count()
LEASE_S = 12.0
GRACE = Checkpoint(grace_s=2.0)
"""So long before the end of the lease the runner sends SIGTERM."""
TURNS = "for turn in $(seq 1 {turns}); do echo turn $turn; sleep 0.1; done; echo over"


@pytest.fixture
def folder() -> str:
    """What is below the home of the account on the hosts."""
    return f".f{next(NUMBERS)}"


@pytest.fixture
def rig(lab: SshLab, folder: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """An open engine over the hosts of the lab, with a short lease or the one that is asked for."""
    given = {
        **lab.options, "folder": folder, "poll_s": "0.2", "command_s": "4", "connect_s": "4",
        "lease_s": getattr(request, "param", str(LEASE_S)),
    }  # fmt: skip
    options = read_options(given, SshOptions, engine="ssh", field="options")
    hosts = tuple(HostSpec(name, "H100", 8) for name in lab.names)
    cluster = ClusterSpec("east-1", hosts, "ssh", given)
    rig = Rig(
        tmp_path, lambda rig: SshEngine(cluster, rig.folder / "engine", site_of(rig), options)
    )
    rig.open()
    for name in lab.names:
        rig.news.wait(HostUp, host=name)
    yield rig
    rig.engine.close()
    for host in lab.hosts.values():
        host.end_runners()


def gang(rig: Rig, job: str, script: str, *hosts: str) -> StartGang:
    """A gang with a task on each of the hosts, marked so that its processes are found."""
    made = order(
        job,
        script,
        len(hosts),
        envs={"CHAOS_GANG": job, "CHAOS": f"{rig.folder}/evidence"},
        checkpoint=GRACE,
    )
    seats = tuple(Seat("trainer", rank, host, (rank,)) for rank, host in enumerate(hosts))
    return StartGang(made.job, made.epoch, made.spec, made.region, made.cluster, seats)


def alive(rig: Rig, job: str) -> list[int]:
    """The processes of the first task of a gang."""
    return living(str(rig.folder), job, 0)


def test_a_gang_meets_at_the_address_of_its_first_host(rig: Rig, lab: SshLab) -> None:
    """Other hosts reach it: rank 1 connects to where rank 0 listens."""
    meet = (
        'if [ $RANK = 0 ]; then do="s.bind((a, p)); s.listen(); s.accept(); print(a)"\n'
        'else do="import time\n'
        "while s.connect_ex((a, p)):\n  time.sleep(0.1); s.close(); s = socket.socket()\n"
        'print(a)"; fi\n'
        'exec $TOPMAST_PYTHON -c "import socket, os; s = socket.socket(); '
        "a, p = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n$do\"\n"
    )
    rig.engine.start_gang(gang(rig, "j1", meet, "ssh1", "ssh2"))
    for rank in (0, 1):
        assert rig.end_of("j1", rank).code == 0, rig.log("j1", rank)
        assert rig.log("j1", rank).strip() == lab.hosts["ssh1"].address


def test_a_cut_shorter_than_the_lease_costs_nothing(rig: Rig, lab: SshLab) -> None:
    """The task goes on, all of its output arrives, and its end is told with its code."""
    rig.engine.start_gang(gang(rig, "j1", TURNS.format(turns=60), "ssh0"))
    rig.says("j1", "turn 1")
    lab.hosts["ssh0"].cut()
    time.sleep(2.0)
    lab.hosts["ssh0"].mend()
    assert rig.end_of("j1").code == 0
    rig.says("j1", "over")
    assert rig.log("j1").splitlines() == [*(f"turn {n}" for n in range(1, 61)), "over"]


def test_a_cut_longer_than_the_lease_ends_the_task_there_first(rig: Rig, lab: SshLab) -> None:
    """It is told lost only when the runner, which hears nothing of us, has ended it."""
    rig.engine.start_gang(gang(rig, "j1", TURNS.format(turns=10_000), "ssh0"))
    rig.engine.start_gang(gang(rig, "j2", TURNS.format(turns=10_000), "ssh1"))
    for job in ("j1", "j2"):
        rig.says(job, "turn 1")
    lab.hosts["ssh0"].cut()
    try:
        until(lambda: not alive(rig, "j1"), "the lease does not end it")
        assert not rig.news.all(TaskLost), "we cannot know that yet"
        until(lambda: bool(rig.news.all(TaskLost, job="j1")), "it is not told lost", 60.0)
        rig.news.wait(HostDown, host="ssh0")
        assert alive(rig, "j2"), "other hosts are no worse for it"
    finally:
        lab.hosts["ssh0"].mend()
    rig.news.wait(HostUp, 2, host="ssh0")
    rig.engine.stop("j2", 1, 1.0)
    rig.end_of("j2")


def test_what_outlives_its_runner_is_told_dead_when_it_is(rig: Rig, lab: SshLab) -> None:
    """Somebody killed all of the runner, so that nothing on the host keeps to the lease."""
    script = f"trap '' TERM; {TURNS.format(turns=10_000)}"
    rig.engine.start_gang(gang(rig, "j1", script, "ssh0"))
    rig.says("j1", "turn 1")
    tasks = set(alive(rig, "j1"))
    lab.hosts["ssh0"].end_runners()
    assert tasks & set(alive(rig, "j1")), "it lives without its runner"
    until(lambda: bool(rig.news.all(TaskLost, job="j1")), "it is not told lost", 60.0)
    assert not alive(rig, "j1")
    assert "its runner was silent" in rig.lost("j1").error


@pytest.mark.parametrize("rig", [str(LEASE_S), "none"], indirect=True)
def test_a_task_that_deletes_our_folder_ends_nothing(rig: Rig, folder: str) -> None:
    """It is made anew, and what runs is found by its processes: it goes on, and ends with its code."""
    script = TURNS.format(turns=150)
    rig.engine.start_gang(gang(rig, "j2", TURNS.format(turns=10_000), "ssh0"))
    rig.says("j2", "turn 1")  # what has not begun yet may be lost with the folder
    rig.engine.start_gang(gang(rig, "j1", f"rm -rf ~/{folder}; {script}; exit 5", "ssh0"))
    assert rig.end_of("j1").code == 5
    rig.says("j2", "turn 150")
    rig.says("j1", "over")
    assert not rig.news.all(TaskLost)
    closed = [news.why for news in rig.news.all(HostClosed, host="ssh0")]
    assert all("was deleted while it was in use" in why for why in closed)
    rig.engine.stop("j2", 1, 1.0)
    rig.end_of("j2")
    until(lambda: not alive(rig, "j2"), "it does not end")
    rig.engine.start_gang(gang(rig, "j3", "echo again", "ssh0"))
    assert rig.end_of("j3").code == 0


def test_a_restart_of_the_host_ends_its_tasks_once(rig: Rig, lab: SshLab) -> None:
    """Nothing comes back after it, and the host takes new work."""
    rig.engine.start_gang(gang(rig, "j1", f"echo began; {TURNS.format(turns=10_000)}", "ssh2"))
    rig.says("j1", "began")
    lab.hosts["ssh2"].reboot()
    assert not alive(rig, "j1")
    until(lambda: bool(rig.news.all(TaskLost, job="j1")), "it is not told lost", 60.0)
    rig.news.wait(HostOpened, host="ssh2")
    rig.engine.start_gang(gang(rig, "j2", "echo again", "ssh2"))
    assert rig.end_of("j2").code == 0
    assert not alive(rig, "j1")
    assert rig.log("j1").count("began") == 1


def test_topmast_and_sshd_may_be_away_at_the_same_time(rig: Rig, lab: SshLab) -> None:
    """What ended meanwhile is told when both are there."""
    rig.engine.start_gang(gang(rig, "j1", TURNS.format(turns=20), "ssh0"))
    rig.says("j1", "turn 1")
    rig.engine.close()
    lab.hosts["ssh0"].kill_sshd()
    time.sleep(3.0)
    rig.open()
    lab.hosts["ssh0"].start_sshd()
    rig.news.wait(TaskExited, job="j1", code=0)
    rig.says("j1", "over")
