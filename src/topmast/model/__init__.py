"""The domain: frozen values that every scope speaks, with no behaviour beyond validation."""
