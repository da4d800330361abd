"""What a far engine keeps on disk."""

import os
from pathlib import Path

import pytest

from topmast.adapters.engines.far import events as e
from topmast.adapters.engines.far.store import FactLog, Identity, Outputs
from topmast.model.errors import Unavailable

FACTS: list[e.Fact] = [e.Stopped("j1", 1, 5.0), e.Recorded("tm-f-j2-1-0", "7", 3.25)]


def written(file: Path, *facts: e.Fact) -> FactLog:
    log = FactLog(file)
    log.load()
    log.rewrite([])
    log.append(facts)
    return log


def test_facts_are_read_as_they_were_recorded(tmp_path: Path) -> None:
    """By a later process."""
    written(tmp_path / "facts", *FACTS).close()
    assert FactLog(tmp_path / "facts").load() == FACTS


def test_a_torn_line_at_the_end_was_never_acted_upon(tmp_path: Path) -> None:
    """The machine crashed while it was written."""
    file = tmp_path / "facts"
    written(file, *FACTS).close()
    file.write_bytes(file.read_bytes() + b'{"type":"Stopped","job"')
    assert FactLog(file).load() == FACTS


def test_a_damaged_line_is_an_error_that_names_it(tmp_path: Path) -> None:
    """To skip it could start an attempt twice."""
    file = tmp_path / "facts"
    written(file, *FACTS).close()
    first, *rest = file.read_bytes().split(b"\n")
    file.write_bytes(b"\n".join([first[:-9], *rest]))
    with pytest.raises(Unavailable, match=r"facts, line 1: .*restore the file"):
        FactLog(file).load()


def test_what_could_not_be_recorded_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full in the middle of a line; the same facts are recorded later."""
    file = tmp_path / "facts"
    log = written(file, FACTS[0])
    before = file.read_bytes()

    def full(fd: int) -> None:
        raise OSError(28, "no space")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space"):
            log.append([FACTS[1]])
    assert file.read_bytes() == before
    log.append([FACTS[1]])
    assert FactLog(file).load() == FACTS


def test_an_identity_stays_and_is_private(tmp_path: Path) -> None:
    """Runners of before a restart have tokens of the same secret."""
    first, second = Identity(tmp_path), Identity(tmp_path)
    assert (first.fleet, first.token("p")) == (second.fleet, second.token("p"))
    assert first.token("p") != first.token("q")
    assert [oct(file.stat().st_mode & 0o777) for file in tmp_path.iterdir()] == ["0o600"] * 2


@pytest.mark.parametrize(
    ("story", "offset", "page", "want_offset", "want_kept"),
    [
        ("the next page", 5, b" world", 11, b"hello world"),
        ("a page for the second time", 0, b"hello", 5, b"hello"),
        ("a page after one that was lost", 9, b"!", 5, b"hello"),
    ],
)
def test_pages_may_be_lost_and_doubled(
    tmp_path: Path, story: str, offset: int, page: bytes, want_offset: int, want_kept: bytes
) -> None:
    """Home says from where on it wants more."""
    outputs = Outputs(tmp_path, 1000)
    file = outputs.file("j1", 1, 0)
    assert outputs.add(file, 0, b"hello") == (5, False)
    assert outputs.add(file, offset, page) == (want_offset, False)
    assert file.read_bytes() == want_kept


def test_output_beyond_the_most_is_dropped(tmp_path: Path) -> None:
    """The runner is told so: its task does not wait for us."""
    outputs = Outputs(tmp_path, 5)
    file = outputs.file("j1", 1, 0)
    assert outputs.add(file, 0, b"hello") == (5, False)
    assert outputs.add(file, 5, b" world") == (11, True)
    assert outputs.add(file, 11, b"!") == (12, True)
    assert file.read_bytes() == b"hello"
