"""The data catalogue: datasets, replicas, copies on demand, deletions.

`Data` has them all, and orders copies and deletions of the mover.
"""
