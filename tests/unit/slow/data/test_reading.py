"""Bad problems: the error names the field and what to write instead."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.dataplan_brute import tiny
from topmast.model.errors import InvalidInput
from topmast.slow.data.reading import convert_problem, parse_problem

Change = Callable[[Any], object]


def _put(*path: Any) -> Change:
    """Put the last of ``path`` where the others lead."""

    def change(document: Any) -> None:
        for step in path[:-2]:
            document = document[step]
        document[path[-2]] = path[-1]

    return change


CASES: list[tuple[str, Change, str, str]] = [
    ("no region", _put("regions", []), "regions", "no region"),
    ("a region twice", _put("regions", 1, "name", "r0"), "regions[1].name", "regions[0]"),
    ("a table twice", _put("tables", 1, "name", "t0"), "tables[1].name", "unique"),
    ("a workload twice", lambda d: d["workloads"].append(d["workloads"][0]), "workloads", "unique"),
    ("a name that is empty", _put("tables", 0, "name", " "), "tables[0].name", "empty"),
    ("negative storage", _put("regions", 0, "storage_bytes", -1), "storage_bytes", "from 0"),
    ("a negative size", _put("tables", 0, "bytes", -5), "tables[0].bytes", "from 0"),
    ("a size that is text", _put("tables", 0, "bytes", "5GB"), "tables[0].bytes", "wanted a number, found text"),
    ("fewer than no replicas", _put("tables", 0, "min_replicas", -1), "min_replicas", "0 or more"),
    ("half a replica", _put("tables", 0, "min_replicas", 1.5), "min_replicas", "wanted a whole number, found a number"),
    ("a replica nowhere", _put("tables", 0, "replicas", ["moon"]), "replicas", "'moon'"),
    ("a residency nowhere", _put("tables", 0, "allowed", ["moon"]), "allowed", "'moon'"),
    ("a replica twice", _put("tables", 0, "replicas", ["r0", "r0"]), "replicas", "twice"),
    ("a table that is not", _put("workloads", 0, "tables", ["x"]), "workloads[0].tables", "'x'"),
    ("a table read twice", _put("workloads", 0, "tables", ["t0", "t0"]), "tables", "twice"),
    ("negative demand", _put("workloads", 0, "gpus", {"A": -1}), "gpus.A", "from 0"),
    ("a link to nowhere", _put("links", [{"from": "r0", "to": "x", "bytes_per_period": 1}]), "links[0].to", "'x'"),
    ("a link to itself", _put("links", [{"from": "r0", "to": "r0", "bytes_per_period": 1}]), "links[0].to", "itself"),
    ("a negative budget", _put("move_budget_bytes", -1), "move_budget_bytes", "from 0"),
    ("no price of overload", _put("prices", "overload_gpu", []), "prices.overload_gpu", "no price"),
    ("prices that fall", _put("prices", "overload_gpu", [[0.1, 9], [0.2, 5]]), "overload_gpu[1]", "falls"),
    ("fractions that fall", _put("prices", "overload_gpu", [[0.2, 5], [0.1, 9]]), "overload_gpu[1]", "rise"),
    ("overload for nothing", _put("prices", "overload_gpu", [[0.2, 1]]), "overload_gpu", "below"),
    ("a price without end", _put("prices", "replica_byte", 1e300), "prices.replica_byte", "finite"),
    ("a negative price", _put("prices", "moved_byte", -0.1), "prices.moved_byte", "from 0"),
    ("a field nobody knows", _put("tables", 0, "sise", 3), "tables", "sise"),
    ("no prices", lambda d: d.pop("prices"), "", "prices"),
]  # fmt: skip


@pytest.mark.parametrize(("story", "change", "field", "words"), CASES, ids=[c[0] for c in CASES])
def test_a_bad_problem_is_refused(story: str, change: Change, field: str, words: str) -> None:
    """With the field, and with words that help."""
    document = copy.deepcopy(tiny(1))
    change(document)
    with pytest.raises(InvalidInput) as caught:
        convert_problem(document, "problem.json")
    line = str(caught.value)
    assert line.startswith("problem.json: ")
    assert field in line
    assert words in line


@pytest.mark.parametrize("price", ["NaN", "Infinity", "1e999"])
def test_prices_are_finite(price: str) -> None:
    """JSON's foreign numbers are no prices."""
    text = json.dumps(tiny(1)).replace('"replica_byte": 0', f'"replica_byte": {price}, "x": 0')
    with pytest.raises(InvalidInput):
        parse_problem(text.encode())


def test_all_that_is_wrong_is_told_at_once() -> None:
    """Each with its field and the file."""
    document = copy.deepcopy(tiny(0))
    document["regions"][0]["storage_bytes"] = -1
    document["tables"][0]["bytes"] = -5
    document["tables"][1]["replicas"] = ["moon"]
    document["prices"]["moved_byte"] = -2
    with pytest.raises(InvalidInput) as caught:
        parse_problem(json.dumps(document).encode(), "p.json")
    told = (caught.value, *caught.value.more)
    assert [one.field for one in told] == [
        "regions[0].storage_bytes", "tables[0].bytes", "tables[1].replicas", "prices.moved_byte",
    ]  # fmt: skip
    assert {one.where for one in told} == {"p.json"}


def test_what_may_be_left_out_has_defaults() -> None:
    """Only names, sizes and prices are needed."""
    prices = {"non_collocated_gpu": 1, "overload_gpu": [[1, 2]], "replica_byte": 0, "moved_byte": 0}
    problem = convert_problem(
        {
            "regions": [{"name": "r", "storage_bytes": 1}],
            "tables": [{"name": "t", "bytes": 1}],
            "prices": prices,
        }
    )
    assert problem.tables[0].min_replicas == 1
    assert problem.tables[0].allowed is None
    assert problem.move_budget_bytes is None
    assert problem.prices.non_collocated_cpu == 0
