"""The contract of engines: what Topmast relies on, whichever engine runs a cluster.

To hold another engine to it, add a function to `engines.ENGINES`.
"""

import io
import os
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from tests.contract.engines import ENGINES, Rig, alive, eventually, opened, order, scripts_of
from topmast.model.errors import Unavailable
from topmast.model.job import Checkpoint
from topmast.model.messages import (
    Checkpointed,
    Progress,
    Resumed,
    TaskExited,
    TaskList,
    TaskLost,
    TaskStarted,
)
from topmast.model.states import DATA_ERROR
from topmast.ports import LogPage

GANGS = 200
GANGS_AT_ONCE = 4
FOREVER = "echo up $$\nwhile true; do sleep 0.05 || true; done"


@pytest.fixture(params=ENGINES)
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    """An open engine."""
    with opened(ENGINES[request.param], tmp_path) as rig:
        yield rig


# --- starting and ending ----------------------------------------------------------------------


def test_a_task_starts_and_ends_with_its_code(rig: Rig) -> None:
    """The script's status is the task's, and its output is in the log."""
    rig.engine.start_gang(order("j1", "echo hello; echo there >&2; exit 7"))
    rig.started("j1")
    assert rig.end_of("j1").code == 7
    assert rig.log("j1") == "hello\nthere\n"


@pytest.mark.parametrize(
    ("script", "want_code"),
    [("true", 0), ("false\necho not reached", 1), ("false | true", 1), ("kill -KILL $$", 137)],
)
def test_a_script_fails_with_its_first_failure(rig: Rig, script: str, want_code: int) -> None:
    """Scripts run under -euo pipefail; a signal N is 128 + N."""
    rig.engine.start_gang(order("j1", script))
    assert rig.end_of("j1").code == want_code
    assert "not reached" not in rig.log("j1")


def test_a_gang_knows_its_ranks_and_hosts(rig: Rig) -> None:
    """Each task is told who it is, and all agree on where to meet."""
    said = "echo $RANK/$WORLD_SIZE $LOCAL_RANK $TOPMAST_HOST $TOPMAST_HOSTS $CUDA_VISIBLE_DEVICES $TOPMAST_GPUS_PER_TASK"
    rig.engine.start_gang(order("j1", f"{said}; echo $MASTER_ADDR:$MASTER_PORT >&2", tasks=4))
    for rank in range(4):
        assert rig.end_of("j1", rank).code == 0
    logs = [rig.log("j1", rank).splitlines() for rank in range(4)]
    assert [log[0] for log in logs] == [
        "0/4 0 h0 h0,h1 0 1",
        "1/4 0 h1 h0,h1 1 1",
        "2/4 1 h0 h0,h1 2 1",
        "3/4 1 h1 h0,h1 3 1",
    ]
    assert len({log[1] for log in logs}) == 1


