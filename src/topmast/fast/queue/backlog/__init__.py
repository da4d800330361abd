"""Waiting jobs: their order, what blocks them, and what they are expected to need."""
