"""Jobs that wait for other jobs: hooks only."""
