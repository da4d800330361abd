"""How long jobs will run, learned from those that finished: features, a tree, its training."""
