"""Where the task begins, references become values, or an error that names the reference alone."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from topmast.adapters.engines.far.runner.references import (
    NoSecret,
    missing,
    resolved,
    without_handed,
)


def test_each_kind_of_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file loses the end of its last line, and nothing else."""
    (tmp_path / "a").write_text(" two\nlines \n")
    monkeypatch.setenv("ELSEWHERE", "b")
    monkeypatch.setenv("TOPMAST_SECRET_C", "c")
    secrets = {"A": f"file:{tmp_path}/a", "B": "env:ELSEWHERE", "C": "kubernetes:s/k"}
    assert missing(secrets) == ""
    assert resolved(secrets) == {"A": " two\nlines ", "B": "b", "C": "c"}
    assert "TOPMAST_SECRET_C" not in without_handed(os.environ)
    assert without_handed({"ELSEWHERE": "b"}) == {"ELSEWHERE": "b"}


def _big(path: Path) -> None:
    path.write_text("s3cret" * 20_000)


@pytest.mark.parametrize(
    ("story", "make", "reference", "told"),
    [
        ("there is none", lambda path: None, "file:{}", "No such file"),
        ("it is a folder", Path.mkdir, "file:{}", "is not a file"),
        ("it is a pipe, which would wait", os.mkfifo, "file:{}", "is not a file"),
        ("it has no end", lambda path: path.symlink_to("/dev/zero"), "file:{}", "is not a file"),
        ("it is too long", _big, "file:{}", "too long"),
        ("it has NUL", lambda path: path.write_bytes(b"s3cret\0"), "file:{}", "NUL"),
        ("no such variable", lambda path: None, "env:TM_NO_SUCH", "env:TM_NO_SUCH is not there"),
        ("it was not handed over", lambda path: None, "kubernetes:s/k", "is not there"),
    ],
)
def test_a_reference_that_leads_nowhere(
    tmp_path: Path, story: str, make: Callable[[Path], object], reference: str, told: str
) -> None:
    """The error names the variable and the place, and nothing of what is there."""
    make(tmp_path / "a")
    with pytest.raises(NoSecret) as caught:
        resolved({"KEY": reference.format(tmp_path / "a")})
    assert told in str(caught.value)
    assert str(caught.value).startswith("secrets.KEY: ")
    assert "s3cret" not in str(caught.value)
    unread = "" if told in ("too long", "NUL") else str(caught.value)  # what only a reader finds
    assert missing({"KEY": reference.format(tmp_path / "a")}) == unread
