"""Alembic migrations of the journal, run when it is opened (`schema.migrate`)."""
