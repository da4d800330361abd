"""Plain hosts behind SSH, without an agent, a new port or root: each is asked over a connection.

`launcher` makes the calls, `lines` keeps a connection to each host, `remote` is sent over it and
keeps the parts in a folder there. Runners call home through the same connection.
"""

from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.ssh.launcher import SshLauncher
from topmast.adapters.engines.far.ssh.options import SshOptions

__all__ = ["SshEngine", "SshLauncher", "SshOptions"]


class SshEngine(FarEngine):
    """Plain hosts behind SSH."""

    launcher_type = SshLauncher
