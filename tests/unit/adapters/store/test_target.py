"""Which database a state folder remembers, and when."""

from pathlib import Path

import pytest

from topmast.adapters.store import remember_store, store_of
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
