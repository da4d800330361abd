"""Progress files are followed as they grow, in bounded bites."""

from pathlib import Path

import pytest

from topmast.adapters.engines.local import tail
from topmast.adapters.engines.local.tail import Tail

NOW = 1000.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A progress file, not there yet."""
    return tmp_path / "0.progress"


def append(file: Path, text: str) -> None:
    with file.open("a") as opened:
        opened.write(text)


def test_nothing_new_is_none(file: Path) -> None:
    """Neither a missing file nor one read already has news."""
    follower = Tail(file)
    assert follower.read(NOW) is None
    append(file, '{"step": 1}\n')
    assert follower.read(NOW) is not None
    assert follower.read(NOW) is None


def test_the_news_are_the_latest(file: Path) -> None:
    """Of several steps and checkpoints since the last look, the last."""
    follower = Tail(file)
    append(file, '{"resumed_from": 4}\n{"step": 5, "checkpoint": true, "at_s": 900}\n{"step": 6}\n')
    news = follower.read(NOW)
    assert news
    assert (news.progress, news.checkpoint, news.resumed) == (True, (5, 900.0), 4)
    assert follower.report.step == 6


@pytest.mark.parametrize(
    ("at_s", "want_s"), [("2000", NOW), ("-1", NOW), ('"x"', NOW), ("NaN", NOW), ("7", 7.0)]
)
def test_a_checkpoint_is_never_in_the_future(file: Path, at_s: str, want_s: float) -> None:
    """Work that was not done yet cannot have been kept."""
    append(file, f'{{"step": 5, "checkpoint": true, "at_s": {at_s}}}\n')
    news = Tail(file).read(NOW)
    assert news
    assert news.checkpoint == (5, want_s)


def test_a_line_that_is_not_finished_waits(file: Path) -> None:
    """It counts when its end is written."""
    follower = Tail(file)
    append(file, '{"step": 1}\n{"step"')
    follower.read(NOW)
    assert follower.report.step == 1
    append(file, ": 2}\n")
    follower.read(NOW)
    assert follower.report.step == 2


def test_a_line_without_end_is_given_up(file: Path) -> None:
    """Memory stays small, and later lines are read."""
    follower = Tail(file)
    append(file, "x" * (3 * tail.READ_BYTES) + '\n{"step": 3}\n')
    follower.read(NOW, whole=True)
    assert follower.report.step == 3


def test_one_look_is_bounded(file: Path) -> None:
    """A file that grows fast does not hold up the others; its end is read in whole."""
    append(file, '{"step": 1}\n' * 100_000 + '{"step": 2}\n')
    follower = Tail(file)
    follower.read(NOW)
    assert follower.report.step == 1
    follower.read(NOW, whole=True)
    assert follower.report.step == 2


def test_of_a_huge_backlog_the_end_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Earlier lines are skipped."""
    monkeypatch.setattr(tail, "BACKLOG_BYTES", 1000)
    append(file, '{"resumed_from": 1}\n' * 1000 + '{"step": 2}\n')
    follower = Tail(file)
    news = follower.read(NOW, whole=True)
    assert news
    assert follower.report.step == 2


def test_a_named_pipe_does_not_hang(file: Path) -> None:
    """Whatever a task puts there."""
    import os

    os.mkfifo(file)
    assert Tail(file).read(NOW) is None
    file.unlink()
    file.mkdir()
    assert Tail(file).read(NOW) is None
