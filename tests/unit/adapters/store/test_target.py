"""Which database a state folder remembers, and when."""

from pathlib import Path

import pytest

from topmast.adapters.store import JournalFailure, open_journal, remember_store, store_of
from topmast.app.database import run
from topmast.cli.rootoptions import StoreOptions
from topmast.model.errors import InvalidInput

RIGHT = "postgresql://topmast@db1/topmast"
TYPO = "postgresql://topmast@bd1/topmast"


def test_a_database_that_was_never_opened_is_not_remembered(tmp_path: Path) -> None:
    """Else a mistyped URL would keep the folder from ever starting with the right one."""
    assert store_of(tmp_path, TYPO) == TYPO
    assert store_of(tmp_path, RIGHT) == RIGHT
    remember_store(tmp_path, RIGHT)
    assert store_of(tmp_path) == RIGHT
    with pytest.raises(InvalidInput, match="db1"):
        store_of(tmp_path, TYPO)


def test_how_a_database_is_reached_may_change(tmp_path: Path) -> None:
    """TLS is switched on for a folder that has its database already, and kept for later starts."""
    by_tls = f"{RIGHT}?sslmode=verify-full&sslrootcert=/etc/topmast/db-ca.pem"
    for url in (RIGHT, by_tls):
        remember_store(tmp_path, store_of(tmp_path, url))
        assert store_of(tmp_path) == url
    for other in (f"{RIGHT}?host=db2", f"{RIGHT}2?sslmode=require"):
        with pytest.raises(InvalidInput, match="db1"):
            store_of(tmp_path, other)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql:///x?host=db1,db2&port=1", "are not one for one"),
        ("postgresql:///x?host=db1&host=db2&port=1", "are not one for one"),
        ("postgresql://db1:five/x", "is not a URL of PostgreSQL"),
    ],
)
def test_hosts_that_cannot_be_told_apart_are_refused(tmp_path: Path, url: str, says: str) -> None:
    """With the option that has them, and not as a fault of the program."""
    with pytest.raises(InvalidInput, match=says) as refused:
        store_of(tmp_path, url)
    assert refused.value.field == "--store"
    assert store_of(tmp_path, "postgresql:///x?host=db1,db2&port=1,2")


def test_each_address_that_does_not_answer_is_told_once() -> None:
    """The driver says the last failure, and then all of them again."""
    with pytest.raises(JournalFailure) as refused:
        open_journal("postgresql:///x?host=127.0.0.1,127.0.0.2&port=1,1", read_only=True)
    said = str(refused.value)
    assert "no server answers there: start it" in said
    assert said.count('server at "127.0.0.1"') == 1
    assert said.count('server at "127.0.0.2"') == 1


def test_a_file_in_the_folder_needs_no_note(tmp_path: Path) -> None:
    """The journal in the folder is what a start without a URL opens."""
    remember_store(tmp_path, store_of(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_with_the_url_of_a_copy_names_its_option(tmp_path: Path) -> None:
    """The password of `--to` is not one of `--store`."""
    options = StoreOptions(state=tmp_path, store=RIGHT, to="postgresql://topmast:pw@db1/other")
    with pytest.raises(InvalidInput) as refused:
        run("copy", options)
    assert refused.value.field == "--to"
