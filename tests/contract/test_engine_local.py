"""What only the local engine promises, for hosts, supervisors and Topmast itself being killed."""

import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from msgspec import UNSET
from msgspec.structs import replace as replace_struct

from tests.contract.engines import (
    HOSTS,
    News,
    Rig,
    alive,
    eventually,
    kill,
    local,
    local_with,
    of_folder,
    opened,
    order,
    scripts_of,
)
from topmast.adapters.engines.local import files, processes, stops
from topmast.adapters.engines.local.engine import LocalEngine
from topmast.adapters.engines.local.files import Layout
from topmast.adapters.engines.local.hosts import Host, launch_agents
from topmast.adapters.engines.local.options import LocalOptions
from topmast.model.messages import (
    HostClosed,
    HostDown,
    HostOpened,
    HostUp,
    TaskExited,
    TaskList,
    TaskLost,
    TaskStarted,
)
from topmast.model.plan import Seat
from topmast.ports import Engine

FOREVER = "echo up $$\nwhile true; do sleep 0.05 || true; done"
REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """An open local engine with two hosts."""
    with opened(local, tmp_path) as rig:
        yield rig


def layout(rig: Rig) -> Layout:
    return Layout(rig.folder / "engine")


def agent_of(rig: Rig, host: str) -> int:
    """The process that is a host."""
    record = files.read_json(layout(rig).host(host) / "agent.json")
    assert record
    pid: int = record["pid"]
    return pid


def supervisor_of(rig: Rig, task: str) -> int:
    note = files.read_json(layout(rig).claim(task))
    assert note
    pid: int = note["pid"]
    return pid


# --- what tasks see ----------------------------------------------------------------------------


