"""The fast path: three scopes that decide in milliseconds where a job runs."""
