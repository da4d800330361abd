"""The placement of an experiment by `plan data`, from a forecast: the production planner, before
a run.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from msgspec import Struct

from topmast.experiments.past import past_of
from topmast.model.errors import InvalidInput
from topmast.model.fleet import Fleet
from topmast.slow.arrays import Floats
from topmast.slow.data.ablation import Ablation
from topmast.slow.data.access_log import Entry
from topmast.slow.data.demand import Terms, problem_of, with_placement
from topmast.slow.data.planner import Options, Planner
from topmast.slow.forecast.errors import Errors, tuned
from topmast.slow.forecast.history import History
from topmast.slow.forecast.scenarios import scenarios
from topmast.slow.forecast.smoothing import Forecast, Smoothing
from topmast.traces.trace import Trace

DAY_S = 86_400.0


class PlanOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """How to plan: from how many days of history, for what, for how long.

    ``scenarios``: for so many days drawn from the forecast; 0: for one day, the forecast's mean,
    or its ``quantile``.
    """

    history_days: int = 14
    scenarios: int = 6
    quantile: float | None = None
    ablation: Ablation = "soft-gpu"
    time_limit_s: float = 60.0
    terms: Terms = Terms(growth=0.7, replica_part=0.002, move_part=0.001)


class Planned(Struct, frozen=True):
    """A fleet with its data placed, what was read before, the errors of the forecast from it,
    and the planner's answer.
    """

    fleet: Fleet
    read: tuple[Entry, ...]
    errors: Errors
    answer: dict[str, Any]


def planned(trace: Trace, fleet: Fleet, workload: str, options: PlanOptions, seed: int) -> Planned:
    """Forecast the day from the days before, plan for it, and put the data there."""
    past = past_of(trace, fleet, workload, options.history_days, seed)
    smoothing, made, errors = tuned(past.history)
    days = _days(past.history, made, smoothing, errors, options, seed)[:, : len(past.readings)]
    expected = made.gpu_s()[: len(past.readings)] if options.scenarios else None
    replicas = {d.name: d.replicas for d in fleet.datasets}
    problem = problem_of(
        fleet, replicas, past.readings, past.kinds, days, DAY_S, options.terms, expected
    )
    solving = Options(ablation=options.ablation, time_limit_s=options.time_limit_s)
    answer = Planner(solving, time.process_time).plan(problem)
    if answer["status"] == "infeasible":
        raise InvalidInput(f"no placement: {answer['conflict']['why']}", field="placement")
    return Planned(with_placement(fleet, answer), past.entries, errors, answer)


def _days(
    history: History,
    made: Forecast,
    smoothing: Smoothing,
    errors: Errors,
    options: PlanOptions,
    seed: int,
) -> Floats:
    """What is planned for: GPU-seconds [s, i, k]."""
    if options.scenarios:
        rng = np.random.default_rng((seed, 0x5CE7))
        return scenarios(history, made, smoothing, options.scenarios, rng)
    if options.quantile is not None:
        return errors.at(made, options.quantile)[None]
    return made.gpu_s()[None]
