"""What tests have to do with that runs beside them: databases, and a store of Azure's kind."""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.support import azurite, postgresql
from tests.support.stores import Store


@pytest.fixture(scope="session")
def postgres() -> Iterator[str | None]:
    with postgresql.server() as url:
        yield url


@pytest.fixture(scope="session")
def azure() -> Iterator[Callable[[], str]]:
    """Makes containers on a server of Azure's protocol; gives their URLs."""
    if why := azurite.missing():
        pytest.skip(why)
    with azurite.azurite() as url:
        yield lambda: azurite.make_container(url, f"c{time.monotonic_ns()}")


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        path = tmp_path / "state" / "journal.sqlite3"
        engine = sa.create_engine(f"sqlite:///{path}", poolclass=sa.NullPool)
        yield Store(str(path), engine)
        return
    url_of_server = request.getfixturevalue("postgres")
    if url_of_server is None:
        pytest.skip("PostgreSQL is not installed")
    yield from _in_postgresql(url_of_server)


@pytest.fixture
def database(postgres: str | None) -> Iterator[Store]:
    """A database in PostgreSQL."""
    if postgres is None:
        pytest.skip("PostgreSQL is not installed")
    yield from _in_postgresql(postgres)


def _in_postgresql(url_of_server: str) -> Iterator[Store]:
    server = sa.make_url(url_of_server).set(drivername="postgresql+psycopg")
    name = f"topmast_test_{os.getpid()}_{random.randrange(10**9)}"
    admin = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with admin.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
        url = server.set(database=name)
        yield Store(
            url.render_as_string(hide_password=False),
            sa.create_engine(url, poolclass=sa.NullPool),
        )
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")