def test_a_task_does_not_run_in_the_environment_of_topmast(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it installs with pip does not change the server; the server's Python has a name of its own."""
    own = Path(sys.executable).parent
    assert (own.parent / "pyvenv.cfg").is_file(), "these tests run in a virtual environment"
    monkeypatch.setenv("PATH", f"{own}:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", str(own.parent))
    monkeypatch.setenv("PYTHONPATH", "/nowhere")
    monkeypatch.setenv("SECRET", "of the server")
    rig.engine.start_gang(
        order("j1", "type -ap pip python python3 || true; $TOPMAST_PYTHON -m topmast.report; env")
    )
    assert rig.end_of("j1").code == 0
    said = rig.log("j1")
    programs = [line for line in said.splitlines() if line.startswith("/")]
    assert programs
    assert not [line for line in programs if Path(line).parent.resolve() == own.resolve()]
    seen = {line.partition("=")[0] for line in said.splitlines() if "=" in line}
    assert {"PATH", "TOPMAST_PYTHON", "TOPMAST_RANK"} <= seen
    ours = {name for name in seen if name.startswith(("TOPMAST_", "MASTER_"))}
    ours |= {"HOME", "LANG", "PATH", "PYTHONUNBUFFERED", "RANK", "LOCAL_RANK", "WORLD_SIZE"}
    ours |= {"CUDA_VISIBLE_DEVICES"}
    assert seen - ours <= {"PWD", "OLDPWD", "SHLVL", "_"}, "what bash adds"


# --- hosts that die ----------------------------------------------------------------------------

ESCAPING = f"setsid sleep 1000 & (setsid setsid sleep 1000 &)\n{FOREVER}"


def test_a_host_dies_with_all_it_ran(rig: Rig) -> None:
    """HostDown comes when nothing of its tasks lives; the other host is not touched."""
    rig.engine.start_gang(order("j1", ESCAPING, tasks=2))
    rig.says("j1", "up", 0)
    rig.says("j1", "up", 1)
    rig.news.clear()
    kill(agent_of(rig, "h0"))
    rig.news.wait(HostDown, host="h0")
    assert not of_task(rig, "j1.1.0")
    assert len(of_task(rig, "j1.1.1")) >= 3
    rig.lost("j1", 0)
    rig.news.wait(HostUp, host="h0")
    rig.engine.start_gang(order("j2", "true"))
    assert rig.end_of("j2").code == 0
    assert not rig.news.all(TaskLost, rank=1)


def of_task(rig: Rig, task: str) -> list[int]:
    return processes.marked({str(layout(rig).claim(task))})


def test_a_host_and_its_supervisors_die_at_once(rig: Rig) -> None:
    """With nobody left to clear up, the engine finds what is left by its marks."""
    rig.engine.start_gang(order("j1", ESCAPING))
    rig.says("j1", "up")
    supervisor, agent = supervisor_of(rig, "j1.1.0"), agent_of(rig, "h0")
    os.kill(agent, 19)  # SIGSTOP: it cannot clear up after the supervisor
    kill(supervisor)
    kill(agent)
    rig.news.wait(HostDown, host="h0")
    assert not of_task(rig, "j1.1.0")


def test_a_host_whose_agent_is_halted_takes_no_work_until_it_goes_on(rig: Rig) -> None:
    """It is told at once and with the truth, and what runs there runs on."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.says("j1", "up")
    agent = agent_of(rig, "h0")
    os.kill(agent, signal.SIGSTOP)
    closed = rig.news.wait(HostClosed, host="h0")
    assert f"kill -CONT {agent}" in closed.why
    rig.engine.list_tasks()
    truth = rig.news.wait(TaskList)
    assert truth.closed_hosts == {"h0": closed.why}
    assert [(task.job, task.running) for task in truth.tasks] == [("j1", True)]
    os.kill(agent, signal.SIGCONT)
    rig.news.wait(HostOpened, host="h0")
    assert [one.host for one in rig.news.all(HostClosed)] == ["h0"], "once, and no other host"
    rig.news.clear()
    rig.engine.list_tasks()
    assert rig.news.wait(TaskList).closed_hosts is UNSET


def test_a_host_dies_whose_supervisor_hangs(rig: Rig) -> None:
    """A supervisor that does not react is killed too."""
    rig.engine.start_gang(order("j1", ESCAPING))
    rig.says("j1", "up")
    os.kill(supervisor_of(rig, "j1.1.0"), 19)
    kill(agent_of(rig, "h0"))
    rig.news.wait(HostDown, host="h0")
    assert not of_task(rig, "j1.1.0")
    assert not alive(supervisor_of(rig, "j1.1.0"))


def test_a_host_that_died_while_nobody_watched(rig: Rig) -> None:
    """It is told at the next start, its tasks are lost, and it returns."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.says("j1", "up")
    rig.engine.close()
    kill(agent_of(rig, "h0"))
    rig.open()
    rig.news.wait(HostDown, host="h0")
    rig.lost("j1")
    rig.news.wait(HostUp, host="h0")
    assert not scripts_of(rig.folder)
    (task,) = rig.truth().tasks
    assert (task.running, task.code) == (False, None)
    rig.engine.start_gang(order("j1", FOREVER))
    rig.news.wait(TaskLost, 2, job="j1")


def test_a_killed_supervisor_is_a_lost_task(rig: Rig) -> None:
    """The agent clears up, and the loss is posted when nothing is left; never a second start."""
    rig.engine.start_gang(order("j1", ESCAPING))
    rig.says("j1", "up")
    kill(supervisor_of(rig, "j1.1.0"))
    rig.lost("j1")
    assert not scripts_of(rig.folder)
    rig.engine.start_gang(order("j1", ESCAPING))
    rig.news.wait(TaskLost, 2, job="j1")
    assert rig.log("j1").count("up") == 1


def test_an_agent_that_cannot_start_is_a_host_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks are lost, with the reason, instead of waiting for ever."""
    monkeypatch.setattr("sys.executable", "/bin/false")
    with opened(local, tmp_path) as rig:
        rig.news.wait(HostDown, host="h0")
        rig.engine.start_gang(order("j1", "true"))
        assert "agent" in rig.lost("j1").error


def test_an_agent_nobody_needs_leaves(rig: Rig) -> None:
    """Without tasks and without Topmast it ends after a while; that is no death."""
    rig.news.wait(HostUp, host="h0")
    rig.news.wait(HostUp, host="h1")
    rig.engine.close()
    eventually(lambda: not of_folder(rig.folder / "engine"), "agents leave")
    rig.open()
    rig.news.wait(HostUp, host="h0")
    assert not rig.news.all(HostDown)


def test_an_agent_whose_socket_was_tidied_away_is_found_again(rig: Rig) -> None:
    """It listens anew for the next Topmast, and what it runs goes on."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.says("j1", "up")
    agent = agent_of(rig, "h0")
    rig.engine.close()
    (layout(rig).host("h0") / "agent.sock").unlink()
    rig.open()
    rig.started("j1")
    rig.engine.start_gang(order("j2", "exit 3"))
    assert rig.end_of("j2").code == 3
    assert agent_of(rig, "h0") == agent
    assert not rig.news.all(HostDown)


# --- what is nobody's fault ---------------------------------------------------------------------


def test_no_host_is_blamed_for_a_server_without_files(rig: Rig) -> None:
    """A plan that this process cannot write says nothing of the hosts that were to run it."""
    for host in HOSTS:
        rig.news.wait(HostUp, host=host)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    held: list[int] = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY))
        rig.engine.start_gang(order("j1", "true"))
        lost = rig.lost("j1")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in held:
            os.close(fd)
    assert held
    assert ("Too many open files" in lost.error, lost.blameless) == (True, True)
    rig.engine.start_gang(order("j2", "true"))
    assert rig.end_of("j2").code == 0


