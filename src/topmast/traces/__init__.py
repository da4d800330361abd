"""Traces of jobs: readers of public formats, our own format, generators, descriptions."""
