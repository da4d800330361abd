"""The judge of the run everywhere sees what it is there to see."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.everywhere.judge import BODY, Body, judge, read_bodies

FIRST = Body("j1", 0, 1, "a", began_s=10.0, seen_s=15.0, ended=False)
SECOND = Body("j1", 0, 2, "b", began_s=16.0, seen_s=20.0, ended=True)


@pytest.mark.parametrize(
    ("story", "second", "want_twice"),
    [
        ("one after the other", SECOND, 0),
        ("the second begins while the first lives", replace(SECOND, began_s=14.0), 1),
        ("of another task", replace(SECOND, began_s=14.0, task=1), 0),
        ("of another job", replace(SECOND, began_s=14.0, job="j2"), 0),
        ("again in the same attempt, even if later", replace(SECOND, attempt=1), 1),
    ],
)
def test_two_bodies_of_a_task_at_a_time_are_seen(story: str, second: Body, want_twice: int) -> None:
    found = judge([FIRST, second], {"j1": 2, "j2": 1})
    assert len(found.twice) == want_twice, story


def test_a_third_body_is_seen_beside_one_that_began_long_before() -> None:
    """Every two that follow each other are compared, in the order of their beginnings."""
    third = replace(FIRST, attempt=3, began_s=19.0, seen_s=19.5)
    assert len(judge([FIRST, SECOND, third], {"j1": 1}).twice) == 1


def test_a_job_finished_in_the_attempts_in_which_all_its_tasks_did() -> None:
    half = [replace(SECOND, attempt=1), replace(SECOND, attempt=1, task=1, ended=False)]
    whole = [replace(SECOND, attempt=2), replace(SECOND, attempt=2, task=1)]
    assert judge([*half, *whole], {"j1": 2, "j2": 1}).finished == {"j1": [2], "j2": []}


def test_a_body_writes_what_is_read(tmp_path: Path) -> None:
    """One that was killed has no end."""
    told = {"TOPMAST_JOB_ID": "j7", "TOPMAST_EPOCH": "3", "TOPMAST_HOST": "north-1.a"}
    env = {**os.environ, **told, "RECORDS": str(tmp_path)}
    subprocess.run(["sh", "-c", BODY], env={**env, "RANK": "0", "LASTS_S": "0.5"}, check=True)
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run(["sh", "-c", BODY], env={**env, "RANK": "1", "LASTS_S": "60"}, timeout=2.0)
    done, killed = read_bodies(tmp_path)
    assert (done.job, done.task, done.attempt, done.host, done.ended) == (
        "j7", 0, 3, "north-1.a", True,
    )  # fmt: skip
    assert 0.5 <= done.seen_s - done.began_s < 30.0
    assert (killed.task, killed.ended) == (1, False)
    assert killed.seen_s > killed.began_s
