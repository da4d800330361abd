"""The exhaustive search on free capacity: requests, knapsack, branch and bound, scores, kernels."""
