"""Lines about plans that won together say what lines about each of them say."""

from __future__ import annotations

import random

from msgspec.structs import replace

from tests.unit.model.test_columns import random_plan
from topmast.model.columns import PlanColumns
from topmast.model.decided import AS_FORESEEN
from topmast.runtime.placed_lines import OVER_QUOTA, all_placed, placed


def test_together_as_one_by_one() -> None:
    """The same texts and details, within quota and over it, with a name that looks like a pattern."""
    rng, versions = random.Random(1), dict[str, int]()
    plans = [random_plan(rng, number, versions) for number in range(9)]
    plans[3] = replace(plans[3], model="100%s")
    for number, zeros in ((4, ("balance", "speed")), (5, ("fragmentation",)), (6, plans[6].terms)):
        terms = plans[number].terms | dict.fromkeys(zeros, 0.0)
        score = sum([terms[name] for name in sorted(terms)])
        plans[number] = replace(plans[number], terms=terms, score=score)
    epochs, over_quota = [rng.randint(1, 3) for _ in plans], [rng.random() < 0.5 for _ in plans]
    each = zip(epochs, plans, over_quota, strict=True)
    want = [placed(7.0, epoch, plan, over, AS_FORESEEN) for epoch, plan, over in each]
    columns = PlanColumns.of(plans)
    assert all_placed(7.0, columns, 2, epochs[2:], over_quota[2:]) == want[2:]
    assert want[3].text.startswith(f"placed in {plans[3].region}/{plans[3].cluster} on ")
    assert "balance" not in want[4].text
    assert "fragmentation" not in want[5].text
    assert want[6].text.removesuffix(OVER_QUOTA).endswith(", score 0")
    assert not any(" 0," in line.text or " 0)" in line.text for line in want)
