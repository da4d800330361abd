"""`topmast bench policies`: its rows, on small problems."""

from topmast.bench.policies import PolicyOptions, measure_policies

KEYS = {"policy", "jobs", "types", "pairs", "mode", "solve_s", "peer_s", "objective_gap"}


def test_rows() -> None:
    """Every policy cold and warm; without a peer HiGHS finds nothing better."""
    document = measure_policies(PolicyOptions(jobs=20, peer=False))
    assert document["peer"] is None
    assert len(document["skipped"]) == 2
    for row in document["rows"]:
        assert set(row) >= KEYS
        assert row["solve_s"] > 0
        assert row["peer_s"] is None
        assert row["objective_gap"] is None or abs(row["objective_gap"]) < 1e-5
    assert {row["mode"] for row in document["rows"]} == {"cold", "warm"}
    assert len({row["policy"] for row in document["rows"]}) == 12
