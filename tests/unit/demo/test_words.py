"""What the demo says of a decision agrees with the decision."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import bounded
from topmast.demo.words import deed
from topmast.model.views import HistoryView

CASES = [
    ({"balance": 0.21, "skew": -0.5}, "score -0.29 = balance 0.21 - skew 0.50"),
    ({"speed": -1.0, "data": 0.0}, "score -1.00 = - speed 1.00"),
    ({"speed": 0.0, "data": 1e-5}, "score 0.00"),
    ({"a": 0.333, "b": 0.333, "c": 0.333}, "score 1.00 = a 0.34 + b 0.33 + c 0.33"),
]


def _why(terms: dict[str, float]) -> str:
    detail: dict[str, Any] = {
        "region": "east", "cluster": "east-1", "terms": terms, "score": sum(terms.values()),
        "over_quota": False, "victims": [], "epoch": 1, "hosts": ["h"], "gpus": 1.0, "model": "H100",
    }  # fmt: skip
    found = deed(HistoryView(0.0, "placed", "", detail), {})
    assert found is not None
    return found.why


@pytest.mark.parametrize(("terms", "want"), CASES)
def test_a_score_is_told_with_all_its_terms(terms: dict[str, float], want: str) -> None:
    """Negative ones too; what rounds to nothing is left out."""
    assert _why(terms) == want


@bounded(300)
@given(st.dictionaries(st.sampled_from("abcdefg"), st.floats(-50, 50), min_size=1))
def test_the_terms_shown_add_up_to_the_score_shown(terms: dict[str, float]) -> None:
    """To the last digit."""
    said = _why(terms)
    score = re.match(r"score (-?[\d.]+)", said)
    assert score is not None
    parts = re.findall(r"([+-]?) ?[a-g] ([\d.]+)", said.partition("=")[2])
    total = sum(round(100 * float(part)) * (-1 if sign == "-" else 1) for sign, part in parts)
    assert total == round(100 * float(score[1]))
