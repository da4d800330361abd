"""How long a job is expected to run: hints, what it took before, limits, guesses."""

import pytest

from tests.support.build import job
from topmast.fast.queue import durations
from topmast.fast.queue.durations import Durations
from topmast.fast.queue.record import JobRecord
from topmast.model.job import JobSpec

RECURRING = job(group="g", user="ann")


def _learned(*runs_s: float, spec: JobSpec = RECURRING) -> Durations:
    known = Durations(default_s=100.0)
    for run_s in runs_s:
        known.learn(JobRecord("j1", 1, spec, 0.0, held_s=run_s))
    return known


@pytest.mark.parametrize(
    ("story", "spec", "want_s"),
    [
        ("nothing is known", job(), 100.0),
        ("a hint", job(duration_s=7.0), 7.0),
        ("a limit", job(time_limit_s=50.0), 50.0),
        ("a hint beyond the limit", job(duration_s=70.0, time_limit_s=50.0), 50.0),
        ("it recurs", job(group="g", user="ann"), 20.0),
        ("it recurs, and has a hint", job(group="g", user="ann", duration_s=3.0), 3.0),
        ("it recurs, and has a limit", job(group="g", user="ann", time_limit_s=5.0), 5.0),
        ("another user's", job(group="g", user="bob"), 100.0),
        ("another group", job(group="h", user="ann"), 100.0),
        ("no group", job(user="ann"), 100.0),
    ],
)
def test_what_is_expected(story: str, spec: JobSpec, want_s: float) -> None:
    """The hint, else the median of like runs, else the limit, else the default."""
    assert _learned(10.0, 30.0, 20.0).expected_s(spec) == want_s


def test_what_is_left_is_what_was_not_kept() -> None:
    """Work that a checkpoint saved need not be done again; lost work must."""
    known = _learned()
    record = JobRecord("j1", 1, job(duration_s=60.0), 0.0, held_s=50.0, kept_s=20.0, worked_s=20.0)
    assert known.remaining_s(record) == 40.0
    record.worked_s = 90.0
    assert known.remaining_s(record) == 0.0


def test_only_the_latest_runs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that became slower is expected to be slow."""
    monkeypatch.setattr(durations, "RUNS_KEPT", 3)
    assert _learned(1.0, 1.0, 1.0, 9.0, 9.0).expected_s(RECURRING) == 9.0


def test_the_memory_of_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group not seen for longest is forgotten."""
    monkeypatch.setattr(durations, "GROUPS_KEPT", 2)
    known = _learned(5.0)
    for group in ("h", "i"):
        known.learn(JobRecord("j1", 1, job(group=group), 0.0, held_s=6.0))
    assert known.expected_s(RECURRING) == 100.0
    assert known.expected_s(job(group="h")) == 6.0
