"""What an experiment is: a data file of `configs/`, read and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from importlib import resources
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from topmast.experiments.names import experiment_names
from topmast.experiments.placement import PlacementOptions
from topmast.experiments.planned import PlanOptions
from topmast.experiments.workloads import Workload
from topmast.model.errors import InvalidInput


class Scale(Struct, frozen=True, forbid_unknown_fields=True):
    """How large: jobs, over how many days, how many seeds; and where it takes less of a sweep.

    ``limit``: only the first jobs of each trace.
    """

    jobs: int
    seeds: int
    days: float | None = None
    limit: int | None = None
    loads: tuple[float | None, ...] | None = None
    signals_s: tuple[float | None, ...] | None = None


class StandIn(Struct, frozen=True, forbid_unknown_fields=True):
    """What is generated where a published trace is not there: a kind of trace, with so many jobs
    as the scale says.

    ``load``: the work of all jobs over what the fleet can do while they arrive; None: as they
    come. ``times``: so many times as many jobs. ``gpus``: of those only the ones with so many
    GPUs; None: all.
    """

    kind: str
    load: float | None = None
    times: int = 1
    gpus: int | None = None


class Files(Struct, frozen=True, forbid_unknown_fields=True):
    """A trace and a fleet on which cases run.

    ``throughputs``: a table of speeds below the folder of published data, with pairs; without
    that folder it is not known how two jobs share GPUs, and the settings of the world say it for
    all.

    ``trace``: a file below the folder of published data, in ``format``; None: only ``stand_in``
    there is. ``fleet``: the document of a fleet file. ``host_gpus``: what one task holds at most;
    None: what the largest host has.
    """

    fleet: Mapping[str, Any]
    stand_in: StandIn
    trace: str | None = None
    format: str = "topmast"
    host_gpus: int | None = None
    throughputs: str | None = None


class Measure(StrEnum):
    """What a case does with its jobs."""

    SIMULATE = "simulate"
    PREDICT = "predict"
    """Tell how long they run."""


class Case(Struct, frozen=True, forbid_unknown_fields=True):
    """One contender: a profile, with options laid over it (``sim.`` ones are the world's).

    ``plan``: its data is placed by the planner from a forecast; ``placement``: by the simple
    placement from the day's own demand. ``signals``: whether it goes by a load signal, so that it
    runs once for every age of one. ``files``: on which of the experiment's files it runs; empty:
    on its workload. Without ``overheads`` nothing but work takes time. An ``oracle`` knows the
    total service of all jobs from the start, for the Gittins index. ``workload``: jobs of its
    own; ``against``: the case that its savings are over.
    """

    name: str
    profile: str = ""
    set: dict[str, str] = {}
    placement: PlacementOptions | None = None
    plan: PlanOptions | None = None
    signals: bool = False
    files: str = ""
    overheads: bool = True
    oracle: bool = False
    workload: Workload | None = None
    against: str = ""
    measure: Measure = Measure.SIMULATE


class Check(Struct, frozen=True, forbid_unknown_fields=True):
    """A published figure, and what ours must be.

    ``public``: what the public implementation prints; ours must be ``within`` this part of it.
    ``than``: ours is how many times larger the figure of that case is. On files that are not
    there, or cut, nothing is checked.
    """

    case: str
    figure: str
    published: str = ""
    at_most: float | None = None
    at_least: float | None = None
    public: float | None = None
    within: float | None = None
    than: str | None = None


class Experiment(Struct, frozen=True, forbid_unknown_fields=True):
    """Contenders on the same files, over loads and ages of the load signal (None: as they come).

    ``placement`` is made for the cases that have none of their own; None leaves data where it is.
    ``savings``: figures of which it is told, too, by which part they are below those of the case
    a case is ``against``. ``parts``: the experiments that one is made of; it has nothing else
    then.
    """

    name: str
    title: str
    question: str
    scales: dict[str, Scale] = {}
    cases: tuple[Case, ...] = ()
    figures: tuple[str, ...] = ()
    savings: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    workload: str = ""
    files: dict[str, Files] = {}
    notes: tuple[str, ...] = ()
    loads: tuple[float | None, ...] = (None,)
    signals_s: tuple[float | None, ...] = (None,)
    placement: PlacementOptions | None = None
    checks: tuple[Check, ...] = ()
    plots: tuple[str, ...] = ()


def all_figures(experiment: Experiment) -> tuple[str, ...]:
    """What is told of each run."""
    return (*experiment.figures, *(f"saving.{name}" for name in experiment.savings))


def read_experiments(names: Sequence[str]) -> list[Experiment]:
    """The experiments ``names``, and in place of one that has parts, those; each once."""
    found: dict[str, Experiment] = {}
    for name in names:
        experiment = read_experiment(name)
        for part in [read_experiment(p) for p in experiment.parts] or [experiment]:
            found[part.name] = part
    return list(found.values())


def read_experiment(name: str) -> Experiment:
    """The experiment ``name``. Raises InvalidInput for one that does not exist."""
    names = experiment_names()
    if name not in names:
        near = get_close_matches(name, names, 1)
        hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(names)}"
        raise InvalidInput(f"unknown experiment '{name}'", field="NAME", remedy=hint)
    file = resources.files("topmast.experiments") / "configs" / f"{name}.yaml"
    return msgspec.convert(yaml.safe_load(file.read_text("utf-8")), Experiment)
