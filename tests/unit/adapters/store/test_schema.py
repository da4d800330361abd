"""Versions of the database: the migrations lead to what `tables` says."""

from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from topmast.adapters.store import JournalFailure, open_journal
from topmast.adapters.store.schema import MIGRATIONS, VERSIONS
from topmast.adapters.store.tables import METADATA, VERSION


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database as this version makes it."""
    path = tmp_path / "journal.sqlite3"
    open_journal(path).close()
    return path


@pytest.mark.filterwarnings("ignore:Skipped unsupported reflection")  # an index by what is in JSON
def test_the_migrations_make_the_tables(path: Path) -> None:
    with sa.create_engine(f"sqlite:///{path}").connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []


def test_every_migration_is_known_in_order() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config).walk_revisions()
    assert tuple(script.revision for script in scripts)[::-1] == VERSIONS


def test_an_empty_file_becomes_a_database(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite3"
    path.touch()
    with pytest.raises(JournalFailure, match="database is empty"):
        open_journal(path, read_only=True)
    open_journal(path).close()
    open_journal(path, read_only=True).close()


def test_a_version_table_without_a_version_is_not_ours(path: Path) -> None:
    with sa.create_engine(f"sqlite:///{path}").begin() as connection:
        connection.execute(VERSION.delete())
    with pytest.raises(JournalFailure, match="another program"):
        open_journal(path)