def test_a_task_sees_its_own_environment_and_nothing_of_ours(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Secrets of the server stay there; the job's variables arrive, but cannot hide ours."""
    monkeypatch.setenv("SERVER_SECRET", "hidden")
    rig.datasets["web-crawl.v2"] = tmp_path / "web"
    gang = order(
        "j1",
        "env",
        envs={"LR": "0.1 $(id) `id`\n;", "TOPMAST_JOB_ID": "j99"},
        datasets=("web-crawl.v2",),
        checkpoint=Checkpoint(path="deep/er"),
    )
    rig.engine.start_gang(gang)
    assert rig.end_of("j1").code == 0
    log = rig.log("j1")
    assert "SERVER_SECRET" not in log
    assert "LR=0.1 $(id) `id`\n;\n" in log
    assert "TOPMAST_JOB_ID=j1\n" in log
    assert f"TOPMAST_DATASET_WEB_CRAWL_V2={tmp_path / 'web'}\n" in log
    assert f"TOPMAST_CHECKPOINT_DIR={tmp_path / 'checkpoints' / 'j1' / 'deep' / 'er'}\n" in log


@pytest.mark.parametrize(
    ("story", "spec"),
    [
        ("a dataset that is not here", {"datasets": ("nowhere",)}),
        ("a work folder that is not in the store", {"workdir": "sha256:0"}),
        ("a checkpoint path that leads out", {"checkpoint": Checkpoint(path="../j2")}),
        ("a variable that is none", {"envs": {"A=B": "x"}}),
    ],
)
def test_what_cannot_start_is_lost(rig: Rig, story: str, spec: dict[str, Any]) -> None:
    """A task that cannot run here is lost at once, with the reason."""
    rig.engine.start_gang(order("j1", "true", **spec))
    assert rig.lost("j1").error


def test_nothing_outlives_the_script(rig: Rig) -> None:
    """What a script leaves running is ended before the end is posted."""
    rig.engine.start_gang(order("j1", "setsid sleep 1000 & echo left $!; sleep 0.1"))
    assert rig.end_of("j1").code == 0
    assert not alive(int(rig.log("j1").split()[1]))


def test_output_is_read_by_the_page(rig: Rig) -> None:
    """While the task runs and after its end; without output there is no page."""
    rig.engine.start_gang(order("j1", f"echo 0123456789\n{FOREVER}"))
    rig.says("j1", "up")
    assert rig.engine.read_log("j1", 1, 0, 0, 4) == LogPage(b"0123", 4, complete=False)
    assert rig.engine.read_log("j1", 1, 1, 0, 4) is None
    assert rig.engine.read_log("j1", 2, 0, 0, 4) is None
    rig.engine.stop("j1", 1, 0.0)
    rig.end_of("j1")

    def rest() -> LogPage | None:
        return rig.engine.read_log("j1", 1, 0, 4, 1 << 20)

    eventually(lambda: (page := rest()) is not None and page.complete, "all of it is there")
    page = rest()
    assert page is not None
    assert page.data.startswith(b"456789\nup ")
    assert page.next_offset == 4 + len(page.data)
    assert rig.engine.read_log("j1", 1, 0, 1 << 30, 4) == LogPage(b"", page.next_offset, True)


def test_what_a_cluster_leaves_behind_can_be_read_without_it(rig: Rig) -> None:
    """It left the fleet: its output is there, and which jobs ran."""
    rig.engine.start_gang(order("j7", "echo hello", epoch=3))
    assert rig.news.wait(TaskExited, job="j7").code == 0
    eventually(lambda: "hello" in rig.log("j7", epoch=3), "the output is there")
    rig.engine.close()
    kind, folder = type(rig.engine), rig.folder / "engine"
    page = kind.read_stored_log(folder, "j7", 3, 0, 0, 100)
    assert page is not None
    assert page.data == b"hello\n"
    assert kind.read_stored_log(folder, "j7", 4, 0, 0, 100) is None
    assert kind.stored_epochs(folder) == {"j7": 3}
    rig.open()


# --- once, and not twice -----------------------------------------------------------------------


def test_an_attempt_starts_once(rig: Rig) -> None:
    """Repeated orders find the first: while it runs, after its end, after a restart of Topmast."""
    gang = order("j1", "echo ran; while [ ! -e $TOPMAST_CHECKPOINT_DIR/go ]; do sleep 0.02; done")
    rig.engine.start_gang(gang)
    rig.engine.start_gang(gang)
    rig.started("j1")
    rig.engine.start_gang(gang)
    rig.reopen()
    rig.engine.start_gang(gang)
    rig.started("j1")
    (rig.folder / "checkpoints" / "j1" / "go").touch()
    rig.end_of("j1")
    rig.engine.start_gang(gang)
    rig.news.wait(TaskExited, 2, job="j1")
    rig.reopen()
    rig.engine.start_gang(gang)
    rig.news.wait(TaskExited, 2, job="j1")
    assert rig.log("j1") == "ran\n"


def test_the_next_epoch_is_another_attempt(rig: Rig) -> None:
    """It runs in a folder of its own, and finds the checkpoints of the one before."""
    script = "ls; touch here; ls $TOPMAST_CHECKPOINT_DIR; touch $TOPMAST_CHECKPOINT_DIR/step-1"
    for epoch in (1, 2):
        rig.engine.start_gang(order("j1", script, epoch=epoch))
        rig.news.wait(TaskExited, job="j1", epoch=epoch)
    assert rig.log("j1", epoch=1) == ""
    assert rig.log("j1", epoch=2) == "step-1\n"


def test_what_was_stopped_first_does_not_start(rig: Rig) -> None:
    """An order to start that arrives after the stop finds the attempt over."""
    rig.engine.stop("j1", 1, 0.0)
    rig.engine.start_gang(order("j1", "echo ran", tasks=2))
    for rank in (0, 1):
        assert rig.lost("j1", rank).error == "stopped before it started"
    assert rig.log("j1") == ""


def test_an_order_of_a_leader_that_was_replaced_is_refused(rig: Rig) -> None:
    """Also after a restart: it may not know that it was replaced."""
    rig.engine.order(order("j1", "echo one"), leader=2)
    rig.end_of("j1")
    rig.engine.order(order("j2", "echo two"), leader=1)
    rig.reopen()
    rig.engine.order(order("j2", "echo two"), leader=1)
    rig.engine.order(order("j3", "echo three"), leader=2)
    rig.end_of("j3")
    assert rig.log("j2") == ""
    assert not rig.news.all(TaskStarted, job="j2")


def test_a_leader_that_was_replaced_takes_nothing_over(rig: Rig) -> None:
    """It may be halted between its election and its look at the folder."""
    rig.leader = 2
    rig.reopen()
    rig.leader = 1
    rig.engine.close()
    with pytest.raises(Unavailable, match="is leader 2"):
        rig.open()
    rig.engine.close()
    rig.leader = 2
    rig.open()
    rig.engine.order(order("j1", "exit 3"), leader=2)
    assert rig.end_of("j1").code == 3


# --- stopping and suspending -------------------------------------------------------------------


def test_a_stop_leaves_time_for_a_checkpoint(rig: Rig) -> None:
    """SIGTERM, and the grace to react to it."""
    script = f"trap 'sleep 0.3; echo saved; exit 0' TERM\n{FOREVER}"
    rig.engine.start_gang(order("j1", script, tasks=2))
    rig.says("j1", "up", 0)
    rig.says("j1", "up", 1)
    rig.engine.stop("j1", 1, 20.0)
    for rank in (0, 1):
        rig.end_of("j1", rank)
        assert "saved" in rig.log("j1", rank)


def test_an_end_after_a_stop_says_so(rig: Rig) -> None:
    """Whoever hears of it may not know of the stop: it may have been restored from a backup."""
    rig.engine.start_gang(order("j1", "sleep 1000 &\nexit 0"))  # what is left is told to end
    assert rig.end_of("j1").stopped is UNSET
    rig.engine.start_gang(order("j2", f"trap 'exit 0' TERM\n{FOREVER}"))
    rig.says("j2", "up")
    for job in ("j1", "j2"):
        rig.engine.stop(job, 1, 20.0)
    ended = rig.end_of("j2")
    assert (ended.code, ended.stopped) == (0, True)
    rig.reopen()
    assert rig.end_of("j1").stopped is UNSET, "it ended by itself, whatever was ordered later"
    assert rig.end_of("j2").stopped is True
    rig.engine.list_tasks()
    tasks = rig.news.wait(TaskList).tasks
    assert [(task.job, task.code, task.stopped) for task in tasks] == [
        ("j1", 0, UNSET), ("j2", 0, True),
    ]  # fmt: skip


def test_a_child_of_the_shell_has_the_grace_too(rig: Rig) -> None:
    """The shell dies of SIGTERM; the trainer that it runs may still write its checkpoint."""
    trainer = "trap 'sleep 0.3; echo saved; exit 0' TERM; echo up; while sleep 0.05; do :; done"
    rig.engine.start_gang(order("j1", f'bash -c "{trainer}"\necho after'))
    rig.says("j1", "up")
    rig.engine.stop("j1", 1, 20.0)
    rig.end_of("j1")
    assert rig.log("j1").endswith("saved\n")


STUBBORN = {
    "ignores SIGTERM": f"trap '' TERM\n{FOREVER}",
    "has a grandchild in a session of its own": (
        f"(trap '' TERM; setsid bash -c 'setsid sleep 1000 & echo up $!; wait') &\n{FOREVER}"
    ),
}


@pytest.mark.parametrize("story", STUBBORN)
def test_a_stop_ends_everything(rig: Rig, story: str) -> None:
    """Who does not go in time is killed, wherever in the tree; the end is posted after that."""
    rig.engine.start_gang(order("j1", STUBBORN[story]))
    rig.says("j1", "up")
    eventually(lambda: scripts_of(rig.folder), "the script runs")
    rig.engine.stop("j1", 1, 0.2)
    assert rig.end_of("j1").code > 128
    assert not scripts_of(rig.folder)


def test_a_second_stop_can_be_shorter(rig: Rig) -> None:
    """The grace can be cut, not stretched."""
    rig.engine.start_gang(order("j1", f"trap 'echo heard' TERM\n{FOREVER}"))
    rig.says("j1", "up")
    rig.engine.stop("j1", 1, 1000.0)
    rig.says("j1", "heard")
    rig.engine.stop("j1", 1, 0.0)
    assert rig.end_of("j1").code == 137


COUNTING = "i=0; while true; do i=$((i+1)); echo $i > count; echo up; sleep 0.01; done"


def test_a_suspended_task_stands_still(rig: Rig) -> None:
    """Not one more step until it is resumed; then it goes on where it was."""
    script = COUNTING.replace("> count", "> $TOPMAST_CHECKPOINT_DIR/count")
    rig.engine.start_gang(order("j1", script))
    rig.says("j1", "up")
    rig.engine.suspend("j1", 1)
    still(rig)
    counted = rig.log("j1")
    rig.engine.resume("j1", 1)
    eventually(lambda: len(rig.log("j1")) > len(counted), "it goes on")


def still(rig: Rig) -> None:
    """Wait until every process of the tasks is stopped."""

    def is_still() -> bool:
        processes = scripts_of(rig.folder)
        return bool(processes) and all(process.status() == "stopped" for process in processes)

    eventually(is_still, "all processes stand still")


def test_a_suspended_task_can_be_stopped(rig: Rig) -> None:
    """It is woken to hear of it."""
    rig.engine.start_gang(order("j1", f"trap 'echo saved; exit 0' TERM\n{FOREVER}"))
    rig.says("j1", "up")
    rig.engine.suspend("j1", 1)
    still(rig)
    rig.engine.stop("j1", 1, 20.0)
    rig.end_of("j1")
    assert rig.log("j1").endswith("saved\n")


# --- setup and work folder ---------------------------------------------------------------------


def test_setup_runs_once_per_host(rig: Rig) -> None:
    """The other tasks of the host wait for it."""
    rig.engine.start_gang(
        order("j1", "cat done", tasks=4, setup="echo set up; sleep 0.2; echo yes > done")
    )
    for rank in range(4):
        assert rig.end_of("j1", rank).code == 0
        assert "yes\n" in rig.log("j1", rank)
    logs = "".join(rig.log("j1", rank) for rank in range(4))
    assert logs.count("set up\n") == 2


def test_a_failed_setup_fails_its_tasks(rig: Rig) -> None:
    """The script does not run, and the error says which step failed."""
    rig.engine.start_gang(order("j1", "echo ran", tasks=3, setup="exit 9"))
    for rank in range(3):
        end = rig.end_of("j1", rank)
        assert end.code == 9
        assert "setup exited with 9" in end.error
        assert "ran" not in rig.log("j1", rank)


def test_setup_is_shown_where_people_look(rig: Rig) -> None:
    """The first task on each host does it, and an error of any task leads to that one's log."""
    for turn in range(3):
        job = f"j{turn}"
        rig.engine.start_gang(order(job, "true", tasks=4, setup="echo setting up; exit 3"))
        for rank in range(4):
            first = rank % 2  # the tasks alternate between two hosts
            error = rig.end_of(job, rank).error
            assert error == (
                f"task {first}: setup exited with 3; see `topmast logs {job} --task {first}`"
            )
        assert [rig.log(job, rank) for rank in range(4)] == ["setting up\n"] * 2 + [""] * 2


def archive(file: Path, members: dict[str, str]) -> Path:
    with tarfile.open(file, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content.encode()))
    return file


