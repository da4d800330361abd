"""A dataset that the fleet file names, and whose files come later, stays where it may be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.entrance import FLEET, Entrance, entrance, run
from topmast.model.access import Role

WEST = {"clusters": {"west-1": {"hosts": [{"names": ["w0"], "gpu": "A100", "gpus": 2}]}}}
RULED: dict[str, Any] = {
    **FLEET,
    "regions": {**FLEET["regions"], "west": WEST},
    "datasets": {"patients": {"path": "data/p", "size": "1KB", "allowed": ["west"]}},
}
JOB = {"name": "study", "run": "true", "tenant": "vision", "datasets": ["patients"]}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """The files of the dataset."""
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "x").write_bytes(b"x" * 100)
    return folder


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Entrance]:
    """A control plane with the rule."""
    with entrance(tmp_path / "state", RULED) as found:
        yield found


def test_the_files_of_a_dataset_come_under_its_rule(door: Entrance, files: Path) -> None:
    """Another region is refused until a rule is given with it; messages name a region that may."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:

            async def add(**more: Any) -> Any:
                body = {"name": "patients", "source": str(files), **more}
                return await client.post("/datasets", json=body)

            warned = (await client.post("/jobs", json={"job": JOB})).text
            assert "datasets add patients --region west" in warned
            copied = await client.post("/datasets/patients/replicas", json={"region": "west"})
            assert "no region has the files of 'patients'" in copied.json()["detail"]
            refused = await add(region="east")
            assert refused.status_code == 422
            assert (refused.json()["field"], refused.json()["detail"]) == (
                "region", "dataset 'patients' may only be in west",
            )  # fmt: skip
            added = await add(region="west")
            assert added.status_code == 201, added.text
            assert (added.json()["allowed"], added.json()["path"]) == (["west"], "data/p")

    run(story)


def test_another_rule_is_given_with_the_files(door: Entrance, files: Path) -> None:
    """People that may add a dataset say where it may be."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            body = {"name": "patients", "source": str(files), "region": "east",
                    "allowed": ["east", "west"]}  # fmt: skip
            added = await client.post("/datasets", json=body)
            assert added.json()["allowed"] == ["east", "west"], added.text

    run(story)
