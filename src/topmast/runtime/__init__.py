"""The loop: journal, machine, actions; snapshots and recovery."""
