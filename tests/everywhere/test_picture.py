"""The picture of a run everywhere shows what the run did."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.everywhere.figures import Figures
from tests.everywhere.picture import draw, in_use
from topmast.model.views import AttemptView

pytest.importorskip("matplotlib")


def attempt(start_s: float, end_s: float, gpus: float, outcome: str = "succeeded") -> AttemptView:
    return AttemptView(1, "east", "pods", "H100", gpus, start_s, end_s, 0.0, outcome)


def test_the_gpus_in_use_add_up() -> None:
    """One after the other, two at once, and half a GPU."""
    had = [
        ("vision", attempt(0, 10, 8)),
        ("speech", attempt(5, 20, 0.5)),
        ("vision", attempt(10, 15, 4)),
    ]
    times, used = in_use(had)
    at_s = [1.0, 6.0, 12.0, 17.0, 21.0]
    want = {1.0: (8, 0), 6.0: (8, 0.5), 12.0: (4, 0.5), 17.0: (0, 0.5), 21.0: (0, 0)}
    columns = np.searchsorted(times, at_s, side="right") - 1
    for moment, column in zip(at_s, columns, strict=True):
        assert tuple(used[:2, column]) == want[moment], moment


def test_a_picture_names_what_there_was(tmp_path: Path) -> None:
    """Each cluster, each tenant, each kind of end that was no success, and the figures."""
    stories: list[Any] = [
        SimpleNamespace(
            job=SimpleNamespace(tenant=tenant),
            attempts=(attempt(0, 9, 8, "preempted"), attempt(9, 12, 8, outcome)),
        )
        for tenant, outcome in (("vision", "host_lost"), ("speech", "succeeded"))
    ]
    figures = Figures(2, 2, 1, {"slurm": 4}, {}, {}, {}, 1, 4, 0, 0, 0, 12.0)
    text = draw(stories, {"pods": 16, "hosts": 24}, figures, tmp_path).read_text()
    for words in ("2 jobs of 2 tenants", "4 attempts", "0 tasks ran twice", ">pods<", ">hosts<",
                  "vision", "speech", "preempted", "host was lost"):  # fmt: skip
        assert words in text
