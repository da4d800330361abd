"""The cache of a host keeps its promises, whatever runners do at once, and wherever they die."""

import os
import random
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topmast.adapters.engines.far.runner.cache import Cache, CannotCache

SETS = {"a": 100, "b": 200, "c": 300, "d": 700}
LIMIT = 1000


class Died(BaseException):
    """The process of a runner was killed: its locks are gone, and what it wrote stays."""


class Runner:
    """One that uses sets and lets go of them."""

    def __init__(self, folder: Path, dice: random.Random) -> None:
        self.folder = folder
        self.dice = dice
        self.held: dict[str, int] = {}
        self.places: dict[str, Path] = {}

    def fetch(self, name: str, part: Path, dies: bool) -> None:
        """As a fetch does: goes on with what is there."""
        part.mkdir(parents=True, exist_ok=True)
        for number in range(SETS[name] // 100):
            if dies and self.dice.random() < 0.5:
                raise Died
            (part / str(number)).write_bytes(name.encode() * 100)

    def bring(self, name: str, *, dies: bool = False) -> None:
        if name in self.held:
            return
        cache = Cache(self.folder, LIMIT)
        try:
            place, held = cache.bring(
                name,
                SETS[name],
                lambda part: self.fetch(name, part, dies),
                lambda: time.sleep(0.001),
            )
        except (CannotCache, Died):
            return
        self.held[name], self.places[name] = held, place

    def check(self) -> None:
        """What it uses is there, whole."""
        for name, place in self.places.items():
            files = sorted(place.iterdir())
            assert len(files) == SETS[name] // 100, (name, files)
            assert all(file.read_bytes() == name.encode() * 100 for file in files)

    def leave(self, name: str) -> None:
        if name in self.held:
            os.close(self.held.pop(name))
            del self.places[name]


def size(folder: Path) -> int:
    return sum(SETS[place.name] for place in (folder / "sets").iterdir())


@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from(["bring", "die", "leave"]),
            st.sampled_from(list(SETS)),
        ),
        max_size=30,
    ),
)
@settings(max_examples=60, deadline=None)
def test_what_is_used_is_whole_and_the_limit_holds(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: list[tuple[int, str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    Cache(folder, LIMIT)
    dice = random.Random(seed)
    runners = [Runner(folder, dice) for _ in range(3)]
    for number, what, name in steps:
        runner = runners[number]
        if what == "leave":
            runner.leave(name)
        else:
            runner.bring(name, dies=what == "die")
        for one in runners:
            one.check()
        assert size(folder) <= LIMIT
    for runner in runners:
        for name in list(runner.held):
            runner.leave(name)
    runners[0].bring("d")
    assert "d" in runners[0].held, "what nothing uses makes room"
    runners[0].leave("d")


def test_several_runners_at_once_fetch_once(tmp_path: Path) -> None:
    """The others wait; what they get is the same, and whole."""
    folder = tmp_path / "cache"
    fetched: list[str] = []
    waited: list[int] = []

    def fetch(part: Path) -> None:
        fetched.append("x")
        part.mkdir(parents=True, exist_ok=True)
        (part / "half").write_bytes(b"1")
        time.sleep(0.2)
        (part / "whole").write_bytes(b"2")

    def wait() -> None:
        waited.append(1)
        time.sleep(0.01)

    def use() -> None:
        place, held = Cache(folder, 0).bring("words", 2, fetch, wait)
        assert sorted(file.name for file in place.iterdir()) == ["half", "whole"]
        os.close(held)

    threads = [threading.Thread(target=use) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fetched) == 1
    assert waited


def test_what_was_changed_is_fetched_anew(tmp_path: Path) -> None:
    """A task has the rights of the account: it may spoil what others read next."""
    runner = Runner(tmp_path / "cache", random.Random(1))
    runner.bring("a")
    (runner.places["a"] / "0").chmod(0o600)
    (runner.places["a"] / "0").write_bytes(b"spoiled")
    with pytest.raises(CannotCache, match="was changed by a task"):
        Cache(tmp_path / "cache", 0).bring("a", 100, lambda part: None, lambda: None)
    runner.leave("a")
    runner.bring("a")
    runner.check()


def test_a_folder_that_others_can_change_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(CannotCache, match="can be changed by others"):
        Cache(tmp_path / "cache", 0)


def test_what_does_not_fit_says_so(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "cache", random.Random(1))
    runner.bring("d")
    with pytest.raises(
        CannotCache, match="holds 700 bytes that are in use, and the dataset needs 400"
    ):
        Cache(tmp_path / "cache", LIMIT).bring("e", 400, lambda part: None, lambda: None)
    with pytest.raises(CannotCache, match=r"the disk of the cache .* is full"):
        Cache(tmp_path / "cache", 0).bring("e", 1 << 60, lambda part: None, lambda: None)


def test_what_was_left_before_a_restart_of_the_host_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure may leave holes in files that were being written."""
    boot = tmp_path / "boot_id"
    boot.write_text("first")
    monkeypatch.setattr("topmast.adapters.engines.far.runner.cache.BOOT_ID", boot)
    seen: list[list[str]] = []

    def fetch(part: Path) -> None:
        seen.append(sorted(file.name for file in part.iterdir()))
        (part / "0").write_bytes(b"1")
        raise Died

    for text in ("first", "first", "second"):
        boot.write_text(text)
        with pytest.raises(Died):
            Cache(tmp_path / "cache", 0).bring("a", 1, fetch, lambda: None)
    assert seen == [[], ["0"], []]
