"""What users write in reasons and names does not reach a terminal, whatever the command prints it."""

import io
import sys
from typing import Any

import msgspec
import pytest
from rich.console import Console

from tests.unit.cli.conftest import Call
from tests.unit.cli.test_fleet import CLUSTERS, RESERVATION, TENANTS, acted, host
from tests.unit.client.fake import FakeServer
from topmast.cli.output import Cell, Column, rich_table, say, say_block, say_table, say_text, warn
from topmast.model import views as v
from topmast.model.act_views import ClusterActed, TenantPause

NASTY = "why \x1b[2J\x07\x9b1m\u202eabc\u2066 end"
SPELLED = "why \\x1b[2J\\x07\\x9b1m\\u202eabc\\u2066 end"
ACTS = [
    ["tenants"], ["hosts"], ["clusters"], ["reserve"], ["usage", "--by", "user", "--csv"],
    ["tenants", "pause", "vision"], ["tenants", "resume", "vision", "--dry-run"],
    ["cordon", "h0"], ["uncordon", "h0"], ["drain", "h0"], ["drain", "h0", "--dry-run"],
    ["clusters", "close", "east-1"], ["clusters", "open", "east-1", "--dry-run"],
    ["reserve", "add", "h0", "--for", "4h"], ["reserve", "end", "w1", "--dry-run"],
]  # fmt: skip


@pytest.fixture
def nasty(server: FakeServer) -> FakeServer:
    """A server to which users gave reasons that act on a terminal."""
    closed = host("h0", "closed", closed=NASTY, stays={"j1": NASTY})
    shut = msgspec.structs.replace(CLUSTERS[0], state="closed", closed=NASTY)
    pause = TenantPause("vision", NASTY, True, 2, 0, (), 0.0, 0.0)
    reserved = msgspec.structs.replace(RESERVATION, reason=NASTY)
    paused = msgspec.structs.replace(TENANTS[0], paused=NASTY, for_a_while=NASTY, until_s=2e9)
    move = v.MoveView("j1", ("h0",), False, None, (), 60.0, NASTY)
    server.on("GET", "/tenants", {"tenants": [paused]})
    server.on("GET", "/hosts", {"hosts": [closed]})
    server.on("GET", "/clusters", {"clusters": [shut]})
    server.on("GET", "/reservations", {"reservations": [reserved]})
    rows = msgspec.to_builtins([v.UsageRow(NASTY, 1, 1.0, 1.0, 0.0)])
    server.on("GET", "/usage", {"usage": rows, "since_s": 1e9, "until_s": 2e9, "by": "user"})
    for verb in ("pause", "resume"):
        server.on("POST", f"/tenants/{verb}", {"tenants": [pause]})
    for verb in ("cordon", "uncordon", "drain"):
        drains = (v.DrainView("h0", "east", "draining", (move,)),) if verb == "drain" else ()
        server.on("POST", f"/hosts/{verb}", acted(verb, closed, drains=drains))
    for verb in ("close", "open"):
        answer = ClusterActed(verb, True, shut, "done", ())
        server.on("POST", f"/clusters/{verb}", {"clusters": [answer]})
    for path in ("/reservations", "/reservations/w1/end"):
        server.on("POST", path, reserved)
    return server


@pytest.mark.parametrize("arguments", ACTS, ids=" ".join)
def test_what_users_write_is_spelled_out(
    arguments: list[str], nasty: FakeServer, call: Call
) -> None:
    """Controls and what turns the direction of writing, in tables and in the lines around them."""
    called = call(*arguments)
    assert called.code == 0, called.err
    assert SPELLED in called.out
    unsafe = [letter for letter in called.out + called.err if not letter.isprintable()]
    assert set(unsafe) <= {"\n"}


@pytest.mark.parametrize("arguments", [one for one in ACTS if "--csv" not in one], ids=" ".join)
def test_json_has_what_users_wrote(arguments: list[str], nasty: FakeServer, call: Call) -> None:
    """Escaped as JSON does it, so that it reads back as the same."""
    called = call(*arguments, "--json")
    assert called.out.rstrip("\n").isprintable()
    assert NASTY in _texts(called.document)


def _texts(document: Any) -> list[str]:
    if isinstance(document, dict):
        return [text for part in document.values() for text in _texts(part)]
    if isinstance(document, list):
        return [text for part in document for text in _texts(part)]
    return [document] if isinstance(document, str) else []


def test_a_warning_is_broken_between_words_on_a_terminal_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As prose of a result is: a line that a terminal breaks itself splits words."""
    text = "topology.required: no rack could hold it, and the job waits until one can"
    warn(text)
    assert capsys.readouterr().err == f"warning: {text}\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    warn(text)
    assert capsys.readouterr().err.splitlines() == [
        "warning: topology.required: no rack", "  could hold it, and the job waits until", "  one can",
    ]  # fmt: skip


def test_every_way_to_write_is_safe(capsys: pytest.CaptureFixture[str]) -> None:
    """A line stays one line; a block keeps its lines and tabs."""
    say(f"{NASTY}\nforged")
    say_text(NASTY, first="- ")
    say_block(f"a:\n\t{NASTY}\n")
    say_table([], [], title=NASTY)
    assert capsys.readouterr().out.splitlines() == [
        f"{SPELLED} forged", f"- {SPELLED}", "a:", f"\t{SPELLED}", SPELLED, ""
    ]  # fmt: skip


def test_no_word_of_a_table_is_lost_where_it_is_narrow() -> None:
    """Those that have to give way take more lines, or stand beneath the row."""
    why = "refused: no region 'eats' (did you mean 'east'?)"
    columns = [
        Column("WHEN", whole=True), Column("VERB"), Column("OBJECT", folds=True),
        Column("CHANGE", folds=True), Column("OUTCOME", folds=True),
    ]  # fmt: skip
    cells = [
        [Cell(text) for text in row]
        for row in (
            ("2026-11-28 11:26:24", "drop-replica", "imagenet", "", why),
            ("2026-11-28 11:26:24", "submit", "j1", "jobs=1, users=root", "done"),
        )
    ]
    for room in range(40, 120):
        written = io.StringIO()
        Console(file=written, width=room).print(rich_table(columns, cells, room))
        lines = written.getvalue().splitlines()
        assert max(map(len, lines)) <= room
        assert set(why.split()) <= set(" ".join(lines).split()), room
