"""Readers of the job file and the fleet file."""
