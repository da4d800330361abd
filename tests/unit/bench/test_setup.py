"""What benchmarks have in common."""

from pathlib import Path

from topmast.bench.setup import folder


def test_a_new_state_folder_is_for_its_owner_alone(tmp_path: Path) -> None:
    """A server refuses one that others may read, and would refuse what it was just given."""
    with folder(tmp_path / "new") as state:
        assert state.stat().st_mode & 0o777 == 0o700
