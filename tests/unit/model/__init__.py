"""The domain and its files."""
