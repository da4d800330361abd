"""Gangs that share GPUs: pairs at the same time, slices in turns, and their rebalancing."""
