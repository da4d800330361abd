"""Claims, ends and reports on disk: taken once, written whole, read whatever is there."""

import os
from pathlib import Path

import pytest

from topmast.adapters.engines.local import files
from topmast.adapters.engines.local.files import Layout, Report
from topmast.model.messages import TaskExited
from topmast.runtime.codec import decode_event, encode_event

BEYOND = 10**20
"""A number that fits into no column."""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """The folder of an engine that has one attempt, j1.1."""
    layout = Layout(tmp_path / "engine")
    for folder in (layout.tasks, layout.attempt("j1.1")):
        files.make_folder(folder)
    return layout


def test_a_task_is_claimed_once(layout: Layout) -> None:
    """Not while it is held, and not afterwards."""
    file = layout.claim("j1.1.0")
    lock = files.claim(file, {"pid": 1})
    assert lock is not None
    assert files.claim(file, {"pid": 2}) is None
    assert files.is_locked(file)
    os.close(lock)
    assert not files.is_locked(file)
    assert files.claim(file, {"pid": 2}) is None
    assert files.read_json(file) == {"pid": 1}


def test_a_claim_cut_short_before_it_was_written_is_none(layout: Layout) -> None:
    """Its holder had not begun to run anything."""
    layout.claim("j1.1.0").touch()
    assert files.claim(layout.claim("j1.1.0"), {"pid": 1}) is not None


def test_a_torn_claim_counts(layout: Layout) -> None:
    """After a crash of the machine anything may be in it: whoever wrote it may have run."""
    layout.claim("j1.1.0").write_bytes(b"\0\0\0")
    assert files.claim(layout.claim("j1.1.0"), {"pid": 1}) is None


def test_a_living_task_is_not_buried(layout: Layout) -> None:
    """Only when its supervisor is gone is it lost, and then once."""
    lock = files.claim(layout.claim("j1.1.0"), {"pid": 1})
    assert lock is not None
    assert files.bury(layout, "j1.1.0", "too early", 1.0) is None
    os.close(lock)
    layout.progress("j1.1.0").write_text('{"step": 3, "metrics": {"loss": 0.5}}\n')
    end = files.bury(layout, "j1.1.0", "lost", 2.0)
    want = {"code": None, "at_s": 2.0, "error": "lost", "step": 3, "metrics": {"loss": 0.5},
            "stopped": False}  # fmt: skip
    assert end == want
    assert files.bury(layout, "j1.1.0", "again", 3.0) == want


def test_a_recorded_end_wins(layout: Layout) -> None:
    """A task that ended by itself is not lost, however late we look."""
    end = files.record_end(layout, "j1.1.0", 0, 1.0, "", Report())
    assert files.bury(layout, "j1.1.0", "lost", 2.0) == end


@pytest.mark.parametrize(
    ("story", "content", "want"),
    [
        ("names that are no text", r'{"code": 3, "metrics": {"\udcff": 1, "loss": 2}}',
         {"code": 3, "metrics": {"loss": 2.0}}),
        ("an error that is no text", r'{"code": 3, "error": "no file \udcff\u0000"}',
         {"code": 3, "error": "no file ??"}),
        ("times and numbers that are none",
         '{"code": 0, "at_s": NaN, "step": "7", "metrics": {"a": Infinity}}', {"code": 0}),
        ("a status beyond all", '{"code": 1e400}', {}),
        ("a status that no process has", '{"code": 256, "at_s": 5}', {"at_s": 5.0}),
        ("a status that is text", '{"code": "0"}', {}),
        ("an object that says nothing", "{}", {}),
        ("a stop that is text", '{"stopped": "no"}', {}),
        ("an end after a stop", '{"code": 0, "stopped": true}', {"code": 0, "stopped": True}),
        ("an error that is an object", '{"error": {"a": 1}}', {"error": "{'a': 1}"}),
    ],
)  # fmt: skip
def test_a_record_says_only_what_can_be_told(
    layout: Layout, story: str, content: str, want: dict[str, object]
) -> None:
    """A task can write over its record: what is read of it fits into a journal, always."""
    layout.end("j1.1.0").write_text(content)
    nothing: dict[str, object] = {
        "code": None,
        "at_s": 0.0,
        "error": "",
        "step": None,
        "metrics": {},
        "stopped": False,
    }
    end = files.read_end(layout, "j1.1.0")
    assert end == {**nothing, **want}
    exited = TaskExited("j1", 1, 0, end["code"] or 0, end["at_s"], error=end["error"])
    assert decode_event(encode_event(exited)) == exited


