"""One queue over every kind of engine at once."""
