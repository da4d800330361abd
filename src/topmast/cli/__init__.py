"""The command line: presentation only, a client of the REST interface."""

from topmast.cli.main import build, main
from topmast.cli.root import Root

__all__ = ["Root", "build", "main"]
