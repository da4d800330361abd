"""Use cases shared by the API and other front ends."""
