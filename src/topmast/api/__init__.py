"""REST on loopback: presentation only."""
