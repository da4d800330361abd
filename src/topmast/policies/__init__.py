"""Scheduling policies: protocols, registry, and named profiles as data files."""
