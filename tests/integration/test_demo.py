"""The demo as people run it: a real server, real processes, and everything it claims."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from topmast.demo import cast
from topmast.demo.digits import IMAGES, LABELS, export

COMMAND = [sys.executable, "-m", "topmast.app", "demo"]
TRAIN = [sys.executable, "-m", "topmast.demo.train", "--step-s", "0.01"]
LIMIT_S = 1500.0
"""More than the demo may take by its own limits: it is the demo that has to give up, not the test."""

pytestmark = pytest.mark.timeout(LIMIT_S + 60.0)


def left_over(state: Path) -> list[str]:
    """Processes that still have to do with a state folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE or process.pid == os.getpid():
                continue
            words = [*process.cmdline(), *process.environ().values()]
        except psutil.Error:
            continue
        if any(f"{state}{os.sep}" in word for word in words):
            found.append(" ".join(process.cmdline()))
    return found


# --- one performance, looked at from all sides ------------------------------------------------------


class Ran:
    """What one run of the demo left."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.done = subprocess.run(
            [*COMMAND, "--json", "--keep", "--state", str(state)],
            capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        self.document: dict[str, Any] = json.loads(self.done.stdout or "{}")

    def job(self, name: str) -> dict[str, Any]:
        return next(job for job in self.document["jobs"] if job["name"] == name)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return Ran(tmp_path_factory.mktemp("demo") / "state")


def test_it_ends_with_status_0(ran: Ran) -> None:
    """Everything it claims happened, or it would not say 0."""
    assert ran.done.returncode == 0, ran.done.stderr
    assert "did not happen" not in ran.done.stderr


def test_it_waits_until_every_job_has_ended(ran: Ran) -> None:
    """However slow the machine is; and it says where the time went."""
    assert (ran.document["gave_up"], ran.document["unfinished"]) == ("", [])
    took = ran.document["took"]
    assert took["server_s"] > 0.0
    assert took["jobs_s"] > 0.0
    assert sum(took.values()) < ran.document["wall_s"]


def test_the_document_has_every_key(ran: Ran) -> None:
    """One JSON document on stdout, and nothing else."""
    assert set(ran.document) == {
        "jobs", "preemptions", "resumes", "host_losses", "copies", "copied_bytes", "explained",
        "engines", "wall_s", "took", "gave_up", "unfinished",
    }  # fmt: skip
    for job in ran.document["jobs"]:
        assert set(job) == {
            "id", "name", "tenant", "band", "state", "region", "cluster", "attempts",
            "resumed_from_step", "final_loss",
        }  # fmt: skip


def test_jobs_of_three_tenants_train_everywhere(ran: Ran) -> None:
    """At least twelve jobs succeed, in three regions and five clusters, with a loss below chance."""
    trained = [job for job in ran.document["jobs"] if job["state"] == "SUCCEEDED"]
    assert len(trained) >= 12
    assert len({job["tenant"] for job in trained}) == 3
    assert len({job["region"] for job in trained}) == 3
    assert len({job["cluster"] for job in trained}) == 5
    assert all(0.0 < job["final_loss"] < 2.0 for job in trained), "chance is 2.3"
    assert {job["name"] for job in trained} >= set(cast.GANGS)


def test_preempted_jobs_resume_from_what_they_saved(ran: Ran) -> None:
    """One gave lent quota back, one made way for a higher band; neither began anew."""
    assert ran.document["preemptions"] >= 2
    assert ran.document["resumes"] >= 3
    for name in (cast.BORROWER, cast.MODEST):
        assert ran.job(name)["attempts"] == 2
        assert ran.job(name)["resumed_from_step"] >= 30


def test_the_gang_that_lost_a_host_went_on_elsewhere(ran: Ran) -> None:
    """A host was lost once, and its job had a second attempt from a checkpoint."""
    assert ran.document["host_losses"] == 1
    assert ran.job(cast.STRUCK)["attempts"] == 2
    assert ran.job(cast.STRUCK)["resumed_from_step"] >= 20


def test_data_was_copied_on_demand(ran: Ran) -> None:
    """Staged in one region, needed in three."""
    assert ran.document["copies"] >= 1
    assert ran.document["copied_bytes"] >= 1797 * 64 * 4
    assert ran.job(cast.AWAY)["region"] != cast.HOME


def test_what_can_never_fit_waits_and_is_explained(ran: Ran) -> None:
    """It has no place, no attempt and no loss."""
    assert ran.document["explained"] == 1
    job = ran.job(cast.IMPOSSIBLE)
    assert (job["state"], job["region"], job["attempts"]) == ("PENDING", None, 0)
    assert "TopologyDoesNotFit" in ran.done.stderr


def test_progress_is_told_while_it_runs(ran: Ran) -> None:
    """Plain lines on stderr when that is no terminal."""
    assert "\x1b" not in ran.done.stderr
    for words in ("placed in", "is copied to", "back in the queue", "was lost", "resumed from"):
        assert words in ran.done.stderr


def test_nothing_is_left_but_what_was_asked_for(ran: Ran) -> None:
    """No process, no address of a server; the folder is kept, for --keep was given."""
    assert left_over(ran.state) == []
    assert (ran.state / "journal.sqlite").exists()
    assert not (ran.state / "server.json").exists()


def test_a_folder_in_use_is_refused(ran: Ran) -> None:
    """The demo never works in a folder with other people's things in it."""
    again = subprocess.run(
        [*COMMAND, "--state", str(ran.state)], capture_output=True, text=True, check=False
    )
    assert again.returncode == 2
    assert "--state" in again.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_breaking_it_off_leaves_nothing(tmp_path: Path, number: int) -> None:
    """Ctrl-C in the middle: no process stays, and no file."""
    state = tmp_path / "state"
    demo = subprocess.Popen([*COMMAND, "--state", str(state)], stderr=subprocess.PIPE, text=True)
    assert demo.stderr is not None
    while "placed in" not in demo.stderr.readline():
        assert demo.poll() is None
    demo.send_signal(number)
    demo.communicate(timeout=30)
    assert demo.returncode == 130
    assert left_over(state) == []
    assert not state.exists() or not list(state.iterdir())


