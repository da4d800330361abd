"""Kubernetes: a bare pod for each host of an attempt, through the API server alone."""
