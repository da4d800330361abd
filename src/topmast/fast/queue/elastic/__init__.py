"""Elastic jobs: when their sizes may change, and which may have more tasks."""
