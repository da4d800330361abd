"""The mix of task sizes seen lately."""

import pytest

from tests.support.build import gang, job, needs
from topmast.fast.queue.backlog.task_mix import FEWEST_JOBS, HALF_LIFE_JOBS, PARTS, Mix
from topmast.model.job import JobSpec
from topmast.model.plan import DEFAULT_MIX

PAIR = gang({"trainer": (4, needs(8)), "evaluator": (1, needs(1)), "reader": (16, needs(cpus=4))})


@pytest.mark.parametrize(
    ("story", "specs", "want"),
    [
        ("nobody came yet", [], dict(DEFAULT_MIX)),
        ("too few came to conclude from", [job(gpus=8)] * (FEWEST_JOBS - 2), dict(DEFAULT_MIX)),
        ("all are alike", [job(gpus=8)] * 50, {8: 1.0}),
        ("half of each", [job(gpus=1), job(gpus=4)] * 40, {1: 0.5, 4: 0.5}),
        ("a gang counts once, each group for its part", [PAIR] * 50, {1: 0.5, 8: 0.5}),
        ("shares count as one GPU", [job(gpus=0.5)] * 50, {1: 1.0}),
        ("jobs without GPUs say nothing", [job(resources=needs(cpus=1))] * 50, dict(DEFAULT_MIX)),
    ],
)
def test_the_mix_is_that_of_the_jobs_seen(
    story: str, specs: list[JobSpec], want: dict[int, float]
) -> None:
    """Each job counts once; with too few, the mix is the usual one."""
    mix = Mix()
    for spec in specs:
        mix.saw(spec)
    mix.settle()
    assert dict(mix.current) == pytest.approx(want, abs=1.5 / PARTS), story


def test_what_was_seen_long_ago_counts_for_little() -> None:
    """After some half-lives, the old sizes are gone from the mix."""
    mix = Mix()
    for spec in [job(gpus=8)] * 500 + [job(gpus=2)] * (8 * HALF_LIFE_JOBS):
        mix.saw(spec)
    mix.settle()
    assert dict(mix.current) == {2: 1.0}


def test_the_mix_holds_still_until_it_is_settled() -> None:
    """Prices do not move with every job; a snapshot's weights give the mix at once."""
    mix = Mix()
    for _ in range(100):
        mix.saw(job(gpus=4))
    assert mix.current == DEFAULT_MIX
    assert dict(Mix(mix.weights).current) == {4: 1.0}
    assert sum(share for _, share in Mix(mix.weights).current) == pytest.approx(1.0)


def test_shapes_are_told_where_tasks_ask_for_more_than_whole_gpus() -> None:
    """The most frequent first, each with its share; a snapshot keeps them, and when they are told next."""
    mix = Mix()
    for number in range(FEWEST_JOBS):
        assert not mix.shapes
        mix.saw(job(resources=needs(1, cpus=2 if number % 4 else 4)))
    assert [(s.gpus_milli, s.cpus) for s in mix.shapes] == [(1000, 2.0), (1000, 4.0)]
    assert sum(shape.share for shape in mix.shapes) == pytest.approx(1.0)
    again = Mix(mix.weights, mix.saved())
    for each in (mix, again):
        for _ in range(2 * FEWEST_JOBS):
            each.saw(job(gpus=0.5))
    assert again.shapes == mix.shapes
    assert mix.shapes[0].gpus_milli == 500


def test_shapes_say_nothing_where_all_ask_for_whole_gpus() -> None:
    """Then the sizes say it all."""
    mix = Mix()
    for gpus in (1, 8) * 50:
        mix.saw(job(gpus=gpus))
    assert mix.shapes == ()
