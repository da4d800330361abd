"""`db`, `backup`, `restore`: what they hand over, and how a check ends."""

from pathlib import Path

import pytest

from tests.unit.cli.conftest import Call


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["db", "check"], {"verb": "check", "store": "None"}),
        (["db", "check", "--store", "postgresql://db1/x"], {"store": "postgresql://db1/x"}),
        (["db", "upgrade"], {"verb": "upgrade"}),
        (
            ["db", "copy", "--to", "postgresql://db1/x", "--switch"],
            {"verb": "copy", "to": "postgresql://db1/x", "switch": "True"},
        ),
        (["backup", "b"], {"verb": "backup", "file": "b"}),
        (["restore", "b", "--verify"], {"verb": "restore", "file": "b", "verify": "True"}),
    ],
)
def test_what_the_root_is_given(
    call: Call, tmp_path: Path, arguments: list[str], want: dict[str, str]
) -> None:
    document = call(*arguments, "--state", tmp_path, "--json").document
    assert document["state"] == str(tmp_path)
    assert want.items() <= document.items()


def test_a_check_that_finds_faults_fails_and_names_them(call: Call) -> None:
    called = call("db", "check", "--store", "postgresql://damaged", "--json")
    assert called.code == 1
    assert called.document["faults"] == ["record 3 is damaged"]
    assert called.error == "topmast: d: record 3 is damaged"
    assert call("db", "check").code == 0


@pytest.mark.parametrize("arguments", [["db", "check"], ["restore", "b", "--verify"]])
def test_it_is_said_which_jobs_are_counted(call: Call, arguments: list[str]) -> None:
    """Those that ended long ago are not lost: a server does not keep them in memory."""
    said = "jobs: what a server keeps in memory"
    assert said not in call(*arguments).out
    assert said in call(*arguments, "--store", "postgresql://old").out


def test_when_a_backup_was_made_is_a_date_for_people_and_seconds_for_programs(call: Call) -> None:
    shown = call("backup", "b").out
    assert "made_at  " in shown
    assert "1970-01-01" in shown
    assert "made_at_s" not in shown
    assert call("backup", "b", "--json").document["made_at_s"] == 12.5


def test_a_copy_needs_a_target(call: Call) -> None:
    called = call("db", "copy")
    assert called.code == 2
    assert "--to" in called.error
