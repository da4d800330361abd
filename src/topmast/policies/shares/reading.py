"""A problem read from JSON, and refused with the field and the remedy when it makes no sense."""

from __future__ import annotations

from topmast.model.files.problems import (
    check_amount,
    check_name,
    check_unique,
    parse,
    refuse,
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


def check(problem: Problem) -> None:
    """Raise `InvalidInput` for the first thing that makes no sense. O(size of the problem)."""
    _check_workers(problem)
    if not problem.jobs:
        refuse("jobs", "names no job", "give at least one")
    check_unique("jobs", [job.id for job in problem.jobs], "id")
    for index, job in enumerate(problem.jobs):
        _check_job(f"jobs[{index}]", job, problem)
    first = {job.id: index for index, job in enumerate(problem.jobs)}
    seen: dict[tuple[int, int], int] = {}
    for index, pair in enumerate(problem.pairs):
        _check_pair(index, pair, problem, first, seen)
    for kind, cost in problem.costs.items():
        _type(f"costs.{kind}", kind, problem)
        check_amount(f"costs.{kind}", cost, MAX_AMOUNT)
    for name, entity in problem.entities.items():
        _weight(f"entities.{name}.weight", entity.weight)


def _check_workers(problem: Problem) -> None:
    if not problem.workers:
        refuse("workers", "names no type", 'such as {"V100": 8}')
    if len(problem.workers) > MAX_TYPES:
        refuse("workers", f"has {len(problem.workers)} types", f"at most {MAX_TYPES}")
    for kind, count in problem.workers.items():
        if not 0 <= count <= MAX_WORKERS:
            refuse(f"workers.{kind}", f"{count} is out of range", f"from 0 to {MAX_WORKERS:,}")
    if not any(problem.workers.values()):
        refuse("workers", "there is no worker at all", "give at least one of some type")


def _check_job(field: str, job: Job, problem: Problem) -> None:
    check_name(f"{field}.id", job.id)
    if "," in job.id:
        refuse(f"{field}.id", f"{show(job.id)} has a comma", "a comma joins the ids of a pair")
    if not 1 <= job.scale_factor <= MAX_WORKERS:
        refuse(f"{field}.scale_factor", f"{job.scale_factor} is out of range", "1 or more")
    for kind, speed in job.throughputs.items():
        _type(f"{field}.throughputs.{kind}", kind, problem)
        check_amount(f"{field}.throughputs.{kind}", speed, MAX_AMOUNT)
    _weight(f"{field}.weight", job.weight)
    for kind, fraction in job.before.items():
        _type(f"{field}.before.{kind}", kind, problem)
        check_amount(f"{field}.before.{kind}", fraction, 1.0)
    for name in ("elapsed_s", "isolated_s"):
        check_amount(f"{field}.{name}", getattr(job, name), MAX_AMOUNT)
    if job.steps_left is not None:
        check_amount(f"{field}.steps_left", job.steps_left, MAX_AMOUNT)
    for name, value in (("arrival_s", job.arrival_s), ("deadline_s", job.deadline_s)):
        if value is not None and not abs(value) <= MAX_AMOUNT:
            refuse(f"{field}.{name}", f"{value:g} is out of range", "seconds, finite")
    if job.entity is not None and job.entity not in problem.entities:
        message = f"unknown entity {show(job.entity)}"
        refuse(f"{field}.entity", message, "name one that entities lists")
    if job.entity is None and problem.entities:
        refuse(f"{field}.entity", "missing", "with entities, every job names one")


def _check_pair(
    index: int,
    pair: Pair,
    problem: Problem,
    first: dict[str, int],
    seen: dict[tuple[int, int], int],
) -> None:
    field = f"pairs[{index}]"
    for place, name in enumerate(pair.ids):
        if name not in first:
            refuse(f"{field}.ids[{place}]", f"unknown job {show(name)}", "name one of jobs")
    one, other = (first[name] for name in pair.ids)
    if one == other:
        refuse(f"{field}.ids", f"{show(pair.ids[0])} is paired with itself", "name two jobs")
    scales = problem.jobs[one].scale_factor, problem.jobs[other].scale_factor
    if scales[0] != scales[1]:
        message = f"the scale factors {scales[0]} and {scales[1]} differ"
        refuse(f"{field}.ids", message, "only jobs of equal scale factor share workers")
    key = min(one, other), max(one, other)
    if key in seen:
        refuse(f"{field}.ids", f"the same jobs as pairs[{seen[key]}]", "list each pair once")
    seen[key] = index
    for kind, speeds in pair.throughputs.items():
        _type(f"{field}.throughputs.{kind}", kind, problem)
        for speed in speeds:
            check_amount(f"{field}.throughputs.{kind}", speed, MAX_AMOUNT)


def _type(field: str, kind: str, problem: Problem) -> None:
    if kind not in problem.workers:
        refuse(field, f"unknown type {show(kind)}", "name one that workers lists")


def _weight(field: str, value: float) -> None:
    if not LEAST_WEIGHT <= value <= MAX_WEIGHT:
        message = f"the weight {value:g} is out of range"
        refuse(field, message, f"above 0: from {LEAST_WEIGHT:g} to {MAX_WEIGHT:g}")
