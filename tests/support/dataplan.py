"""A checker of data plans: costs and rules anew from the two JSON documents, with none of our code."""

from collections import defaultdict
from fractions import Fraction
from typing import Any

TOLERANCE = 1e-6

Document = dict[str, Any]


def check(problem: Document, answer: Document) -> dict[str, float]:
    """Raise AssertionError for the first broken rule or wrong figure; the four terms."""
    placement, serve = answer["placement"], answer["serve"]
    regions = {region["name"]: region for region in problem["regions"]}
    tables = {table["name"]: table for table in problem["tables"]}
    assert set(placement) == set(tables), "every table has its regions"
    _check_tables(problem, placement, regions)
    _check_moves(problem, answer, placement)
    load = _check_service(problem, placement, serve, regions)
    terms = _terms(problem, placement, serve, load, regions)
    for name, cost in terms.items():
        assert _near(answer["terms"][name], cost), (name, answer["terms"][name], cost)
    objective = sum(terms.values())
    assert _near(answer["objective"], objective), (answer["objective"], objective)
    _check_quality(answer, objective)
    _check_figures(problem, answer, load, regions)
    return terms


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= TOLERANCE * max(1.0, abs(a), abs(b))


def _check_tables(problem: Document, placement: Document, regions: Document) -> None:
    stored: dict[str, Fraction] = defaultdict(Fraction)
    for table in problem["tables"]:
        where = placement[table["name"]]
        assert len(set(where)) == len(where), f"{table['name']} is listed twice in a region"
        assert len(where) >= table.get("min_replicas", 1), f"{table['name']} has too few replicas"
        allowed = table.get("allowed")
        for region in where:
            assert region in regions
            assert allowed is None or region in allowed, f"{table['name']} may not be in {region}"
            stored[region] += Fraction(table["bytes"])
    for name, region in regions.items():
        assert stored[name] <= Fraction(region["storage_bytes"]), f"{name} is over full"


def _check_moves(problem: Document, answer: Document, placement: Document) -> None:
    """The moves are the difference of start and end; copies are carried by the links and the budget."""
    tables = {table["name"]: table for table in problem["tables"]}
    copied, dropped = set(), set()
    carried: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for move in answer["moves"]:
        table = tables[move["table"]]
        assert move["bytes"] == table["bytes"]
        if move["op"] == "drop":
            dropped.add((move["table"], move["region"]))
            continue
        assert move["op"] == "copy"
        copied.add((move["table"], move["to"]))
        start = table.get("replicas", [])
        if start:
            assert move["from"] in start, f"{move} comes from where the table was not"
            carried[move["from"], move["to"]] += Fraction(table["bytes"])
        else:
            assert move["from"] is None
    before = {(name, r) for name, table in tables.items() for r in table.get("replicas", [])}
    after = {(name, r) for name, where in placement.items() for r in where}
    assert copied == after - before
    assert dropped == before - after
    assert len(answer["moves"]) == len(copied) + len(dropped)
    limit: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for link in problem.get("links", []):
        limit[link["from"], link["to"]] += Fraction(link["bytes_per_period"])
    for pair, amount in carried.items():
        assert amount <= limit[pair], f"the link {pair} carries too much"
    budget = problem.get("move_budget_bytes")
    total = sum((Fraction(tables[name]["bytes"]) for name, _ in copied), Fraction(0))
    assert budget is None or total <= Fraction(budget), "more is copied than the budget allows"


def _check_service(
    problem: Document, placement: Document, serve: Document, regions: Document
) -> dict[tuple[str, str], float]:
    """Loads of GPUs by region and model."""
    load: dict[tuple[str, str], float] = defaultdict(float)
    cpus: dict[str, float] = defaultdict(float)
    names = {workload["name"] for workload in problem.get("workloads", [])}
    assert set(serve) <= names
    for workload in problem.get("workloads", []):
        shares = serve.get(workload["name"], {})
        assert sum(shares.values()) <= 1 + 1e-12, f"{workload['name']} is served too much"
        for region, share in shares.items():
            assert 0 <= share <= 1
            if share == 0:
                continue
            for table in workload.get("tables", []):
                assert region in placement[table], f"{workload['name']} lacks {table} in {region}"
            for model, gpus in workload.get("gpus", {}).items():
                assert gpus == 0 or regions[region].get("gpus", {}).get(model, 0) > 0
                load[region, model] += gpus * share
            cpus[region] += workload.get("cpus", 0) * share
    for name, used in cpus.items():
        assert used <= regions[name].get("cpus", 0) * (1 + 1e-12), f"{name} has too few CPUs"
    return load


def _terms(
    problem: Document,
    placement: Document,
    serve: Document,
    load: dict[tuple[str, str], float],
    regions: Document,
) -> dict[str, float]:
    prices = problem["prices"]
    missed = 0.0
    for workload in problem.get("workloads", []):
        share = 1 - sum(serve.get(workload["name"], {}).values())
        price = prices["non_collocated_gpu"] * sum(workload.get("gpus", {}).values())
        price += prices.get("non_collocated_cpu", 0) * workload.get("cpus", 0)
        missed += max(0.0, share) * price
    overload = sum(
        _overload(prices["overload_gpu"], amount, regions[region]["gpus"][model])
        for (region, model), amount in load.items()
        if amount > 0
    )
    replicas = moves = 0.0
    for table in problem["tables"]:
        where = placement[table["name"]]
        replicas += prices["replica_byte"] * table["bytes"] * len(where)
        fresh = set(where) - set(table.get("replicas", []))
        moves += prices["moved_byte"] * table["bytes"] * len(fresh)
    return {"non_collocated": missed, "overload": overload, "replicas": replicas, "moves": moves}


def _overload(segments: list[list[float]], load: float, supply: float) -> float:
    over, begin, cost = max(0.0, load - supply), 0.0, 0.0
    for index, (fraction, price) in enumerate(segments):
        end = float("inf") if index == len(segments) - 1 else fraction * supply
        cost += price * max(0.0, min(over, end) - begin)
        begin = end
    return cost


def _check_quality(answer: Document, objective: float) -> None:
    bound, gap = answer["bound"], answer["gap"]
    if bound is None:
        assert gap is None
        return
    assert bound <= objective + TOLERANCE * max(1.0, abs(objective))
    assert _near(gap, (answer["objective"] - bound) / max(abs(answer["objective"]), 1e-9))


def _check_figures(
    problem: Document, answer: Document, load: dict[tuple[str, str], float], regions: Document
) -> None:
    worst = 0.0
    for name, region in regions.items():
        for model, supply in region.get("gpus", {}).items():
            if supply > 0:
                worst = max(worst, load.get((name, model), 0.0) / supply)
    assert _near(answer["max_demand_supply"], worst)
    size = {table["name"]: table["bytes"] for table in problem["tables"]}
    least = sum(t["bytes"] * t.get("min_replicas", 1) for t in problem["tables"])
    now = sum(size[name] * len(where) for name, where in answer["placement"].items())
    assert _near(answer["replication_overhead"], now / least - 1 if least else 0.0)
    wanted = missed = 0.0
    for workload in problem.get("workloads", []):
        gpus = sum(workload.get("gpus", {}).values())
        wanted += gpus
        missed += gpus * max(0.0, 1 - sum(answer["serve"].get(workload["name"], {}).values()))
    assert _near(answer["non_collocated_share"], missed / wanted if wanted else 0.0)
