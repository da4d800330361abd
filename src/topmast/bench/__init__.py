"""`topmast bench`: measurements of a real server on this machine."""
