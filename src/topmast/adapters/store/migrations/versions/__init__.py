"""One file a version, each revising the one before."""
