"""Why a gang finds no place, counted by host, and what would help."""
