"""Progress of an attempt in closed form, against a plain walk through time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topmast.sim.progress import Progress


def walk(progress: Progress, until_s: float) -> tuple[float, float, float | None]:
    """Work done by ``until_s``, the work of the last checkpoint, and when that was complete."""
    now, done, kept, kept_at_s = progress.begun_s, 0.0, 0.0, None
    while now < until_s and done < progress.work_s - 1e-9:
        stretch_s = min(progress.interval_s, (progress.work_s - done) / progress.rate)
        if now + stretch_s > until_s:
            return done + (until_s - now) * progress.rate, kept, kept_at_s
        now, done = now + stretch_s, done + stretch_s * progress.rate
        if done < progress.work_s - 1e-9:
            now += progress.checkpoint_s
            if now <= until_s:
                kept, kept_at_s = done, now
    return done, kept, kept_at_s


def end_of(progress: Progress) -> float:
    """When a plain walk has done all the work."""
    now, done = progress.begun_s, 0.0
    while True:
        stretch_s = min(progress.interval_s, (progress.work_s - done) / progress.rate)
        now, done = now + stretch_s, done + stretch_s * progress.rate
        if done >= progress.work_s - 1e-9:
            return now
        now += progress.checkpoint_s


@given(
    st.floats(0, 1e4), st.floats(1, 1e4), st.floats(0.25, 4), st.floats(50, 2e3),
    st.sampled_from((0.0, 5.0, 60.0)), st.floats(0, 2e4),
)  # fmt: skip
def test_the_closed_form_agrees_with_a_walk(
    begun_s: float, work_s: float, rate: float, interval_s: float, checkpoint_s: float, at_s: float
) -> None:
    """Work done and work kept at any time before the end are what a walk through all stretches finds."""
    progress = Progress(begun_s, work_s, rate, interval_s, checkpoint_s)
    end_s = progress.end_s()
    assert end_s == pytest.approx(end_of(progress), abs=interval_s * 1e-6 + checkpoint_s + 1e-6)
    now = min(at_s, end_s)
    done, _, _ = walk(progress, now)
    assert progress.done_s(now) == pytest.approx(done, abs=1e-5)
    saved = progress.kept(now)
    if saved is not None:
        assert saved[0] <= progress.done_s(now) + 1e-6
        assert begun_s < saved[1] <= now
    assert now <= progress.saved_s(now) <= now + checkpoint_s + 1e-9


def test_a_checkpoint_that_is_being_written_is_waited_for() -> None:
    """Told to stop while it writes, a job finishes that checkpoint instead of beginning another."""
    progress = Progress(100.0, 10_000.0, 1.0, 600.0, 5.0)
    assert progress.saved_s(702.0) == pytest.approx(705.0)
    assert progress.saved_s(400.0) == pytest.approx(405.0)
    assert progress.saved_s(50.0) == 50.0
    assert progress.kept(704.0) is None
    assert progress.kept(705.0) == (600.0, 705.0)