def test_a_host_that_dies_is_to_blame(rig: Rig) -> None:
    """As is one that is not there: another attempt is to go elsewhere."""
    rig.engine.start_gang(order("j1", FOREVER))
    rig.says("j1", "up")
    kill(agent_of(rig, "h0"))
    assert rig.lost("j1").blameless is UNSET
    gang = order("j2", "true")
    rig.engine.start_gang(replace_struct(gang, seats=(Seat("trainer", 0, "nowhere", (0,)),)))
    assert rig.lost("j2").blameless is False


# --- tasks that halt who watches over them -------------------------------------------------------

HALTING = f"kill -STOP $PPID\n{FOREVER}"
HALTS_FOR_EVER = f"trap '' TERM; while true; do kill -STOP $PPID; done &\n{FOREVER}"


def test_a_task_that_halts_its_supervisor_can_be_stopped(rig: Rig) -> None:
    """Who orders a stop wakes the supervisor first; it then does what it always does."""
    rig.engine.start_gang(order("j1", HALTING))
    rig.says("j1", "up")
    supervisor = psutil.Process(supervisor_of(rig, "j1.1.0"))
    eventually(lambda: supervisor.status() == psutil.STATUS_STOPPED, "the supervisor is halted")
    rig.engine.stop("j1", 1, 20.0)
    assert rig.end_of("j1").code in (137, 143)
    assert not of_task(rig, "j1.1.0")


def test_a_task_that_halts_its_supervisor_again_and_again_can_be_stopped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor that does not obey is killed, and its agent sees to the rest."""
    monkeypatch.setattr(stops, "OBEY_S", 0.5)
    rig.engine.start_gang(order("j1", HALTS_FOR_EVER))
    rig.started("j1")
    rig.engine.stop("j1", 1, 0.0)
    eventually(
        lambda: rig.news.all(TaskExited, job="j1") or rig.news.all(TaskLost, job="j1"),
        "the task ends",
    )
    assert not of_task(rig, "j1.1.0")
    assert rig.truth().down_hosts == ()


def test_a_supervisor_that_never_obeys_is_killed(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that a debugger holds: waking it does not help."""
    monkeypatch.setattr(stops, "OBEY_S", 0.5)
    monkeypatch.setattr(processes, "wake_if_same", lambda who: None)
    rig.engine.start_gang(order("j1", HALTING))
    rig.says("j1", "up")
    rig.engine.stop("j1", 1, 0.3)
    assert "without a record" in rig.lost("j1").error
    assert not of_task(rig, "j1.1.0")


