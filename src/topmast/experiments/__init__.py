"""Experiments: runs of the simulator from files to files, and comparisons of them."""
