"""What a job would come to, if it were submitted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.entrance import ROOT, entrance, run
from topmast.fast.queue.jobs import jobs


def test_a_dry_run_after_a_forgotten_job_has_an_expected_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one is over, also where only the database knows of it."""
    monkeypatch.setattr(jobs, "FINISHED_KEPT", 1)
    wide = {"tenant": "vision", "run": "true", "num_nodes": 9, "resources": {"accelerators": 2}}

    async def story() -> None:
        ended = []
        for _ in range(3):
            ended.append((await service.submit(ROOT, wide, "ann", "", "")).id)
            await service.cancel(ROOT, ended[-1], "ann")
        assert ended[0] not in service.machines.queue.jobs.records
        after = {
            "tenant": "vision",
            "run": "true",
            "depends_on": [{"job": ended[0], "after": "any"}],
        }
        found = await service.dry_run(ROOT, after, "ann")
        assert found.expected_start_s is not None
        assert found.basis

    with entrance(tmp_path) as door:
        service = door.service
        run(story)