def test_a_task_that_halts_its_agent_too_can_be_stopped(rig: Rig) -> None:
    """Its host is shown for what it is, and works again after the stop."""
    rig.news.wait(HostUp, host="h0")
    agent = agent_of(rig, "h0")
    engine = rig.engine
    assert engine.host_process("h0") == (agent, False)
    rig.engine.start_gang(order("j1", f"kill -STOP {agent}\n{HALTING}"))
    rig.says("j1", "up")
    eventually(lambda: engine.host_process("h0") == (agent, True), "the agent is halted")
    rig.engine.stop("j1", 1, 20.0)
    assert rig.end_of("j1").code in (137, 143)
    assert engine.host_process("h0") == (agent, False)
    assert not rig.news.all(HostDown)


def test_a_task_that_halts_its_supervisor_can_be_suspended(rig: Rig) -> None:
    """Otherwise it would keep its GPUs in the turns of others."""
    rig.engine.start_gang(order("j1", HALTING))
    rig.says("j1", "up")
    script = psutil.Process(int(rig.log("j1").split()[1]))
    rig.engine.suspend("j1", 1)
    eventually(lambda: script.status() == psutil.STATUS_STOPPED, "the script stands still")


# --- Topmast dies ------------------------------------------------------------------------------

OWNER = """
import sys, time
from pathlib import Path
from tests.contract.engines import Rig, local, order
rig = Rig(Path(sys.argv[1]), local)
rig.open()
tasks = int(sys.argv[2])
rig.engine.start_gang(order("j1", sys.argv[3], tasks=tasks))
for rank in range(tasks):
    rig.says("j1", "up", rank)
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of an engine that is not open here yet; nothing is left running in it."""
    yield tmp_path
    for process in of_folder(tmp_path):
        process.kill()


def test_tasks_survive_a_killed_topmast(folder: Path) -> None:
    """SIGKILL for the owner: another adopts its tasks, with the same processes."""
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, folder, "3", FOREVER],
        cwd=REPO,
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdout=subprocess.PIPE,
    )
    assert owner.stdout
    with owner:
        assert owner.stdout.readline() == b"ready\n"
        before = sorted(p.pid for p in scripts_of(folder / "engine") if p.name() == "bash")
        assert len(before) == 3
        owner.kill()
    with opened(local, folder) as rig:
        assert [task.running for task in rig.truth().tasks] == [True] * 3
        rig.engine.start_gang(order("j1", FOREVER, tasks=3))
        rig.news.wait(TaskStarted, 6, job="j1")
        after = sorted(p.pid for p in scripts_of(folder / "engine") if p.name() == "bash")
        assert after == before
        rig.engine.stop("j1", 1, 0.0)
        for rank in range(3):
            assert rig.end_of("j1", rank).code in (137, 143)


def test_a_start_that_was_cut_short_is_completed(rig: Rig) -> None:
    """Only some of the tasks were asked for when Topmast died: a repetition starts the others."""
    gang = order("j1", FOREVER, tasks=8)
    engine = rig.engine
    assert isinstance(engine, LocalEngine)
    agents = engine._agents
    ask = agents._ask
    agents._ask = lambda host, attempt, ranks: ask(host, attempt, ranks[:2])  # type: ignore[method-assign]
    rig.news.wait(HostUp, host="h0")
    rig.news.wait(HostUp, host="h1")
    engine.start_gang(gang)
    rig.news.wait(TaskStarted, 4)
    rig.reopen()
    assert len(rig.truth().tasks) == 4
    rig.engine.start_gang(gang)
    for rank in range(8):
        rig.says("j1", "up", rank)
    assert not rig.news.all(TaskLost)
    assert all(rig.log("j1", rank).count("up") == 1 for rank in range(8))


