"""Waiting jobs: their order, what blocks them, and what they are expected to need.

`Backlog` says which job is next, and keeps what is known of jobs without a place. It asks no
region.
"""
