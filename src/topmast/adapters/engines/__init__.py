"""Engines: what runs the gangs of a cluster."""
