"""What a region has and who holds it: hosts in columns, counts by topology domain, allocations."""
