"""Dependencies in a job file: what may be written, and what is refused."""

from typing import Any

import pytest
from msgspec.structs import replace

from topmast.model.dependency import After, awaited
from topmast.model.errors import InvalidInput
from topmast.model.expansion import jobs_of, with_places
from topmast.model.files.jobfile import dump_job, parse_job


def test_dependencies_are_read_and_written_back() -> None:
    """A bare id means success."""
    listed = ["j7", {"job": "j8", "after": "any"}, {"job": "j9", "after": "started"}]
    spec = parse_job({"run": "x", "depends_on": listed}).spec
    assert spec.depends_on == {"j7": After.OK, "j8": After.ANY, "j9": After.STARTED}
    assert parse_job(dump_job(spec)).spec == spec


@pytest.mark.parametrize(
    ("listed", "field", "message"),
    [
        ("j7", "depends_on", "wanted a list"),
        (["train"], "depends_on[0]", "not the id of a job"),
        (["j07"], "depends_on[0]", "not the id of a job"),
        ([7], "depends_on[0]", "wanted text"),
        (["j7", "j7"], "depends_on[1]", "listed twice"),
        ([{"job": "j7", "after": "never"}], "depends_on[0].after", "what a job must have come to"),
        ([{"job": "j7", "when": "ok"}], "depends_on[0].when", "unknown field"),
        ([{"after": "ok"}], "depends_on[0].job", "missing"),
        ([f"j{i}" for i in range(1, 1_002)], "depends_on", "at most 1,000"),
    ],
)
def test_what_names_no_job_is_refused(listed: Any, field: str, message: str) -> None:
    """The error names the item."""
    with pytest.raises(InvalidInput, match=message) as caught:
        parse_job({"run": "x", "depends_on": listed})
    assert caught.value.field == field


def test_what_is_waited_for_is_told_in_words() -> None:
    """Of many jobs only the first are named."""
    assert awaited({"j1": After.OK, "j2": After.ANY}) == "j1 has succeeded and j2 has ended"
    many = {f"j{i}": After.STARTED for i in range(9)}
    assert awaited(many).endswith("j2 has started and 6 more jobs have come so far")


def test_a_job_of_the_same_submission_is_named_by_its_name() -> None:
    """If one job before it is called so; an id stays an id."""
    before = {"prepare": 1, "train": 2, "j7": 1}
    spec = parse_job({"run": "x", "depends_on": ["prepare", "j7"]}, before=before).spec
    places = {"prepare": 0, "train": 2, "j7": 3}
    placed = with_places(spec, places)
    assert placed.depends_on == {"jobs[0]": After.OK, "j7": After.OK}
    one = parse_job({"run": "x"}).spec
    admitted = list(jobs_of([one, placed], 12))
    assert admitted == [one, replace(spec, depends_on={"j12": After.OK, "j7": After.OK})]
    for name, message in (("train", "2 jobs that are"), ("eval", "not the id"), ("jobs[0]", "not")):
        with pytest.raises(InvalidInput, match=message):
            parse_job({"run": "x", "depends_on": [name]}, before=before)
