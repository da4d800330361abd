"""What was published beside what we found: reached, missed, or nothing to be held to."""

from pathlib import Path

import msgspec
import pytest

from topmast.experiments.checks import NO_DEMAND, NO_FIGURE, checked, figure
from topmast.experiments.config import Check, read_experiment
from topmast.experiments.page import not_compared
from topmast.experiments.sums import checks_of, saving

MEANS = [
    {"case": "ours", "label": "ours", "figures": {"jct_s.mean": {"mean": 104.0}}},
    {"case": "theirs", "label": "theirs", "figures": {"jct_s.mean": {"mean": 312.0}}},
]


@pytest.mark.parametrize(
    ("asked", "reached", "why"),
    [
        pytest.param({"public": 100.0, "within": 0.05}, True, "104 lies between 95 and 105", id="near the public code"),
        pytest.param({"public": 100.0, "within": 0.03}, False, "104 is more than 103", id="not near enough"),
        pytest.param({"at_most": 100.0}, False, "104 is more than 100", id="more than it may be"),
        pytest.param({"at_least": 0.0}, True, "104 is at least 0", id="a bound of 0 is one"),
        pytest.param({"than": "theirs", "at_least": 3.0}, True, "3 is at least 3", id="three times better"),
        pytest.param({"public": 90.0}, None, NO_DEMAND, id="another thing of the same name"),
        pytest.param({"case": "nobody", "at_most": 1.0}, None, NO_FIGURE, id="no figure"),
    ],
)  # fmt: skip
def test_a_check_is_reached_missed_or_cannot_be_compared(
    asked: dict[str, object], reached: bool | None, why: str
) -> None:
    """What is only told beside ours is never called reached."""
    check = Check(**{"case": "ours", "figure": "jct_s.mean", **asked})  # type: ignore[arg-type]
    found = checked(check, MEANS)
    assert (found["reached"], found["why"]) == (reached, why)
    assert checked(check, MEANS, why_not="cut")["reached"] is None


def test_of_several_loads_the_worst_decides() -> None:
    """And the verdict says at which load that was."""
    means = [
        {"case": "ours", "label": f"ours, load {load}", "figures": {"wait_s.mean": {"mean": value}}}
        for load, value in ((1, 80.0), (2, 130.0), (3, 110.0))
    ]
    found = checked(Check("ours", "wait_s.mean", at_most=100.0), means)
    assert (found["ours"], found["reached"]) == (130.0, False)
    assert found["why"] == "130 is more than 100 (ours, load 2, the worst of 3)"
    found = checked(Check("ours", "wait_s.mean", at_least=100.0), means)
    assert (found["ours"], found["reached"]) == (80.0, False)


@pytest.mark.parametrize(
    ("value", "bounds", "want"),
    [
        pytest.param(0.00125, (None, 0.001), "0.00125", id="smaller than a thousandth"),
        pytest.param(0.0010004, (None, 0.001), "0.0010004", id="just above its bound"),
        pytest.param(0.98, (0.98, None), "0.98", id="at its bound"),
        pytest.param(0.979996, (0.98, None), "0.979996", id="just below its bound"),
        pytest.param(1_234_567.4, (), "1,234,567", id="large"),
        pytest.param(2_000.25, (None, 2_000.0), "2,000.2", id="large, and above its bound"),
        pytest.param(0.1 + 0.2, (0.3, 0.3), "0.30000000000000004", id="above by rounding alone"),
        pytest.param(None, (1.0,), "-", id="none"),
    ],
)
def test_a_figure_does_not_contradict_its_verdict(
    value: float | None, bounds: tuple[float | None, ...], want: str
) -> None:
    """Four digits, and more where these would lie on the other side of a bound."""
    assert figure(value, *bounds) == want


def test_the_reason_of_a_verdict_holds_as_it_is_written() -> None:
    """Both numbers have digits enough to differ as they do."""
    means = [{"case": "ours", "label": "ours", "figures": {"share": {"mean": 0.00100049}}}]
    found = checked(Check("ours", "share", at_most=0.0010002), means)
    assert found["why"] == "0.0010005 is more than 0.0010002"


@pytest.mark.parametrize(
    ("pairs", "saved", "half"),
    [
        ([(50.0, 100.0), (60.0, 100.0), (40.0, 100.0)], 0.5, pytest.approx(0.2484, abs=1e-3)),
        ([(50.0, 100.0), (50.0, 100.0), (50.0, 100.0)], 0.5, pytest.approx(0.0)),
        ([(50.0, 100.0), (60.0, 100.0)], 0.45, None),
        ([(0.0, 0.0), (50.0, 100.0), (0.0, 0.0)], 0.5, None),
    ],
)
def test_a_saving_has_an_interval_over_seeds(
    pairs: list[tuple[float, float]], saved: float, half: object
) -> None:
    """Student's t times the spread of the mean, as all bases are equal here; else the jackknife's."""
    found = saving(pairs)
    assert found[0] == pytest.approx(saved)
    assert found[1] == half


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
    assert found[-1]["why"] == "104 is at most 200"


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
