"""Rounds of Gavel: fractions of time that become turns, and pairs of jobs on the same GPUs."""
