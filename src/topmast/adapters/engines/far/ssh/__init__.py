"""Plain hosts behind SSH, without an agent, a new port or root: each is asked over a connection.

`launcher` makes the calls, `lines` keeps a connection to each host, `remote` is sent over it and
keeps the parts in a folder there. Runners call home through the same connection.
"""

from typing import Any

from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.ssh.launcher import SshLauncher
from topmast.adapters.engines.far.ssh.options import SshOptions
from topmast.model.fleet import ClusterSpec
from topmast.ports import Finding, Level

WITH_SSH = "pip install 'topmast[ssh]'"

__all__ = ["SshEngine", "SshLauncher", "SshOptions"]


class SshEngine(FarEngine):
    """Plain hosts behind SSH."""

    launcher_type = SshLauncher

    @classmethod
    def examine(cls, cluster: ClusterSpec, options: Any) -> tuple[Finding, ...]:
        """Log in to each host, and compare what it has."""
        from topmast.adapters.engines.far.examine import examined

        try:
            from topmast.adapters.engines.far.ssh.discover import discover
        except ImportError:
            return (Finding(Level.FAULT, "reach it", "asyncssh is missing", WITH_SSH),)
        names = [host.name for host in cluster.hosts]
        return examined(cluster, lambda: discover(names, options)) if names else ()
