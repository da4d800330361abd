"""Predictions: nothing from the future leaks, the tree is the library's, and like jobs are told alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from tests.support.strategies import bounded
from topmast.experiments.predicting import known_jobs, prediction_figures
from topmast.predict import experience
from topmast.predict.experience import FEATURES, Experience, Known
from topmast.predict.growing import LEAST_JOBS_IN_LEAF, MOST_LEAVES, grow
from topmast.predict.replaying import replay
from topmast.predict.walking import leaves_of
from topmast.traces.generate import generate


def _job(group: str = "g", user: str = "ann", gpus: float = 1.0) -> Known:
    return Known(group, user, gpus, 1, 4.0, 16.0, "V100")


def _value(row: tuple[float, ...] | None, name: str) -> float:
    assert row is not None
    return row[1 + FEATURES.index(name)]


# --- experience --------------------------------------------------------------------------------------


def test_nothing_is_known_before_anybody_has_finished() -> None:
    """No guess is made up."""
    assert Experience().row(_job()) is None


def test_the_guess_is_that_of_the_nearest_kin() -> None:
    """The own group, else requests like it, else the user, else everybody."""
    known = Experience()
    known.learn(_job("g"), 100.0)
    known.learn(_job("h", gpus=2.0), 400.0)
    known.learn(_job("", user="bob", gpus=8.0), 900.0)
    seconds = {
        "its group": (_job("g", gpus=4.0), 100.0),
        "a request like it": (_job("new", gpus=2.0), 400.0),
        "its user": (_job("new", gpus=7.0), 200.0),
        "nobody like it": (_job("new", user="eve"), (100.0 * 400.0 * 900.0) ** (1 / 3)),
    }
    for story, (job, want_s) in seconds.items():
        row = known.row(job)
        assert row is not None, story
        assert math.exp(row[0]) == pytest.approx(want_s), story


def test_features_are_those_of_the_latest_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old runs are forgotten, but counted; the middle half decides, not an odd run."""
    monkeypatch.setattr(experience, "RUNS_KEPT", 5)
    known = Experience()
    for took_s in (9e9, 10.0, 10.0, 10.0, 10.0, 5000.0):
        known.learn(_job(), took_s)
    row = known.row(_job())
    assert _value(row, "group_runs") == 6
    assert _value(row, "group_middle") == pytest.approx(math.log(10.0))
    assert _value(row, "group_last") == pytest.approx(math.log(5000.0))


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was not seen for longest is forgotten first."""
    monkeypatch.setattr(experience, "KEPT", 6)
    known = Experience()
    for n in range(10):
        known.learn(_job(f"g{n}", f"u{n}"), 10.0)
    assert len(known.runs) == 6
    assert _value(known.row(_job("g9", "u9")), "group_runs") == 1
    assert _value(known.row(_job("g0", "u0")), "group_runs") == 0


# --- no leak -----------------------------------------------------------------------------------------


@bounded(60)
@given(st.integers(0, 2**32 - 1), st.integers(1, 79))
def test_what_comes_later_changes_no_row(seed: int, cut: int) -> None:
    """Rows of the first jobs are the same if all that had not finished by then is cut off, or lasts otherwise."""
    rng = np.random.default_rng(seed)
    jobs = [_job(f"g{g}", f"u{u}", float(n)) for g, u, n in rng.integers(0, 3, (80, 3)).tolist()]
    submit_s = np.sort(rng.integers(0, 50, 80)).astype(float)
    duration_s = rng.integers(1, 40, 80).astype(float)
    whole = replay(jobs, submit_s, duration_s)
    at_s = submit_s[cut]
    later = submit_s + duration_s > at_s
    changed = np.where(later, duration_s + rng.integers(0, 1000, 80), duration_s)
    other = replay(jobs, submit_s, changed)
    first = slice(0, cut + 1)
    assert (whole.known[first] == other.known[first]).all()
    assert (whole.guess[first] == other.guess[first]).all()
    assert (whole.features[first] == other.features[first]).all()


# --- the tree ----------------------------------------------------------------------------------------


def _rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.integers(-1, 40, (count, len(FEATURES))).astype(float)
    missed = np.where(rows[:, 4] > 10, 0.1, 2.0) * rng.normal(size=count)
    return rows, missed


@pytest.mark.parametrize("count", [1, 30, 120, 3000])
def test_the_tree_is_that_of_the_library(count: int) -> None:
    """As data it says what scikit-learn's own object says; one by one as all at once."""
    rows, missed = _rows(count, count)
    tree = grow(rows, missed)
    own = DecisionTreeRegressor(
        max_leaf_nodes=MOST_LEAVES, min_samples_leaf=LEAST_JOBS_IN_LEAF, random_state=0
    ).fit(rows, np.minimum(np.exp(missed), 100.0))
    leaves = leaves_of(tree, rows)
    assert np.array(tree.mean)[leaves] == pytest.approx(own.predict(rows))
    assert leaves.tolist() == [tree.leaf_of(row) for row in rows.tolist()]
    assert tree == grow(rows, missed), "the same rows give the same tree"
    assert tree.jobs == count


def test_what_is_likely_is_right_for_most() -> None:
    """No other ratio is within 25% of more jobs of a leaf."""
    rows, missed = _rows(400, 7)
    tree = grow(rows, missed)
    leaves = leaves_of(tree, rows)
    ratios = np.exp(missed)
    for leaf in np.unique(leaves).tolist():
        own = ratios[leaves == leaf]
        right = int((np.abs(tree.likely[leaf] / own - 1) <= 0.25 + 1e-9).sum())
        tries = np.concatenate([own * 1.25, own * 0.75, own])
        assert right >= max(int((np.abs(t / own - 1) <= 0.25 - 1e-9).sum()) for t in tries)


def test_without_jobs_the_tree_changes_no_guess() -> None:
    """One leaf that says 1."""
    tree = grow(np.zeros((0, len(FEATURES))), np.zeros(0))
    assert tree.mean[tree.leaf_of([0.0] * len(FEATURES))] == 1.0


def test_recurring_tasks_are_told_well() -> None:
    """Of generated tasks that recur three quarters and more are told within 25%; of others few can be."""
    trace, _ = generate("pai-like", 12_000, 3)
    figures = prediction_figures(trace)
    recurring, everybody = figures["within_25.recurring.tree"], figures["within_25.all.tree"]
    assert recurring is not None
    assert everybody is not None
    assert recurring >= 0.75
    assert everybody < recurring
    assert len(known_jobs(trace)) == 12_000
