"""The engine of Kubernetes: its launcher below the engine of all that is far."""

from collections.abc import Iterator
from typing import Any

from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.kubernetes.launcher import KubernetesLauncher
from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions, scratch_of
from topmast.model.fleet import ClusterSpec
from topmast.ports import Deadlines, Finding


class KubernetesEngine(FarEngine):
    """Runs gangs as pods."""

    launcher_type = KubernetesLauncher
    deadlines = Deadlines(start_within_s=900.0, stop_within_s=60.0)
    """Images have gigabytes, and a kubelet takes its time to say that a pod has ended."""

    @classmethod
    def at_odds(cls, options: KubernetesOptions) -> Iterator[tuple[str, str, str]]:
        """A pod has one thing at each path."""
        scratch = scratch_of(options)
        if scratch in options.mount:
            yield (
                f"mount.{scratch}", f"each pod has a folder of its own at {scratch}, as option "
                f"`work` {'says' if options.work else 'says where it is left out'}",
                "mount the claim at another path, or let `work` name another one",
            )  # fmt: skip

    @classmethod
    def examine(cls, cluster: ClusterSpec, options: Any) -> tuple[Finding, ...]:
        """Compare the hosts, and ask whether Kubernetes would let pods be made and deleted."""
        from topmast.adapters.engines.far.kubernetes.examine import examine

        return examine(cluster, options)
