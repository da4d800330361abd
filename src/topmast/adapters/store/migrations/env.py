"""Runs the migrations on the connection handed in, within its transaction."""

from __future__ import annotations

from alembic import context

from topmast.adapters.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
