"""Order `remaining-service` (SRSF): least remaining time x GPUs first, whatever the band."""

from __future__ import annotations

from typing import ClassVar

from topmast.policies.base import Floats, QueueView
from topmast.policies.options import Profile


class RemainingService:
    """By the GPU-seconds that are left: a short large job and a long small one weigh alike."""

    source: ClassVar[str] = (
        "Shortest remaining service first, the clairvoyant peer of 2D-LAS in Tiresias (NSDI '19)"
    )
    options: ClassVar[tuple[str, ...]] = ("default_duration_s",)
    by_band = False
    by_time = False

    def __init__(self, profile: Profile) -> None:
        pass

    def keys(self, view: QueueView) -> Floats:
        """The GPU-seconds left (n x 1)."""
        return (view.remaining_s * view.gpus)[:, None]
