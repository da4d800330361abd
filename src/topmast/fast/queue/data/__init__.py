"""The data catalogue: datasets, replicas, copies on demand, deletions."""