def test_two_engines_start_an_attempt_once(rig: Rig) -> None:
    """A second one on the same folder finds the tasks of the first, and cannot repeat them."""
    second = Rig(rig.folder, local)
    second.open()
    try:
        gang = order("j1", f"trap 'exit 3' TERM\n{FOREVER}", tasks=4)
        rig.engine.start_gang(gang)
        second.engine.start_gang(gang)
        for rank in range(4):
            rig.started("j1", rank)
            second.started("j1", rank)
            rig.says("j1", "up", rank)
        second.engine.stop("j1", 1, 20.0)
        for rank in range(4):
            assert rig.end_of("j1", rank).code == second.end_of("j1", rank).code == 3
            assert rig.log("j1", rank).count("up") == 1
    finally:
        second.engine.close()


def test_an_order_that_no_host_was_told_of_is_obeyed_once_an_engine_comes(rig: Rig) -> None:
    """Killed between the two, an engine leaves it on the disk, and the next one has hosts look."""
    rig.engine.start_gang(order("j1", f"trap 'exit 3' TERM\n{FOREVER}"))
    rig.started("j1")
    rig.says("j1", "up")
    rig.engine.close()
    files.write_json(layout(rig).stop("j1.1"), {"grace_s": 20.0, "at_s": 0.0})
    rig.open()
    assert rig.end_of("j1").code == 3


# --- the other promises ------------------------------------------------------------------------


def test_a_process_with_the_number_of_another_is_spared(tmp_path: Path) -> None:
    """A claim from before a reboot, or whose number was given away, kills nobody."""
    innocent = subprocess.Popen(["sleep", "1000"])
    try:
        who = processes.identity(innocent.pid)
        processes.kill_if_same({**who, "start_ticks": 1})
        processes.kill_if_same({**who, "boot": "another"})
        processes.kill_if_same({})
        assert innocent.poll() is None
        processes.kill_if_same(who)
        assert innocent.wait(10) == -9
    finally:
        innocent.kill()
        innocent.wait()


def test_old_attempts_are_forgotten_but_not_repeated(tmp_path: Path) -> None:
    """Their files go; that they ran does not."""

    def forgetful(rig: Rig) -> Engine:
        return local_with(rig, LocalOptions(linger_s=1.0, keep_attempts=1), HOSTS)

    with opened(forgetful, tmp_path) as rig:
        for job in ("j1", "j2"):
            rig.engine.start_gang(order(job, "echo ran"))
            rig.end_of(job)
        rig.reopen()
        assert [task.job for task in rig.truth().tasks] == ["j2"]
        eventually(lambda: rig.engine.read_log("j1", 1, 0, 0, 1) is None, "the log goes")
        rig.engine.start_gang(order("j1", "echo ran"))
        assert "not run twice" in rig.lost("j1").error
        rig.reopen()
        rig.engine.start_gang(order("j1", "echo ran"))
        assert "not run twice" in rig.lost("j1").error


def test_deep_folders_are_no_obstacle(tmp_path: Path) -> None:
    """A unix socket has a path of at most 107 bytes; a state folder need not."""
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    with opened(local, deep) as rig:
        rig.engine.start_gang(order("j1", "exit 3"))
        assert rig.end_of("j1").code == 3


def test_what_is_private_stays_private(rig: Rig) -> None:
    """Files are for their owner; values of variables and scripts are in no argument list."""
    rig.engine.start_gang(order("j1", FOREVER, envs={"KEY": "s3cret"}))
    rig.says("j1", "up")
    files = [path for path in (rig.folder / "engine").rglob("*") if path.is_file()]
    assert any("s3cret" in path.read_text("utf-8", errors="replace") for path in files)
    for path in files:
        assert path.stat().st_mode & 0o077 == 0, path
    sockets = list((rig.folder / "engine").rglob("agent.sock"))
    assert sockets
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in sockets)
    assert (rig.folder / "engine").stat().st_mode & 0o077 == 0
    for process in psutil.process_iter(["cmdline"]):
        assert not any("s3cret" in word for word in process.info["cmdline"] or ())


