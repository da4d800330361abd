"""What was published beside what we found: reached, missed, or nothing to be held to."""

import pytest

from topmast.experiments.checks import checked
from topmast.experiments.config import Check

MEANS = [
    {"case": "ours", "figures": {"jct_s.mean": {"mean": 104.0}}},
    {"case": "theirs", "figures": {"jct_s.mean": {"mean": 312.0}}},
]


@pytest.mark.parametrize(
    ("asked", "reached"),
    [
        pytest.param({"public": 100.0, "within": 0.05}, True, id="near the public code"),
        pytest.param({"public": 100.0, "within": 0.03}, False, id="not near enough"),
        pytest.param({"at_most": 100.0}, False, id="more than it may be"),
        pytest.param({"than": "theirs", "at_least": 3.0}, True, id="three times better"),
        pytest.param({"public": 90.0}, None, id="another thing of the same name"),
        pytest.param({"case": "nobody", "at_most": 1.0}, None, id="no figure"),
    ],
)
def test_a_check_is_reached_missed_or_cannot_be_compared(
    asked: dict[str, object], reached: bool | None
) -> None:
    """What is only told beside ours is never called reached."""
    check = Check(**{"case": "ours", "figure": "jct_s.mean", **asked})  # type: ignore[arg-type]
    assert checked(check, MEANS)["reached"] is reached
    assert checked(check, MEANS, comparable=False)["reached"] is None
