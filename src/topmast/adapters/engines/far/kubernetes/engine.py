"""The engine of Kubernetes: its launcher below the engine of all that is far."""

from topmast.adapters.engines.far.engine import FarEngine
from topmast.adapters.engines.far.kubernetes.launcher import KubernetesLauncher
from topmast.ports import Deadlines


class KubernetesEngine(FarEngine):
    """Runs gangs as pods."""

    launcher_type = KubernetesLauncher
    deadlines = Deadlines(start_within_s=900.0, stop_within_s=60.0)
    """Images have gigabytes, and a kubelet takes its time to say that a pod has ended."""