# --- the training script ----------------------------------------------------------------------------


@pytest.fixture
def digits(tmp_path: Path) -> dict[str, str]:
    """The environment of a task with the digits images."""
    export(tmp_path / "digits")
    return {
        **os.environ,
        "TOPMAST_DATASET_DIGITS": str(tmp_path / "digits"),
        "TOPMAST_CHECKPOINT_DIR": str(tmp_path),
        "OMP_NUM_THREADS": "1",
    }


def last_loss(output: str) -> str:
    """The last line that tells a step and its loss."""
    return [line for line in output.splitlines() if line.startswith("step ")][-1]


def test_digits_are_exported_whole(tmp_path: Path) -> None:
    """1,797 images of 8 by 8 as rows, scaled to 1, and as many labels."""
    import numpy as np

    export(tmp_path)
    images, labels = np.load(tmp_path / IMAGES), np.load(tmp_path / LABELS)
    assert images.shape == (1797, 64)
    assert (images.min(), images.max()) == (0.0, 1.0)
    assert sorted(set(labels.tolist())) == list(range(10))


def test_a_run_that_was_stopped_ends_where_another_would(digits: dict[str, str]) -> None:
    """SIGTERM in the middle, then on from the checkpoint: the same loss to the last digit."""
    saved = Path(digits["TOPMAST_CHECKPOINT_DIR"])
    whole = subprocess.run(
        [*TRAIN, "--steps", "120"], env=digits, capture_output=True, text=True, check=True
    )
    (saved / "checkpoint.npz").unlink()
    first = subprocess.Popen(
        [*TRAIN, "--steps", "120"], env=digits, stdout=subprocess.PIPE, text=True
    )
    assert first.stdout is not None
    while not first.stdout.readline().startswith("step 30 "):
        pass
    first.terminate()
    assert "stopped at step" in first.communicate(timeout=30)[0]
    assert first.returncode == 128 + signal.SIGTERM
    second = subprocess.run(
        [*TRAIN, "--steps", "120"], env=digits, capture_output=True, text=True, check=True
    )
    assert "resumed from step" in second.stdout
    assert last_loss(second.stdout) == last_loss(whole.stdout)


def gang(digits: dict[str, str], size: int, *options: str) -> list[subprocess.Popen[str]]:
    """The tasks of one gang, the last rank first: whoever starts first must wait."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(size)}
    return [
        subprocess.Popen(
            [*TRAIN, *options],
            env={**digits, **place, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True,
        )
        for rank in reversed(range(size))
    ]  # fmt: skip


def test_a_gang_descends_like_one_task(digits: dict[str, str]) -> None:
    """Gradients averaged over shares of a batch are those of the batch."""
    alone = subprocess.run(
        [*TRAIN, "--steps", "60"], env=digits, capture_output=True, text=True, check=True
    )
    Path(digits["TOPMAST_CHECKPOINT_DIR"], "checkpoint.npz").unlink()
    *others, first = gang(digits, 3, "--steps", "60")
    output = first.communicate(timeout=60)[0]
    assert [task.wait(30) for task in (*others, first)] == [0, 0, 0]
    assert (
        abs(float(last_loss(output).split()[3]) - float(last_loss(alone.stdout).split()[3])) < 1e-2
    )


def test_a_gang_that_is_stopped_saves_one_step(digits: dict[str, str]) -> None:
    """It is enough to tell one task: the gang stops as a whole, at the same step."""
    other, first = gang(digits, 2, "--steps", "1000")
    assert first.stdout is not None
    while not first.stdout.readline().startswith("step 20 "):
        pass
    other.terminate()
    words = [task.communicate(timeout=30)[0].strip().splitlines()[-1] for task in (other, first)]
    assert words[0] == words[1]
    assert words[0].startswith("stopped at step")


def test_a_task_that_loses_its_peer_waits_to_be_told(digits: dict[str, str]) -> None:
    """Its host is gone, so the gang will be stopped: it saves what it has, and does not call it a failure."""
    other, first = gang(digits, 2, "--steps", "1000")
    assert first.stdout is not None
    while not first.stdout.readline().startswith("step 20 "):
        pass
    other.kill()
    other.communicate()
    first.terminate()
    assert "stopped at step" in first.communicate(timeout=30)[0]
    assert first.returncode == 128 + signal.SIGTERM
