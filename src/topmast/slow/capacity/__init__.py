"""Capacity assignment: which hosts of a region belong to which clusters.

`reading` reads a problem, `planner` solves it, `answer` says what was decided. Everything in
between works on `classes`: per GPU model, how many hosts of a cell (datacenter, domain, GPUs a
host) each owner has.
"""
