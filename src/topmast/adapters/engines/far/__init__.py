"""Engines on other machines: one generic engine, one runner, and a thin launcher for each kind."""
