"""A small run of the benchmark of predictions."""

from __future__ import annotations

from topmast.bench.predict import measure_predictions


def test_predictions() -> None:
    """A tree was grown on all jobs with a history, and everybody was told."""
    found = measure_predictions(2_000, seed=0)
    assert 1_000 < found["trained_on"] < 2_000
    assert found["leaves"] > 1
    assert found["train_s"] > 0
    assert found["predict_per_s"] > 0
    assert found["predict_one_us"] > 0
    assert 0.0 < found["within_25_recurring"] <= 1.0
