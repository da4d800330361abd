"""Composition: each module puts real adapters around the machines for one purpose.

`main` is the program; `roles` runs a server of one kind: the `control_plane`, or the process of one
`region`, which share `process`. `replay` and `whatif` read the journal of a server.
"""

from topmast.app.main import main

__all__ = ["main"]
