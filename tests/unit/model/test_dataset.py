"""Datasets: folders that are theirs alone."""

import random
from pathlib import PurePosixPath

import pytest

from topmast.model.dataset import Paths


@pytest.mark.parametrize(
    ("path", "want"),
    [
        ("datasets/good", "is that of dataset 'good'"),
        ("datasets", "contains dataset 'good'"),
        ("datasets/good/part", "lies inside dataset 'good', at 'datasets/good'"),
        ("datasets/good/deeper/part", "lies inside dataset 'good', at 'datasets/good'"),
        ("datasets/goods", ""),
        ("datasets/goo", ""),
        ("dataset", ""),
        ("good", ""),
    ],
)
def test_a_folder_has_one_owner(path: str, want: str) -> None:
    """The same folder, one above and one inside are refused; one with a similar name is not."""
    paths = Paths()
    paths.add("good", "datasets/good")
    fault = paths.fault("new", path)
    assert want in fault
    assert bool(want) == bool(fault)
    assert paths.fault("good", path) == "", "a dataset is not in its own way"


def test_a_folder_without_owner_is_free_again() -> None:
    """What is taken out leaves nothing behind, also where two shared a folder."""
    paths = Paths()
    paths.add("a", "x/y")
    paths.add("b", "x/y")
    paths.remove("a", "x/y")
    assert paths.fault("new", "x")
    assert paths.fault("new", "x/y")
    assert paths.fault("new", "x/y/z")
    paths.remove("b", "x/y")
    assert not any(paths.fault("new", path) for path in ("x", "x/y", "x/y/z"))


def test_paths_agree_with_a_plain_search() -> None:
    """The index says what a look at every pair says, while datasets come and go."""
    draw = random.Random(7)
    known: dict[str, str] = {}
    paths = Paths()
    faults = 0
    for number in range(2_000):
        path = "/".join(draw.choices("abc", k=draw.randint(1, 4)))
        one, near = PurePosixPath(path), [PurePosixPath(p) for p in known.values()]
        want = any(one.is_relative_to(other) or other.is_relative_to(one) for other in near)
        assert bool(paths.fault("new", path)) == want
        faults += want
        if draw.random() < 0.5 and known:
            name = draw.choice(list(known))
            paths.remove(name, known.pop(name))
        else:
            known[f"d{number}"] = path
            paths.add(f"d{number}", path)
    assert 200 < faults < 1_999
