"""What a region has and what attempts hold: hosts in columns, counts by domain, allocations."""