def test_an_agent_holds_on_to_nothing_of_ours(rig: Rig) -> None:
    """It has its own session, no terminal, and none of our files and variables."""
    with (rig.folder / "ours").open("w"):
        rig.news.wait(HostUp, host="h0")
        rig.news.wait(HostUp, host="h1")
        agent = psutil.Process(agent_of(rig, "h0"))
        assert os.getsid(agent.pid) != os.getsid(0)
        assert agent.terminal() is None
        assert agent.environ().keys() <= {"LC_CTYPE"}
        opened_files = {Path(file.path).name for file in agent.open_files()}
        assert opened_files <= {"agent.lock", "agents.log"}


def test_an_agent_is_small() -> None:
    """It imports none of the libraries: a host is a few megabytes, and starts in milliseconds."""
    code = (
        "import sys, json; sys.path.append(sys.argv[1]);"
        "import topmast.adapters.engines.local.agent;"
        "print(json.dumps(sorted(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, REPO / "src"], capture_output=True, check=True
    )
    heavy = {"msgspec", "numpy", "psutil", "structlog", "asyncio", "subprocess", "tarfile"}
    assert not heavy & set(json.loads(said.stdout))


def test_a_large_cluster_starts_hosts_when_needed(tmp_path: Path) -> None:
    """A thousand virtual hosts cost nothing until a task comes."""

    def large(rig: Rig) -> Engine:
        names = [f"h{number}" for number in range(1000)]
        return local_with(rig, LocalOptions(linger_s=1.0), names)

    with opened(large, tmp_path) as rig:
        rig.news.wait(HostUp, 1000)
        assert not of_folder(tmp_path / "engine")
        rig.engine.start_gang(order("j1", "exit 4", tasks=2))
        assert [rig.end_of("j1", rank).code for rank in (0, 1)] == [4, 4]
        assert rig.truth().down_hosts == ()


def test_a_twin_of_an_agent_leaves(rig: Rig) -> None:
    """Two launches of one host leave one agent."""
    rig.news.wait(HostUp, host="h0")
    before = agent_of(rig, "h0")
    assert launch_agents(layout(rig), ["h0"], sys.executable, 1.0).wait(30) == 0
    host = Host("h0", layout(rig))
    assert host.connect()
    host.disconnect()
    assert agent_of(rig, "h0") == before


def test_the_order_of_hosts_and_ends_is_told_again(rig: Rig) -> None:
    """After a restart the engine repeats who is up and what ended: nobody may have heard it."""
    rig.engine.start_gang(order("j1", "exit 2", tasks=2))
    for rank in (0, 1):
        rig.end_of("j1", rank)
    rig.reopen()
    for host in HOSTS:
        rig.news.wait(HostUp, host=host)
    for rank in (0, 1):
        assert rig.end_of("j1", rank).code == 2
    assert isinstance(rig.truth(), TaskList)
    assert len(rig.news.all(TaskExited)) == 2
    assert isinstance(rig.news, News)


def test_a_folder_that_was_moved_while_its_hosts_run_is_refused(tmp_path: Path, rig: Rig) -> None:
    """They write where it was: ends would never be known, and the jobs would run once more."""
    moved = tmp_path / "moved"
    link = tmp_path / "link"
    here = [Host(name, layout(rig)) for name in HOSTS]
    eventually(lambda: all(host.process for host in here), "the hosts are there")
    layout(rig).root.rename(moved)
    hosts = [Host(name, Layout(moved)) for name in HOSTS]
    assert [host.old_root(moved) for host in hosts] == [layout(rig).root] * len(HOSTS)
    moved.rename(layout(rig).root)
    link.symlink_to(layout(rig).root)
    assert [host.old_root(link) for host in [Host(name, Layout(link)) for name in HOSTS]] == [
        None
    ] * len(HOSTS)
