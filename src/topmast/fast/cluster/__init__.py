"""A cluster: the life of each gang from launch to its last process."""
