"""Variables of tasks: references to secrets, and what is no reference."""

from typing import Any

import pytest
from msgspec import UNSET

from topmast.model.engines import Capability
from topmast.model.errors import InvalidInput
from topmast.model.files.jobfile import dump_job, parse_job
from topmast.model.job import in_kubernetes, needs_of_engine

WHOLE = {
    "A": "file:/etc/topmast/a token",
    "B": "env:WANDB_API_KEY",
    "C": "kubernetes:team-secrets/s3.key",
}


def test_references_are_kept_as_they_are() -> None:
    """They are read back to the same; a job without any says nothing of them."""
    spec = parse_job({"run": "x", "secrets": WHOLE}).spec
    assert spec.secrets == WHOLE
    assert parse_job(dump_job(spec)).spec == spec
    assert parse_job({"run": "x"}).spec.secrets is UNSET
    assert parse_job({"run": "x", "secrets": {}}).spec.secrets is UNSET


def test_secrets_need_an_engine_that_can_give_them() -> None:
    """Those of Kubernetes are given to containers; variables of hosts not by every engine."""
    images, env = Capability.IMAGES, Capability.ENV
    for job, want in (
        ({}, UNSET),
        ({"secrets": {"A": "file:/a"}}, UNSET),
        ({"image": "r/i"}, (images,)),
        ({"secrets": {"A": "kubernetes:s/k"}}, (images,)),
        ({"secrets": {"A": "env:A"}}, (env,)),
        ({"secrets": WHOLE}, (images, env)),
        ({"image": "r/i", "secrets": {"A": "env:A"}}, (images, env)),
    ):
        assert needs_of_engine(parse_job({"run": "x", **job}).spec) == want
    assert in_kubernetes(parse_job({"run": "x", "secrets": WHOLE}).spec) == {
        "C": ("team-secrets", "s3.key")
    }


@pytest.mark.parametrize(
    ("story", "job", "field", "told"),
    [
        ("the value itself", {"A": "hunter2"}, "secrets.A", "never the value"),
        ("a relative path", {"A": "file:a"}, "secrets.A", "file:/PATH"),
        ("a line end in a path", {"A": "file:/a\nb"}, "secrets.A", "file:/PATH"),
        ("a variable with a blank", {"A": "env:MY TOKEN"}, "secrets.A", "env:NAME"),
        ("a Secret without a key", {"A": "kubernetes:name"}, "secrets.A", "kubernetes:SECRET/KEY"),
        ("a Secret with a path", {"A": "kubernetes:../x/y"}, "secrets.A", "kubernetes:SECRET/KEY"),
        ("another kind", {"A": "vault:x"}, "secrets.A", "not a reference"),
        ("no name of a variable", {"A-B": "env:A"}, "secrets.A-B", "environment variable"),
        ("a name of ours", {"TOPMAST_TOKEN": "env:A"}, "secrets.TOPMAST_TOKEN", "rename it"),
        ("a name of the frameworks", {"RANK": "env:A"}, "secrets.RANK", "set by Topmast"),
        ("a list", ["env:A"], "secrets", ""),
    ],
)  # fmt: skip
def test_what_is_no_reference(story: str, job: Any, field: str, told: str) -> None:
    """The error says what would be one, and never repeats what may be the secret."""
    with pytest.raises(InvalidInput) as caught:
        parse_job({"run": "x", "secrets": job})
    text = f"{caught.value} {caught.value.remedy}"
    assert caught.value.field == field
    assert told in text
    assert "hunter2" not in text


def test_a_variable_is_given_once() -> None:
    """Either its value, or where it is."""
    with pytest.raises(InvalidInput, match="is in envs too"):
        parse_job({"run": "x", "envs": {"A": "1"}, "secrets": {"A": "env:A"}})
