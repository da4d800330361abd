"""Leaders that a later one has replaced."""

from pathlib import Path

from topmast.adapters.engines.leader import LeaderFence


def test_a_replaced_leader_orders_nothing_any_more(tmp_path: Path) -> None:
    fence = LeaderFence(tmp_path / "engine")
    assert fence.admits(0)
    assert fence.admits(2)
    assert not fence.admits(1)
    assert not fence.admits(0)
    assert fence.admits(2)


def test_the_highest_leader_is_known_after_a_restart(tmp_path: Path) -> None:
    assert LeaderFence(tmp_path).admits(7)
    assert not LeaderFence(tmp_path).admits(6)
    assert LeaderFence(tmp_path).admits(7)


def test_another_process_hears_of_a_new_leader(tmp_path: Path) -> None:
    """It has the folder open, and lost the leadership without knowing it."""
    old, new = LeaderFence(tmp_path), LeaderFence(tmp_path)
    assert old.admits(1)
    assert new.admits(2)
    assert not old.admits(1)


def test_a_spoiled_record_does_not_stop_the_leader_that_is_known(tmp_path: Path) -> None:
    fence = LeaderFence(tmp_path)
    assert fence.admits(3)
    (tmp_path / "leader").write_bytes(b"\xff nonsense")
    assert fence.admits(3)
    assert not fence.admits(2)


def test_a_leader_that_cannot_be_remembered_is_not_obeyed(tmp_path: Path) -> None:
    (tmp_path / "engine").write_bytes(b"not a folder")
    assert not LeaderFence(tmp_path / "engine").admits(1)
