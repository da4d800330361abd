"""The simulator: the production machines under a virtual clock, with engines that only reckon."""