def test_an_error_is_recorded_as_text(layout: Layout) -> None:
    """The name of a file in it need not be UTF-8."""
    end = files.record_end(layout, "j1.1.0", 126, 1.0, os.fsdecode(b"no such file: \xff"), Report())
    assert end["error"] == "no such file: ?"


def test_a_buried_task_never_starts(layout: Layout) -> None:
    """Not even if a supervisor of it comes late."""
    files.bury(layout, "j1.1.0", "its host is down", 1.0)
    assert files.claim(layout.claim("j1.1.0"), {"pid": 1}) is None


def test_every_trace_of_an_attempt_takes_its_name(layout: Layout) -> None:
    """Its claim, its folder, or the line that says that it was forgotten; nothing else does."""
    for name in (
        "j1.3.0",
        "j1.2.0",
        "j1.2.0.end",
        "j4.1.12",
        "lost+found",
        "j1.07.0",
        f"j1.{BEYOND}.0",
    ):
        layout.claim(name).touch()
    for name in ("j2.7", "j1.1", "j9", f"j2.{BEYOND}"):
        files.make_folder(layout.attempt(name))
    layout.forgotten.write_bytes(
        f"j3 5\nj\xff 1\nj3 \xb2\nj3 {BEYOND}\nj2 1\ntorn".encode("latin1")
    )
    assert files.epochs_in(layout) == {"j1": 3, "j2": 7, "j3": 5, "j4": 1}
    assert files.epochs_in(Layout(layout.root / "nowhere")) == {}


def test_files_are_ours_alone(layout: Layout) -> None:
    """What we write nobody else can read."""
    files.write_json(layout.plan("j1.1"), {"a": 1})
    assert layout.plan("j1.1").stat().st_mode & 0o777 == 0o600
    assert layout.tasks.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in layout.attempt("j1.1").iterdir()] == ["plan.json"]


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_object_reads_as_none(tmp_path: Path, content: bytes) -> None:
    """A damaged file is as good as a missing one."""
    (tmp_path / "x").write_bytes(content)
    assert files.read_json(tmp_path / "x") is None
    assert files.read_json(tmp_path / "missing") is None


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[1, 2]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"step": "7"}',
        b'{"step": true}',
        b'{"step": 1.5}',
        b'{"step": 1e999}',
        b'{"step": 123456789012345678901234567890}',
        b'{"metrics": [1]}',
        b'{"metrics": {"a": NaN, "b": Infinity, "c": "x", "d": true, "e": null}}',
        b'{"metrics": {"a": 1e999}}',
        b'{"metrics": {"a": ' + b"9" * 400 + b"}}",
        b'{"metrics": {"a": ' + b"9" * 5000 + b"}}",
        rb'{"metrics": {"\ud800": 1.0}}',
        rb'{"metrics": {"file \udcff.bin": 1.0}}',
        rb'{"metrics": {"nul \u0000": 1.0}}',
        b'{"step": -5}',
    ],
)
def test_garbage_changes_no_report(line: bytes) -> None:
    """A user's file may hold anything."""
    report = Report()
    report.take(line)
    assert (report.step, report.metrics) == (None, {})


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("j1.1.0", True),
        ("j1.1.0.end", False),
        (".j1.1.0.77", False),
        ("j1.1", False),
        ("lost+found", False),
        ("j1.x.0", False),
        ("j1.1.²", False),
    ],
)
def test_only_tasks_are_taken_for_tasks(name: str, want: bool) -> None:
    """Temporary files, and what people leave lying about, are passed over."""
    assert files.is_task(name) is want


def test_a_report_remembers_the_last_of_each() -> None:
    """The last step, the last value of every metric, and not more metrics than fit on a page."""
    report = Report()
    report.take(b'{"step": 1, "metrics": {"loss": 2, "accuracy": 0.5}}')
    report.take(b'{"metrics": {"loss": 1}}')
    assert (report.step, report.metrics) == (1, {"loss": 1.0, "accuracy": 0.5})
    for number in range(1000):
        report.take(b'{"metrics": {"m%d": 1}}' % number)
    assert len(report.metrics) == files.METRICS_MAX