def test_the_work_folder_is_there(rig: Rig, tmp_path: Path) -> None:
    """Each attempt gets its own copy of the snapshot, and runs in it."""
    members = {"train.sh": "echo training", "lib/a": "x"}
    rig.blobs["sha256:1"] = archive(tmp_path / "blob", members)
    rig.engine.start_gang(order("j1", "cat lib/a; bash train.sh", tasks=2, workdir="sha256:1"))
    for rank in (0, 1):
        assert rig.end_of("j1", rank).code == 0
        assert rig.log("j1", rank) == "xtraining\n"


def test_a_snapshot_cannot_lead_out(rig: Rig, tmp_path: Path) -> None:
    """An archive with a path out of the folder fails the task, once for all, and writes nothing."""
    rig.blobs["sha256:1"] = archive(tmp_path / "blob", {"../../../../../../evil": "x"})
    rig.engine.start_gang(order("j1", "echo ran", workdir="sha256:1"))
    end = rig.end_of("j1")
    assert "unpacking" in end.error
    assert end.code == DATA_ERROR
    assert "leads out of the folder" in rig.log("j1", 0)
    assert not list(tmp_path.rglob("evil"))


# --- reports -----------------------------------------------------------------------------------

REPORTING = """
$TOPMAST_PYTHON - <<'END'
from topmast.report import progress
progress(resumed_from=10)
progress(step=11, loss=0.5, bad=float("nan"))
progress(step=12, checkpoint=True)
progress(step=13, loss=0.25)
END
echo '{"step": 99' >> "$TOPMAST_PROGRESS_FILE"
"""


