"""A Kubernetes to try things by hand, until Ctrl-C: `python -m tests.support.kubelab [NODES]`."""

import signal
import sys

from tests.support.kubelab.lab import Lab
from tests.support.kubelab.programs import missing

nodes = int(sys.argv[1]) if len(sys.argv) > 1 else 2
if reason := missing(nodes=bool(nodes)):
    sys.exit(reason)
with Lab(nodes) as lab:
    print(f"export KUBECONFIG={lab.kubeconfig}", flush=True)
    signal.sigwait({signal.SIGINT, signal.SIGTERM})
