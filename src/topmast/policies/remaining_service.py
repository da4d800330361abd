"""Order `remaining-service` (SRSF): the job with the least time left x GPUs first, whatever the band."""

from __future__ import annotations

from topmast.policies.base import Floats, Profile, QueueView


class RemainingService:
    """By the GPU-seconds that are left: a short large job and a long small one weigh alike."""

    by_band = False
    by_time = False

    def __init__(self, profile: Profile) -> None:
        pass

    def keys(self, view: QueueView) -> Floats:
        """The GPU-seconds left (n x 1)."""
        return (view.remaining_s * view.gpus)[:, None]