def test_reports_arrive(rig: Rig) -> None:
    """Steps, checkpoints and resumes are posted before the end, which has the last of them."""
    rig.engine.start_gang(order("j1", REPORTING, envs={"PYTHONPATH": source()}))
    end = rig.end_of("j1")
    assert end.code == 0, rig.log("j1")
    assert (end.report.step, end.report.metrics) == (13, {"loss": 0.25})
    progress = rig.news.all(Progress)[-1]
    assert (progress.step, progress.metrics) == (13, {"loss": 0.25})
    assert rig.news.all(Checkpointed)[-1].step == 12
    assert rig.news.all(Resumed)[-1].step == 10


def source() -> str:
    import topmast

    return os.fspath(Path(topmast.__file__).parents[1])


def test_a_running_task_is_followed(rig: Rig) -> None:
    """Progress is posted while the task runs, whatever else is in its file."""
    garbage = r'printf "\xff\0garbage\n[1]\n{\"step\": 1e999}\n" >> "$TOPMAST_PROGRESS_FILE"'
    line = """echo '{"step": 5, "checkpoint": true}' >> "$TOPMAST_PROGRESS_FILE" """
    rig.engine.start_gang(order("j1", f"{garbage}\n{line}\n{FOREVER}"))
    assert rig.news.wait(Checkpointed, job="j1").step == 5
    assert not rig.news.all(TaskExited)


