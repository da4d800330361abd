"""Problems that make no sense are refused with the field; capacities nobody can give are named."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.capacityplan import check
from topmast.model.errors import InvalidInput
from topmast.slow.capacity.planner import plan
from topmast.slow.capacity.reading import convert_problem, parse_problem
from topmast.slow.capacity.shortage import shortages_of


def _problem() -> dict[str, Any]:
    host = {"model": "X", "gpus": 8, "datacenter": "d", "rack": "r", "cluster": None,
            "in_use": False}  # fmt: skip
    cluster = {"capacity": {"X": 8}, "survive_domain": True, "datacenter": None}
    return {
        "hosts": [{**host, "name": f"h{i}", "domain": f"p{i % 3}"} for i in range(6)],
        "clusters": [{**cluster, "name": "a"}, {**cluster, "name": "b"}],
        "buffer_fraction": 0.02,
        "prices": {"shortfall_gpu": 100, "buffer_gpu": 50, "move_in_use": 20, "move_idle": 1,
                   "far_gpu": 0.1},
    }  # fmt: skip


def _host(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda problem: problem["hosts"][1].update(changes)


def _cluster(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda problem: problem["clusters"][1].update(changes)


@pytest.mark.parametrize(
    ("want_field", "change"),
    [
        ("hosts[1].name", _host(name="h0")),
        ("hosts[1].name", _host(name=" ")),
        ("hosts[1].gpus", _host(gpus=-1)),
        ("hosts[1].gpus", _host(gpus=1.5)),
        ("hosts[1].cluster", _host(cluster="gone")),
        ("hosts[1].domain", _host(domain="")),
        ("hosts[1].in_use", _host(in_use="yes")),
        ("hosts[1].colour", _host(colour="red")),
        ("clusters[1].name", _cluster(name="a")),
        ("clusters[1].capacity.X", _cluster(capacity={"X": -1})),
        ("clusters[1].survive_domain", _cluster(survive_domain=None)),
        ("buffer_fraction", lambda problem: problem.update(buffer_fraction=1.1)),
        ("prices.move_idle", lambda problem: problem["prices"].update(move_idle=-1)),
        ("prices", lambda problem: problem.pop("prices")),
    ],
)
def test_bad_fields_are_named(want_field: str, change: Callable[[dict[str, Any]], None]) -> None:
    """The error has the path of the field, and a place."""
    problem = _problem()
    change(problem)
    with pytest.raises(InvalidInput) as raised:
        parse_problem(json.dumps(problem).encode(), "p.json")
    assert raised.value.field == want_field
    assert raised.value.where == "p.json"


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Each with its field and the file."""
    problem = _problem()
    _host(gpus=-1, cluster="gone")(problem)
    problem["buffer_fraction"] = 2
    with pytest.raises(InvalidInput) as raised:
        parse_problem(json.dumps(problem).encode(), "p.json")
    told = (raised.value, *raised.value.more)
    assert [one.field for one in told] == ["hosts[1].gpus", "hosts[1].cluster", "buffer_fraction"]
    assert {one.where for one in told} == {"p.json"}


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_problem_is_refused(text: bytes) -> None:
    """No traceback for what is not JSON, or not an object."""
    with pytest.raises(InvalidInput):
        parse_problem(text)


def test_nothing_is_short_where_all_fits() -> None:
    """Two clusters of 8 GPUs that survive a domain need 12 each; there are 48."""
    assert shortages_of(convert_problem(_problem())) == []


@pytest.mark.parametrize(
    ("want_words", "capacities"),
    [
        ("cluster b cannot have the X asked for and survive", (0, 33)),
        ("2 clusters a, b cannot all have the X asked for: together at least 54 GPUs", (18, 18)),
        ("cluster a cannot have the Y asked for", (None, 8)),
    ],
)
def test_capacities_that_nobody_can_give_are_named(
    want_words: str, capacities: tuple[int | None, int]
) -> None:
    """The fewest clusters are named; the answer has the shortfall all the same."""
    problem = _problem()
    for cluster, gpus in zip(problem["clusters"], capacities, strict=True):
        cluster["capacity"] = {"Y": 8} if gpus is None else {"X": gpus}
    read = convert_problem(problem)
    assert [words for words in shortages_of(read) if want_words in words]
    answer = plan(read, 60.0, lambda: 0.0)
    check(problem, answer)
    assert answer["terms"]["shortfall"] > 0


def test_capacities_beyond_all_measure_are_priced() -> None:
    """A capacity of 1e12 GPUs costs its shortfall, and the answer is still exact."""
    problem = _problem()
    problem["clusters"][0]["capacity"] = {"X": 1e12}
    for small in (0, 2_000):
        answer = plan(convert_problem(problem), 60.0, lambda: 0.0, small)
        check(problem, answer)
        assert answer["status"] == "optimal"
