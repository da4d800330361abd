"""What was published beside what we found: reached, missed, or nothing to be held to."""

from pathlib import Path

import msgspec
import pytest

from topmast.experiments.checks import NO_DEMAND, NO_FIGURE, checked
from topmast.experiments.config import Check, read_experiment
from topmast.experiments.page import not_compared
from topmast.experiments.sums import checks_of

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
    assert checked(check, MEANS, why_not="cut")["reached"] is None


def test_why_figures_are_not_compared() -> None:
    """Each reason once, with how many figures it is true of; what is compared needs none."""
    asked = Check("ours", "jct_s.mean", at_most=200.0)
    found = [
        checked(asked, MEANS, why_not="cut"), checked(asked, MEANS, why_not="cut"),
        checked(Check("nobody", "jct_s.mean", at_most=1.0), MEANS),
        checked(Check("ours", "jct_s.mean", public=90.0), MEANS), checked(asked, MEANS),
    ]  # fmt: skip
    assert not_compared(found) == [
        "not comparable, 2 of 5: cut",
        f"not comparable, 1 of 5: {NO_FIGURE}",
        f"not comparable, 1 of 5: {NO_DEMAND}",
    ]
    assert found[-1]["why"] == ""


def test_a_trace_that_is_short_enough_is_compared_though_others_are_cut(data_dir: Path) -> None:
    """Of 60 jobs the first 150 are all; of 992 they are not, and without the folder a stand-in runs."""
    experiment = read_experiment("tiresias")
    scale = experiment.scales["small"]
    assert scale.limit is not None
    cut = {
        check.case: checks_of(
            msgspec.structs.replace(experiment, checks=(check,)), scale, [], data_dir
        )[0]["why"]
        for check in experiment.checks
    }
    short = {
        case.name: files.trace == "tiresias/60_job.csv"
        for case in experiment.cases
        if case.files and (files := experiment.files[case.files]).trace is not None
    }
    assert any(short[case] for case in cut if case in short)
    for case, why in cut.items():
        if case in short:
            assert ("only the first 150" not in why) == short[case], (case, why)
