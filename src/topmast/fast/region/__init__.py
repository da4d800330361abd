"""A region: its hosts in columns, the exhaustive search, preemption and scoring."""
