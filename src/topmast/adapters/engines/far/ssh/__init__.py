"""Plain hosts behind SSH, without an agent, a new port or root: each is asked over a connection.

`launcher` makes the calls, `lines` keeps a connection to each host, `remote` is sent over it and
keeps the parts in a folder there. Runners call home through the same connection.
"""

from typing import Any

from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.ssh.launcher import SshLauncher
from topmast.adapters.engines.far.ssh.options import SshOptions
from topmast.model.errors import InvalidInput
from topmast.model.fleet import ClusterSpec
from topmast.ports import Finding, Level

WITH_SSH = "pip install 'topmast[ssh]'"

__all__ = ["SshEngine", "SshLauncher", "SshOptions"]


class SshEngine(FarEngine):
    """Plain hosts behind SSH."""

    launcher_type = SshLauncher

    @classmethod
    def addresses(cls, cluster: ClusterSpec, options: SshOptions) -> dict[str, str]:
        """Behind other jump hosts, the same address is another machine."""
        way = f"port {options.port}" + (f", through {options.jump}" if options.jump else "")
        named = {host.name: options.address.get(host.name, host.name) for host in cluster.hosts}
        return {name: f"{at.rstrip('.').lower()}, {way}" for name, at in named.items()}

    @classmethod
    def examine(cls, cluster: ClusterSpec, options: Any) -> tuple[Finding, ...]:
        """Log in to each host, and compare what it has."""
        from topmast.adapters.engines.far.examine import calls_home, examined, skewed

        try:
            from topmast.adapters.engines.far.ssh.discover import as_told
        except ImportError:
            return (Finding(Level.FAULT, "reach it", "asyncssh is missing", WITH_SSH),)
        if not cluster.hosts:
            return ()
        try:
            told = as_told(cluster, options)
        except InvalidInput as error:
            return (Finding(Level.FAULT, "reach it", error.message),)
        findings = (*examined(cluster, lambda: told.found), *calls_home(options))
        findings += tuple(skewed(told.skews_s))
        if not told.unseen:
            return findings
        hosts = f"{len(told.unseen)} host{'s' * (len(told.unseen) > 1)}"
        why = f"those of {hosts} do not show ({told.unseen[0]}); the fleet file is believed"
        others = [one for one in findings if one.what != "hosts" or one.level is not Level.OK]
        return (*others, Finding(Level.WARNING, "GPUs", why))
