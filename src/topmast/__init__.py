"""Topmast: an open global scheduler for machine-learning training jobs."""

__version__ = "0.1.0"
