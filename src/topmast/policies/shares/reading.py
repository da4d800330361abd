"""A problem read from JSON, and refused with the field and the remedy when it makes no sense."""

from __future__ import annotations

from topmast.model.errors import Faults
from topmast.model.files.problems import (
    check_amount,
    check_name,
    check_unique,
    parse,
)
from topmast.model.units import show
from topmast.policies.shares.problem import Job, Pair, Problem

MAX_WORKERS = 10**9
MAX_AMOUNT = 1e15
LEAST_WEIGHT, MAX_WEIGHT = 1e-9, 1e9
MAX_TYPES = 256


def parse_problem(text: bytes, where: str = "problem") -> Problem:
    """The problem in a JSON document; `InvalidInput` says which field of ``where`` is wrong."""
    return parse(text, Problem, check, where)


def check(faults: Faults, problem: Problem) -> None:
    """Find all that makes no sense. O(size of the problem)."""
    _check_workers(faults, problem)
    if not problem.jobs:
        faults.add("names no job", "jobs", "give at least one")
    check_unique(faults, "jobs", [job.id for job in problem.jobs], "id")
    for index, job in enumerate(problem.jobs):
        _check_job(faults, f"jobs[{index}]", job, problem)
    first = {job.id: index for index, job in enumerate(problem.jobs)}
    seen: dict[tuple[int, int], int] = {}
    for index, pair in enumerate(problem.pairs):
        _check_pair(faults, index, pair, problem, first, seen)
    for kind, cost in problem.costs.items():
        _type(faults, f"costs.{kind}", kind, problem)
        check_amount(faults, f"costs.{kind}", cost, MAX_AMOUNT)
    for name, entity in problem.entities.items():
        _weight(faults, f"entities.{name}.weight", entity.weight)


def _check_workers(faults: Faults, problem: Problem) -> None:
    if not problem.workers:
        faults.add("names no type", "workers", 'such as {"V100": 8}')
    if len(problem.workers) > MAX_TYPES:
        faults.add(f"has {len(problem.workers)} types", "workers", f"at most {MAX_TYPES}")
    for kind, count in problem.workers.items():
        if not 0 <= count <= MAX_WORKERS:
            faults.add(f"{count} is out of range", f"workers.{kind}", f"from 0 to {MAX_WORKERS:,}")
    if problem.workers and not any(problem.workers.values()):
        faults.add("there is no worker at all", "workers", "give at least one of some type")


def _check_job(faults: Faults, field: str, job: Job, problem: Problem) -> None:
    check_name(faults, f"{field}.id", job.id)
    if "," in job.id:
        faults.add(f"{show(job.id)} has a comma", f"{field}.id", "a comma joins the ids of a pair")
    if not 1 <= job.scale_factor <= MAX_WORKERS:
        faults.add(f"{job.scale_factor} is out of range", f"{field}.scale_factor", "1 or more")
    for kind, speed in job.throughputs.items():
        _type(faults, f"{field}.throughputs.{kind}", kind, problem)
        check_amount(faults, f"{field}.throughputs.{kind}", speed, MAX_AMOUNT)
    _weight(faults, f"{field}.weight", job.weight)
    for kind, fraction in job.before.items():
        _type(faults, f"{field}.before.{kind}", kind, problem)
        check_amount(faults, f"{field}.before.{kind}", fraction, 1.0)
    for name in ("elapsed_s", "isolated_s"):
        check_amount(faults, f"{field}.{name}", getattr(job, name), MAX_AMOUNT)
    if job.steps_left is not None:
        check_amount(faults, f"{field}.steps_left", job.steps_left, MAX_AMOUNT)
    for name, value in (("arrival_s", job.arrival_s), ("deadline_s", job.deadline_s)):
        if value is not None and not abs(value) <= MAX_AMOUNT:
            faults.add(f"{value:g} is out of range", f"{field}.{name}", "seconds, finite")
    if job.entity is not None and job.entity not in problem.entities:
        message = f"unknown entity {show(job.entity)}"
        faults.add(message, f"{field}.entity", "name one that entities lists")
    if job.entity is None and problem.entities:
        faults.add("missing", f"{field}.entity", "with entities, every job names one")


def _check_pair(
    faults: Faults,
    index: int,
    pair: Pair,
    problem: Problem,
    first: dict[str, int],
    seen: dict[tuple[int, int], int],
) -> None:
    field = f"pairs[{index}]"
    for place, name in enumerate(pair.ids):
        if name not in first:
            faults.add(f"unknown job {show(name)}", f"{field}.ids[{place}]", "name one of jobs")
    if any(name not in first for name in pair.ids):
        return
    one, other = (first[name] for name in pair.ids)
    if one == other:
        faults.add(f"{show(pair.ids[0])} is paired with itself", f"{field}.ids", "name two jobs")
        return
    scales = problem.jobs[one].scale_factor, problem.jobs[other].scale_factor
    if scales[0] != scales[1]:
        message = f"the scale factors {scales[0]} and {scales[1]} differ"
        faults.add(message, f"{field}.ids", "only jobs of equal scale factor share workers")
    key = min(one, other), max(one, other)
    if key in seen:
        faults.add(f"the same jobs as pairs[{seen[key]}]", f"{field}.ids", "list each pair once")
    seen[key] = index
    for kind, speeds in pair.throughputs.items():
        _type(faults, f"{field}.throughputs.{kind}", kind, problem)
        for speed in speeds:
            check_amount(faults, f"{field}.throughputs.{kind}", speed, MAX_AMOUNT)


def _type(faults: Faults, field: str, kind: str, problem: Problem) -> None:
    if kind not in problem.workers:
        faults.add(f"unknown type {show(kind)}", field, "name one that workers lists")


def _weight(faults: Faults, field: str, value: float) -> None:
    if not LEAST_WEIGHT <= value <= MAX_WEIGHT:
        message = f"the weight {value:g} is out of range"
        faults.add(message, field, f"above 0: from {LEAST_WEIGHT:g} to {MAX_WEIGHT:g}")
