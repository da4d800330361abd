"""How long the protocol of far engines waits for what, by the options of a cluster."""

from __future__ import annotations

from topmast.adapters.engines.far.events import Terms
from topmast.adapters.engines.far.launcher import Launcher
from topmast.adapters.engines.far.options import FarOptions

IDLE_POLLS = 5
"""With nothing there, the scheduler is asked so much less often."""
HOLD_MOST_S = 10.0
SLACK_S = 10.0
"""Beyond three beats that did not come, before a runner counts as silent."""
MARGIN_S = 15.0
"""Beyond the lease, before a runner that was silent counts as dead: what dies takes time."""
DRIFT = 0.01
"""Of two clocks against each other, at most."""
DISTRUST_S = 15.0
"""Longer than a controller needs to be restarted; that new work waits is all that it costs."""


def terms_of(options: FarOptions, launcher: type[Launcher] = Launcher) -> Terms:
    """How long the protocol waits, by the options."""
    lease_s = None if options.lease_s == "none" else options.lease_s
    scale_s = 600.0 if lease_s is None else lease_s
    margin_s = min(MARGIN_S, scale_s / 4) + scale_s * DRIFT
    silence_s = 3 * hold_s(options) + min(SLACK_S, scale_s / 4)
    distrust_s = max(DISTRUST_S, IDLE_POLLS * options.poll_s)
    return Terms(lease_s, margin_s, silence_s, distrust_s, launcher.first_hand)


def hold_s(options: FarOptions) -> float:
    """How long a beat waits for orders: several fit into a lease."""
    return HOLD_MOST_S if options.lease_s == "none" else min(HOLD_MOST_S, options.lease_s / 6)