def test_a_task_may_spoil_its_report_but_not_its_end(rig: Rig) -> None:
    """A named pipe in the place of its progress file stops nobody."""
    rig.engine.start_gang(
        order("j1", 'rm -f "$TOPMAST_PROGRESS_FILE"; mkfifo "$TOPMAST_PROGRESS_FILE"; exit 4')
    )
    assert rig.end_of("j1").code == 4


# --- restarts of Topmast -----------------------------------------------------------------------


def test_tasks_survive_a_restart(rig: Rig) -> None:
    """They are adopted, keep their processes, and their ends are accounted."""
    rig.engine.start_gang(order("j1", FOREVER, tasks=2))
    rig.says("j1", "up", 0)
    rig.says("j1", "up", 1)
    before = [rig.log("j1", rank) for rank in (0, 1)]
    rig.reopen()
    assert [(t.job, t.rank, t.running) for t in rig.truth().tasks] == [
        ("j1", 0, True),
        ("j1", 1, True),
    ]
    assert [rig.log("j1", rank) for rank in (0, 1)] == before
    rig.engine.stop("j1", 1, 0.0)
    for rank in (0, 1):
        rig.end_of("j1", rank)
    assert not scripts_of(rig.folder)


def test_ends_while_nobody_watched_are_told(rig: Rig) -> None:
    """What ended in between is posted, and is part of the truth."""
    rig.engine.start_gang(
        order("j1", "until [ -e $TOPMAST_CHECKPOINT_DIR/go ]; do sleep 0.02; done; exit 5")
    )
    rig.started("j1")
    rig.engine.close()
    (rig.folder / "checkpoints" / "j1" / "go").touch()
    eventually(lambda: not scripts_of(rig.folder), "the task ended")
    rig.open()
    assert rig.end_of("j1").code == 5
    (task,) = rig.truth().tasks
    assert (task.running, task.code) == (False, 5)


