"""Forecasts find again what generated histories were made with."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from tests.unit.slow.forecast.made import history
from topmast.slow.forecast.errors import chosen_smoothing, errors_of, tuned
from topmast.slow.forecast.scenarios import scenarios
from topmast.slow.forecast.smoothing import Smoothing, forecast, seasons

WEEK = (1.3, 1.2, 1.1, 1.0, 1.0, 0.7, 0.7)


def test_rates_and_sizes_are_found_again() -> None:
    made = forecast(history([40.0, 10.0], size_gpu_s=[100.0, 900.0]), Smoothing(0.02, 0.3, 3.0))
    assert made.rate == pytest.approx([40.0, 10.0], rel=0.1)
    # Half of the accesses are of each model.
    assert made.gpu_s() == pytest.approx(np.array([[2000.0] * 2, [4500.0] * 2]), rel=0.15)


def test_weekdays_are_found_again_and_the_forecast_is_for_its_own_day() -> None:
    weekly = history([60.0] * 5, week=WEEK, days=33)
    assert seasons(weekly) == pytest.approx(WEEK, rel=0.1)
    # Day 33 is the sixth of its week.
    assert forecast(weekly, Smoothing(0.02)).season == pytest.approx(0.7, rel=0.1)


def test_one_week_tells_no_season() -> None:
    assert (seasons(history([60.0], week=WEEK, days=13)) == 1.0).all()


def test_a_new_table_is_taken_to_be_like_its_namespace() -> None:
    rates = [30.0] * 4 + [2.0] * 4 + [0.0, 0.0]
    spaces = [0] * 4 + [1] * 4 + [0, 1]
    new = [0] * 8 + [28, 28]
    made = forecast(history(rates, namespace=spaces, first_day=new), Smoothing())
    assert made.rate[8] == pytest.approx(30.0, rel=0.15)
    assert made.rate[9] == pytest.approx(2.0, rel=0.5)


def test_a_table_of_three_days_is_between_its_own_days_and_its_kin() -> None:
    rates, new = [10.0] * 6 + [40.0], [0] * 6 + [25]
    some, much = (
        forecast(history(rates, first_day=new), Smoothing(0.02, k)).rate[6] for k in (1.0, 10.0)
    )
    assert 10.0 < much < some < 45.0


def test_what_is_gone_is_not_forecast() -> None:
    past = history([20.0, 20.0])
    past = msgspec.structs.replace(past, gone_day=np.array([27, 10_000]))
    assert forecast(past, Smoothing()).rate[0] == pytest.approx(0.0, abs=1e-9)


def test_sudden_demand_is_followed_the_faster_the_more_is_forgotten() -> None:
    before, after = history([5.0], days=20, seed=1), history([50.0], days=5, seed=2)
    joined = msgspec.structs.replace(
        before,
        days=25,
        day=np.concatenate([before.day, after.day + 20]),
        item=np.concatenate([before.item, after.item]),
        model=np.concatenate([before.model, after.model]),
        gpu_s=np.concatenate([before.gpu_s, after.gpu_s]),
    )
    slow, fast = (forecast(joined, Smoothing(f)).rate[0] for f in (0.02, 0.3))
    assert slow < 25.0 < fast


def test_the_smoothing_chosen_suits_the_history() -> None:
    """Tables that are all alike are best pooled; tables that differ are best told apart."""
    alike = chosen_smoothing(history([0.5] * 300), range(25, 28))
    apart = chosen_smoothing(history([0.2, 30.0] * 150), range(25, 28))
    assert alike.kin_days > apart.kin_days


def test_errors_are_those_of_days_that_were_not_seen() -> None:
    _, made, errors = tuned(history([20.0] * 50, spread=0.5))
    assert errors.total.wape < 0.1 < errors.by_item.wape < 0.4
    assert errors.total.bias == pytest.approx(1.0, abs=0.1)
    assert made.correction == pytest.approx([1.0, 1.0], abs=0.15)


def test_a_bias_seen_on_held_out_days_corrects_the_next() -> None:
    """Demand that grows by 8% a day is always forecast too low, until that is fed back."""
    past = history([50.0] * 20)
    growing = msgspec.structs.replace(past, gpu_s=past.gpu_s * 1.08**past.day)
    _, made, errors = tuned(growing)
    assert errors.total.bias < 0.95
    truth = 20 * 50.0 * 100.0 * 1.08**28
    assert abs(made.gpu_s().sum() - truth) < 0.6 * abs(
        forecast(growing, Smoothing(0.1)).gpu_s().sum() - truth
    )


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_a_quantile_is_exceeded_as_often_as_it_says(quantile: float) -> None:
    past = history([3.0] * 400, spread=1.0, days=21)
    _, made, errors = tuned(past.before(20))
    limit = errors.at(made, quantile).sum(axis=1)
    assert (past.demand_on(20).sum(axis=1) <= limit).mean() == pytest.approx(quantile, abs=0.07)


def test_first_time_tables_are_told_apart() -> None:
    born = [0] * 60 + [26] * 30
    errors = tuned(history([8.0] * 90, first_day=born))[2]
    assert 0.0 < errors.first_time_share < 0.4
    assert errors.first_time.wape < 1.0


def test_scenarios_are_drawn_around_the_forecast_and_repeat_with_their_seed() -> None:
    past = history([6.0] * 80, spread=1.2)
    smoothing, made, _ = tuned(past)
    days = scenarios(past, made, smoothing, 40, np.random.default_rng(1))
    assert days.shape == (40, 80, 2)
    assert days.mean(axis=0).sum() == pytest.approx(made.gpu_s().sum(), rel=0.1)
    # A day differs from the mean as days do: item by item by more than in sum.
    item = days.sum(axis=2).std(axis=0).mean() / days.sum(axis=2).mean()
    total = days.sum(axis=(1, 2)).std() / days.sum(axis=(1, 2)).mean()
    assert item > 0.4 > 3 * total
    again = scenarios(past, made, smoothing, 40, np.random.default_rng(1))
    assert (again == days).all()


def test_nothing_was_ever_read() -> None:
    past = history([0.0, 0.0])
    made = forecast(past, Smoothing())
    assert made.gpu_s().sum() == pytest.approx(0.0, abs=1e-6)
    assert scenarios(past, made, Smoothing(), 2, np.random.default_rng(0)).sum() == 0.0
    assert errors_of(past, [made], [27]).total.wape == 0.0


@pytest.mark.parametrize("held_out", [0, 28, 40])
def test_held_out_days_leave_a_day_to_forecast_from(held_out: int) -> None:
    with pytest.raises(ValueError, match="held-out"):
        tuned(history([1.0]), held_out)
