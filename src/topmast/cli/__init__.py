"""The command line: presentation only, a client of the REST interface."""
