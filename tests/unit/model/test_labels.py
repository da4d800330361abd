"""Labels: what a job file may say of them, and how jobs are found by them."""

from typing import Any

import pytest

from topmast.model.errors import InvalidInput
from topmast.model.files.jobfile import dump_job, parse_job
from topmast.model.job import JobSpec
from topmast.model.selector import selector_of


def spec_of(**labels: Any) -> JobSpec:
    return parse_job({"run": "x", "labels": labels}).spec


def test_labels_are_read_and_written_back() -> None:
    """Numbers stay as they are written, and a job without labels has no such field."""
    spec = spec_of(team="vision", stage="eval-2", version=1.50)
    assert spec.labels == {"stage": "eval-2", "team": "vision", "version": "1.5"}
    assert parse_job(dump_job(spec)).spec == spec
    assert "labels" not in dump_job(spec_of())


@pytest.mark.parametrize(
    ("labels", "field"),
    [
        ({"a b": "c"}, "is not the key of a label"),
        ({"-a": "c"}, "is not the key of a label"),
        ({"k" * 64: "c"}, "is not the key of a label"),
        ({"team": ""}, "is not the value of a label"),
        ({"team": "a,b"}, "is not the value of a label"),
        ({"team": "a*"}, "is not the value of a label"),
        ({"team": True}, "quote it"),
        ({"team": ["a"]}, "wanted text or a number"),
        ({"team": "v" * 128}, "is longer than 127 bytes"),
        ({f"k{i}": "v" for i in range(51)}, "at most 50"),
    ],
)
def test_what_a_selector_could_not_name_is_refused(labels: dict[str, Any], field: str) -> None:
    """The error says what is wrong, and names the field."""
    with pytest.raises(InvalidInput, match=field.replace("*", r"\*")) as caught:
        spec_of(**labels)
    assert caught.value.field.startswith("labels")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("label.team=vision", True),
        ("label.team=vi*", True),
        ("label.team=*", True),
        ("label.team=nlp", False),
        ("label.team=nlp,label.team=vision", True),
        ("label.team=vision,label.stage=eval", True),
        ("label.team=vision,label.stage=train", False),
        ("label.missing=*", False),
        ("label.team=vision,name=other", False),
    ],
)
def test_jobs_are_found_by_their_labels(text: str, want: bool) -> None:
    """All keys must be there; of several values for a key one must be meant."""
    spec = spec_of(team="vision", stage="eval")
    assert selector_of(text).takes(spec, "PENDING", "normal", None, ()) is want
    assert not selector_of(text).takes(spec_of(), "PENDING", "normal", None, ())


@pytest.mark.parametrize("text", ["label.=x", "labels.team=x", "team=x"])
def test_a_key_that_is_none_is_refused_with_a_remedy(text: str) -> None:
    """A bare key of a label is no key of a selector."""
    with pytest.raises(InvalidInput, match=r"unknown key|known"):
        selector_of(text)
