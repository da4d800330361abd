"""What is wrong with a problem is said with its field and a remedy, and nothing else goes wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from topmast.model.errors import InvalidInput
from topmast.policies.shares.reading import parse_problem
from topmast.policies.shares.registry import POLICIES, columns_for, policy_named
from topmast.policies.shares.shares import Shares

Document = dict[str, Any]


def good() -> Document:
    """A problem with everything, that every policy but AlloX takes."""
    return {
        "workers": {"V": 2, "K": 2},
        "jobs": [
            {"id": "a", "throughputs": {"V": 4, "K": 1}, "steps_left": 100, "entity": "x"},
            {"id": "b", "throughputs": {"K": 2}, "steps_left": 50, "entity": "y"},
            {"id": "c", "throughputs": {"V": 3}, "steps_left": 9, "entity": "y", "scale_factor": 2},
        ],
        "pairs": [{"ids": ["a", "b"], "throughputs": {"K": [0.9, 1.5]}}],
        "costs": {"V": 2, "K": 1},
        "entities": {"x": {"weight": 2}, "y": {"policy": "fifo"}},
    }


def changed(path: str, value: Any) -> Document:
    """The good problem with the value at ``path`` (a.0.b) replaced; None removes it."""
    document = good()
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place: Any = document
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


def solve(document: Document, policy: str, *, agnostic: bool = False) -> Shares:
    chosen = policy_named(policy)
    problem = parse_problem(json.dumps(document).encode())
    return chosen.solve(columns_for(chosen, problem, agnostic=agnostic))


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("workers", {}, "workers"),
        ("workers", {"V": 0, "K": 0}, "workers"),
        ("workers.V", -1, "workers.V"),
        ("workers.V", 1.5, "workers[...]"),
        ("jobs", [], "jobs"),
        ("jobs.0.id", "b", "jobs[1].id"),
        ("jobs.0.id", "a,b", "jobs[0].id"),
        ("jobs.0.id", " ", "jobs[0].id"),
        ("jobs.0.id", None, "jobs[0].id"),
        ("jobs.0.throughputs", None, "jobs[0].throughputs"),
        ("jobs.0.throughputs", {"P": 1}, "jobs[0].throughputs.P"),
        ("jobs.0.throughputs", {"V": -1}, "jobs[0].throughputs.V"),
        ("jobs.0.throughputs", {"V": float("inf")}, ""),
        ("jobs.0.weight", 0, "jobs[0].weight"),
        ("jobs.0.weight", -2, "jobs[0].weight"),
        ("jobs.0.scale_factor", 0, "jobs[0].scale_factor"),
        ("jobs.0.steps_left", -1, "jobs[0].steps_left"),
        ("jobs.0.elapsed_s", -1, "jobs[0].elapsed_s"),
        ("jobs.0.deadline", 5, "jobs[0].deadline"),
        ("jobs.0.entity", "z", "jobs[0].entity"),
        ("jobs.0.entity", None, "jobs[0].entity"),
        ("pairs.0.ids", ["a", "z"], "pairs[0].ids[1]"),
        ("pairs.0.ids", ["a", "a"], "pairs[0].ids"),
        ("pairs.0.ids", ["a", "c"], "pairs[0].ids"),
        ("pairs.0.ids", ["a"], "pairs[0].ids"),
        ("pairs.0.throughputs", {"K": [1]}, "pairs[0].throughputs[...]"),
        ("pairs.0.throughputs", {"K": [1, -1]}, "pairs[0].throughputs.K"),
        ("pairs", [{"ids": ["a", "b"], "throughputs": {}}] * 2, "pairs[1].ids"),
        ("costs.V", -1, "costs.V"),
        ("costs", {"Z": 1}, "costs.Z"),
        ("entities.x.weight", 0, "entities.x.weight"),
        ("entities.x.policy", "lottery", "entities[...].policy"),
    ],
)
def test_refused(path: str, value: Any, field: str) -> None:
    """Whatever makes no sense under any policy."""
    with pytest.raises(InvalidInput) as caught:
        parse_problem(json.dumps(changed(path, value)).encode(), "problem.json")
    assert caught.value.field == field
    assert caught.value.where == "problem.json"


def test_all_that_is_wrong_is_told_at_once() -> None:
    """A pair of what is no job, or of one job, is not looked at any further."""
    document = changed("jobs.2.weight", -1)
    document["pairs"] += [
        {"ids": ["a", "z"], "throughputs": {}},
        {"ids": ["a", "a"], "throughputs": {}},
    ]
    document["costs"]["T4"] = 1
    with pytest.raises(InvalidInput) as caught:
        parse_problem(json.dumps(document).encode())
    told = [one.field for one in (caught.value, *caught.value.more)]
    assert told == ["jobs[2].weight", "pairs[1].ids[1]", "pairs[2].ids", "costs.T4"]


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff", b"[" * 100_000])
def test_not_a_problem(text: bytes) -> None:
    """What is no JSON, or not an object."""
    with pytest.raises(InvalidInput):
        parse_problem(text)


NEEDS_STEPS = ("makespan", "finish-time-fairness", "sjf")


@pytest.mark.parametrize(
    ("policy", "path", "value", "field"),
    [
        *((policy, "jobs.1.steps_left", None, "jobs[1].steps_left") for policy in NEEDS_STEPS),
        ("max-min-fairness", "jobs.1.throughputs", {}, "jobs[1].throughputs"),
        ("max-min-fairness", "jobs.1.throughputs", {"V": 0}, "jobs[1].throughputs"),
        ("hierarchical", "jobs.1.throughputs", {}, "jobs[1].throughputs"),
        ("makespan", "jobs.2.scale_factor", 3, "jobs[2].throughputs"),
        ("finish-time-fairness", "jobs.2.scale_factor", 3, "jobs[2].throughputs"),
        ("finish-time-fairness", "jobs.0.steps_left", 0, "jobs[0].isolated_s"),
        ("min-cost", "costs.V", None, "costs.V"),
        ("min-cost", "costs.V", 0, "costs.V"),
        ("min-cost-slo", "costs.K", None, "costs.K"),
        ("allox", "jobs.0.weight", 1, "jobs[2].scale_factor"),
    ],
)
def test_refused_by_a_policy(policy: str, path: str, value: Any, field: str) -> None:
    """What one policy needs and another does not."""
    with pytest.raises(InvalidInput) as caught:
        solve(changed(path, value), policy)
    assert caught.value.field == field
    assert caught.value.remedy


def test_hierarchical_needs_entities() -> None:
    """There is nothing to share among without them."""
    document = good() | {"entities": {}}
    for job in document["jobs"]:
        del job["entity"]
    with pytest.raises(InvalidInput) as caught:
        solve(document, "hierarchical")
    assert caught.value.field == "entities"


@pytest.mark.parametrize("agnostic", [False, True])
@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "allox"])
def test_the_good_problem(policy: str, agnostic: bool) -> None:
    """Every policy takes it."""
    shares = solve(good(), policy, agnostic=agnostic)
    assert shares.status == "optimal"
    assert shares.objective is not None
    assert shares.objective > 0


def test_too_wide_a_job_is_counted_and_served_without() -> None:
    """Max-min is 0 when a job needs more workers than there are; the others get what they can."""
    shares = solve(changed("jobs.2.scale_factor", 3), "max-min-fairness")
    assert shares.objective == 0
    assert shares.single[0].sum() > 0.9
    assert not shares.single[2].any()
    shares = solve(changed("jobs.2.scale_factor", 3), "hierarchical")
    assert shares.levels is not None
    assert shares.levels[2] == 0
    assert shares.levels[0] > 0


def test_jobs_that_never_run_are_passed_over() -> None:
    """A sum over jobs has a value without them."""
    for policy in ("fifo", "sjf", "max-throughput", "min-cost"):
        shares = solve(changed("jobs.0.throughputs", {}), policy)
        assert shares.objective is not None
        assert shares.objective > 0


def test_deadlines_that_cannot_be_met() -> None:
    """Those that lack speed where the least is lacking; one in the past is lost in any case."""
    document = changed("jobs.0.deadline_s", 1)
    assert solve(document, "min-cost-slo").violated == (0,)
    assert solve(document, "min-cost").objective is not None, (
        "deadlines are those of another policy"
    )
    assert solve(changed("jobs.1.deadline_s", -5), "min-cost-slo").violated == (1,)
    assert solve(changed("jobs.1.deadline_s", 1e6), "min-cost-slo").violated == ()


def test_nothing_left_to_do() -> None:
    """All is done at once."""
    document = good()
    for job in document["jobs"]:
        job["steps_left"] = 0
    assert solve(document, "makespan").objective == 0


def test_sharing_counts_a_pair_once_and_skips_those_that_cannot() -> None:
    """Two jobs on one worker; where one of them gets nowhere, neither shares."""
    document: Document = {
        "workers": {"K": 1},
        "jobs": [{"id": name, "throughputs": {"K": 1}} for name in "ab"],
        "pairs": [{"ids": ["b", "a"], "throughputs": {"K": [0.8, 0.8]}}],
    }
    shares = solve(document, "max-min-fairness")
    assert shares.objective == pytest.approx(0.8)
    assert shares.pair[0, 0] == pytest.approx(1)
    document["pairs"][0]["throughputs"]["K"] = [5, 0]
    assert solve(document, "max-min-fairness").objective == pytest.approx(0.5)
    document["pairs"][0]["throughputs"]["K"] = [0.8, 0.8]
    assert solve(document, "max-min-fairness", agnostic=True).objective == pytest.approx(0.5)


def test_unknown_policy() -> None:
    """The error lists those there are."""
    with pytest.raises(InvalidInput) as caught:
        policy_named("lottery")
    assert "makespan" in caught.value.remedy
