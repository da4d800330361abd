"""The mix of task sizes seen lately."""

import msgspec
import pytest

from tests.support.build import gang, job, needs
from topmast.fast.queue.backlog.task_mix import (
    FEWEST_JOBS,
    HALF_LIFE_JOBS,
    PARTS,
    SETTLED_JOBS,
    Mix,
    Shapes,
    scarcity_of,
    takes_any,
)
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
        mix.saw([spec])
    mix.settle()
    assert dict(mix.current) == pytest.approx(want, abs=1.5 / PARTS), story


def test_what_was_seen_long_ago_counts_for_little() -> None:
    """After some half-lives, the old sizes are gone from the mix."""
    mix = Mix()
    for spec in [job(gpus=8)] * 500 + [job(gpus=2)] * (8 * HALF_LIFE_JOBS):
        mix.saw([spec])
    mix.settle()
    assert dict(mix.current) == {2: 1.0}


def test_the_mix_holds_still_until_it_is_settled() -> None:
    """Prices do not move with every job; a snapshot's weights give the mix at once."""
    mix = Mix()
    for _ in range(100):
        mix.saw([job(gpus=4)])
    assert mix.current == DEFAULT_MIX
    assert dict(Mix(mix.weights).current) == {4: 1.0}
    assert sum(share for _, share in Mix(mix.weights).current) == pytest.approx(1.0)


def test_shapes_are_told_where_tasks_ask_for_more_than_whole_gpus() -> None:
    """The most frequent first, each with its share; a snapshot keeps them, and when they are told next."""
    mix = Mix()
    for number in range(FEWEST_JOBS):
        assert not mix.shapes
        mix.saw([job(resources=needs(1, cpus=2 if number % 4 else 4))])
    assert [(s.gpus_milli, s.cpus) for s in mix.shapes] == [(1000, 2.0), (1000, 4.0)]
    assert sum(shape.share for shape in mix.shapes) == pytest.approx(1.0)
    again = Mix(mix.weights, mix.saved())
    for each in (mix, again):
        for _ in range(2 * FEWEST_JOBS):
            each.saw([job(gpus=0.5)])
    assert again.shapes == mix.shapes
    assert mix.shapes[0].gpus_milli == 500


def test_shapes_say_nothing_where_all_ask_for_whole_gpus() -> None:
    """Then the sizes say it all."""
    mix = Mix()
    for gpus in (1, 8) * 50:
        mix.saw([job(gpus=gpus)])
    assert mix.shapes == ()


@pytest.mark.parametrize(
    ("story", "demand", "want"),
    [
        ("nothing is asked for", {}, {}),
        ("any model will do for all", {(): 100.0}, {}),
        ("one model alone is named", {("H100",): 10.0}, {"H100": 1.0}),
        ("what any model serves is spread over all", {(): 30.0, ("H100",): 10.0}, {"H100": 0.5}),
        ("the same for each GPU, whatever their number", {("H100",): 10.0, ("A100",): 20.0}, {}),
        ("twice as much for each", {("H100",): 20.0, ("A100",): 20.0}, {"H100": 0.5}),
        ("a list is spread over its models", {("A100", "H100"): 30.0}, {}),
        ("a model that the fleet lacks", {("T4",): 30.0}, {}),
    ],
)
def test_a_model_is_scarce_where_more_is_asked_of_it(
    story: str, demand: dict[tuple[str, ...], float], want: dict[str, float]
) -> None:
    """GPUs asked for, over the GPUs that will do; the model of which least is asked is not scarce."""
    found = dict(scarcity_of(demand, {"H100": 10, "A100": 20, "none": 0}))
    assert found == pytest.approx(want, abs=0.5 / PARTS), story


def test_scarcity_is_told_with_the_shapes_and_kept() -> None:
    """By the GPUs of all tasks; a snapshot keeps it, and what it follows from."""
    fleet = {"H100": 8, "A100": 8}
    mix = Mix(gpus=fleet)
    for number in range(FEWEST_JOBS):
        assert mix.scarcity == ()
        mix.saw([job(resources=needs(1, "H100")) if number % 2 else job(model=None)])
    assert dict(mix.scarcity) == pytest.approx({"H100": 2 / 3}, abs=0.5 / PARTS)
    again = Mix(mix.weights, msgspec.json.decode(msgspec.json.encode(mix.saved()), type=Shapes))
    assert again.scarcity == mix.scarcity
    again.configure(fleet)
    for each in (mix, again):
        for _ in range(SETTLED_JOBS):
            each.saw([job(resources=needs(1, "A100"))])
    assert again.scarcity == mix.scarcity
    assert dict(mix.scarcity)["A100"] > 0.9


def test_a_snapshot_from_before_models_were_counted_tells_no_scarcity() -> None:
    """Its shapes are taken up, and models count from then on."""
    mix = Mix(gpus={"H100": 8, "A100": 8})
    for _ in range(FEWEST_JOBS):
        mix.saw([job(resources=needs(1, "H100", cpus=2))])
    kept = msgspec.to_builtins(mix.saved())
    del kept["demand"], kept["scarcity"]
    old, other = msgspec.convert([kept, kept], type=list[Shapes], strict=False)
    again = Mix(mix.weights, old, mix.gpus)
    assert (again.shapes, again.scarcity) == (mix.shapes, ())
    for _ in range(FEWEST_JOBS):
        again.saw([job(resources=needs(1, "A100", cpus=2))])
    assert dict(again.scarcity) == {"A100": 1.0}
    assert other.demand == []


def test_any_model_will_do_if_no_group_names_one() -> None:
    """Groups without GPUs say nothing, a job without any has no choice of models."""
    assert takes_any(job(gpus=2, model=None).groups)
    assert takes_any(gang({"a": (1, needs(2, None)), "b": (4, needs(cpus=1))}).groups)
    assert not takes_any(gang({"a": (1, needs(2, None)), "b": (1, needs(1, "H100"))}).groups)
    assert not takes_any(job(resources=needs(1, "H100", "A100")).groups)
    assert not takes_any(job(resources=needs(cpus=1)).groups)