def test_the_truth_of_an_idle_engine_is_empty(rig: Rig) -> None:
    """Nothing runs, nothing is down."""
    truth = rig.truth()
    assert (truth.tasks, truth.down_hosts) == ((), ())
    assert not rig.news.all(TaskLost)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_two_hundred_gangs_of_four_run_once_each(rig: Rig) -> None:
    """As many at a time as the hosts have GPUs for; each task on its host, each end told once."""
    script = """
    mkdir "$TOPMAST_CHECKPOINT_DIR/$RANK" || echo again
    echo $TOPMAST_HOST $TOPMAST_HOSTS
    exit $RANK
    """
    for first in range(0, GANGS, GANGS_AT_ONCE):
        jobs = [f"j{number}" for number in range(first, first + GANGS_AT_ONCE)]
        for job in jobs:
            rig.engine.start_gang(order(job, script, tasks=4))
        for job in jobs:
            for rank in range(4):
                assert rig.end_of(job, rank).code == rank
                assert rig.log(job, rank) == f"h{rank % 2} h0,h1\n"
    ends = [(end.job, end.rank) for end in rig.news.all(TaskExited)]
    assert len(ends) == len(set(ends)) == 4 * GANGS
    assert not rig.news.all(TaskLost)


def test_checkpoints_in_a_loop_are_told_now_and_then(rig: Rig) -> None:
    """Each is journalled for good, so a task cannot have many; but the last one counts."""
    script = """
    for step in $(seq 1 300); do
      echo '{"step": '$step', "checkpoint": true, "resumed_from": '$step'}' >> "$TOPMAST_PROGRESS_FILE"
      sleep 0.005
    done
    """
    began_s = time.monotonic()
    rig.engine.start_gang(order("j1", script))
    rig.end_of("j1")
    most = 2 + (time.monotonic() - began_s) / 2.0
    steps = [news.step for news in rig.news.all(Checkpointed, job="j1")]
    resumed = [news.step for news in rig.news.all(Resumed, job="j1")]
    assert 1 <= len(steps) <= most
    assert 1 <= len(resumed) <= most
    assert steps[-1] == resumed[-1] == 300
