"""How long the demo waits, and what it says when it waits no longer."""

from typing import Any

import pytest

from topmast.demo.findings import Claim, Findings
from topmast.demo.play import Patience
from topmast.demo.run import Took, time_is_up
from topmast.demo.tables import verdict


@pytest.mark.parametrize(
    ("story", "looks", "want"),
    [
        ("something happens at each look", [(10, 1), (20, 2), (30, 3)], ""),
        ("quiet, but not for long", [(10, 1), (69, 1)], ""),
        ("quiet for too long", [(10, 1), (70, 1)], "nothing has happened for 60 s"),
        ("quiet once, then moving again", [(10, 1), (60, 1), (65, 2), (120, 2)], ""),
        (
            "moving on and on",
            [(at, at) for at in range(10, 310, 10)],
            "the jobs have had 300 s",
        ),
    ],
)
def test_it_waits_as_long_as_something_happens(
    story: str, looks: list[tuple[int, int]], want: str
) -> None:
    """A slow machine gets its time; one where nothing moves, or that never ends, does not."""
    patience = Patience(quiet_s=60.0, limit_s=300.0, now_s=0.0)
    said = [patience.is_over(progress, float(at_s)) for at_s, progress in looks]
    assert said[:-1] == [""] * (len(looks) - 1), story
    assert said[-1] == want, story


def findings(**changed: Any) -> Findings:
    """What comes of a demo in which one thing was not seen."""
    empty: dict[str, Any] = {
        "jobs": (), "preemptions": 0, "resumes": 0, "host_losses": 0, "copies": 0,
        "copied_bytes": 0, "explained": 0, "claims": (Claim("gangs train together", None),),
        "decisions": (), "explanation": None, "first_losses": {}, "engines": {}, "gave_up": "", "unfinished": (),
    }  # fmt: skip
    return Findings(**{**empty, **changed})


def test_time_that_is_up_is_not_called_a_failure_of_the_scheduler() -> None:
    """It says why it waited no longer, for what, and where the time went."""
    found = findings(gave_up="nothing has happened for 60 s", unfinished=("vit-base (RUNNING)",))
    assert verdict(found) == "not seen before time was up"
    assert time_is_up(found, Took(58.2, 3.1, 80.4)) == (
        "time is up: nothing has happened for 60 s; not ended: vit-base (RUNNING). "
        "The server's start took 3 s, the jobs 80 s"
    )


def test_what_is_missing_at_the_end_did_not_happen() -> None:
    """All jobs have ended: there is nothing to wait for."""
    assert verdict(findings()) == "did not happen"
