"""One file per policy; none imports another."""
