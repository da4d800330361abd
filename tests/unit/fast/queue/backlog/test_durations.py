"""How long a job is expected to run: hints, what it took before, limits, guesses."""

import pytest
from msgspec.structs import replace

from tests.support.build import cluster, fleet, job, needs, profile
from tests.support.world import World
from topmast.fast.queue.backlog import durations
from topmast.fast.queue.backlog.durations import Durations
from topmast.fast.queue.backlog.learning import FIRST, known_of
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.job import JobSpec
from topmast.model.tree import Tree
from topmast.policies.options import Predict
from topmast.predict.growing import answer

RECURRING = job(group="g", user="ann")


def _learned(*runs_s: float, spec: JobSpec = RECURRING) -> Durations:
    known = Durations(default_s=100.0)
    for run_s in runs_s:
        known.learn(JobRecord("j1", 1, spec, 0.0, held_s=run_s))
    return known


@pytest.mark.parametrize(
    ("story", "spec", "want_s"),
    [
        ("nothing is known", job(), 100.0),
        ("a hint", job(duration_s=7.0), 7.0),
        ("a limit", job(time_limit_s=50.0), 50.0),
        ("a hint beyond the limit", job(duration_s=70.0, time_limit_s=50.0), 50.0),
        ("it recurs", job(group="g", user="ann"), 20.0),
        ("it recurs, and has a hint", job(group="g", user="ann", duration_s=3.0), 3.0),
        ("it recurs, and has a limit", job(group="g", user="ann", time_limit_s=5.0), 5.0),
        ("another user's", job(group="g", user="bob"), 100.0),
        ("another group", job(group="h", user="ann"), 100.0),
        ("no group", job(user="ann"), 100.0),
    ],
)
def test_what_is_expected(story: str, spec: JobSpec, want_s: float) -> None:
    """The hint, else the median of like runs, else the limit, else the default."""
    assert _learned(10.0, 30.0, 20.0).expected_s(spec) == want_s


def test_what_is_left_is_what_was_not_kept() -> None:
    """Work that a checkpoint saved need not be done again; lost work must."""
    known = _learned()
    record = JobRecord("j1", 1, job(duration_s=60.0), 0.0, held_s=50.0, kept_s=20.0, worked_s=20.0)
    assert known.remaining_s(record) == 40.0
    record.worked_s = 90.0
    assert known.remaining_s(record) == 0.0


def test_only_the_latest_runs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that became slower is expected to be slow."""
    monkeypatch.setattr(durations, "RUNS_KEPT", 3)
    assert _learned(1.0, 1.0, 1.0, 9.0, 9.0).expected_s(RECURRING) == 9.0


def test_the_memory_of_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group not seen for longest is forgotten."""
    monkeypatch.setattr(durations, "GROUPS_KEPT", 2)
    known = _learned(5.0)
    for group in ("h", "i"):
        known.learn(JobRecord("j1", 1, job(group=group), 0.0, held_s=6.0))
    assert known.expected_s(RECURRING) == 100.0
    assert known.expected_s(job(group="h")) == 6.0


# --- predicted by a tree ---------------------------------------------------------------------------


def _predicting() -> World:
    options = profile(predict=Predict.TREE, order="shortest")
    return World(fleet(cluster("east-1", hosts=4, gpus=8)), options)


def _run(world: World, *, times: int, took_s: float, **who: str) -> None:
    """Jobs one after the other that take so long."""
    for _ in range(times):
        (name,) = world.submit(job(**who))  # type: ignore[arg-type]
        world.settle()
        world.advance(took_s)
        world.finish(name)
        world.settle()


def test_a_tree_is_ordered_when_enough_jobs_have_finished() -> None:
    """Once, with what was known of each job at its submission; not again while it grows, and then for a quarter more."""
    world = _predicting()
    _run(world, times=FIRST, took_s=10.0, group="g", user="ann")
    assert world.orders(m.GrowTree) == [], "the first of them had nobody to learn from"
    _run(world, times=10, took_s=10.0, group="g", user="ann")
    (order,) = world.orders(m.GrowTree)
    assert len(order.rows) == FIRST * order.width * 8
    world.tell(ids.QUEUE, m.TreeGrown(answer(order)))
    _run(world, times=15, took_s=10.0, group="g", user="ann")
    assert len(world.orders(m.GrowTree)) == 1
    _run(world, times=15, took_s=10.0, group="g", user="ann")
    assert len(world.orders(m.GrowTree)) == 2


def test_the_tree_is_what_durations_are_predicted_by() -> None:
    """Before there is one, the history of the group speaks; a hint goes before both, a limit holds."""
    world = _predicting()
    durations_of = world.queue.backlog.durations
    assert durations_of.expected_s(RECURRING) == world.options.default_duration_s
    _run(world, times=3, took_s=50.0, group="g", user="ann")
    assert durations_of.expected_s(RECURRING) == pytest.approx(50.0)
    world.tell(ids.QUEUE, m.TreeGrown(Tree((-1,), (0.0,), (-1,), (-1,), (3.0,), (2.0,))))
    assert durations_of.expected_s(RECURRING) == pytest.approx(150.0)
    assert durations_of.expected_s(job(group="g", user="ann", time_limit_s=60.0)) == 60.0
    assert durations_of.expected_s(job(group="g", user="ann", duration_s=7.0)) == 7.0


def test_predictions_survive_a_restart() -> None:
    """From the journal alone and from a snapshot: the same tree, the same samples, the same predictions."""
    world = _predicting()
    _run(world, times=FIRST + 5, took_s=20.0, group="g", user="ann")
    (order,) = world.orders(m.GrowTree)
    world.tell(ids.QUEUE, m.TreeGrown(answer(order)))
    _run(world, times=2, took_s=90.0, group="h", user="bob")
    specs = (RECURRING, job(group="h", user="bob"), job(gpus=2))
    before = [world.queue.backlog.durations.expected_s(spec) for spec in specs]
    for snapshot in (False, True):
        if snapshot:
            world.snapshot()
        world.restart()
        assert [world.queue.backlog.durations.expected_s(spec) for spec in specs] == before
        assert world.queue.backlog.durations.learned() is not None


def test_jobs_that_did_not_succeed_teach_nothing() -> None:
    """Cancelled, failed: nothing is kept of them."""
    world = _predicting()
    _run(world, times=1, took_s=5.0)
    (name,) = world.submit(job())
    world.settle()
    world.cancel(name)
    world.settle()
    learned = world.queue.backlog.durations.learned()
    assert learned is not None
    assert (learned.finished, learned.noted, learned.samples) == (1, {}, b"")


def test_memory_is_known_in_gb_of_files() -> None:
    """What predictions are made from says 768 for `memory: 768`, as traces do."""
    assert known_of(job(resources=needs(8, memory=768 * 10**9))).memory_gb == 768


SWEEP = [
    ("the same script, other names", {"name": "alpha"}, {"name": "beta"}, "python train.py", True),
    ("a sweep by name, scripts differ", {"name": "sweep-1"}, {"name": "sweep-27"}, "other.py", True),
    ("another user", {"name": "sweep-1"}, {"name": "sweep-2", "user": "bob"}, "python train.py", False),
    ("another script and name", {"name": "sweep-1"}, {"name": "eval-1"}, "other.py", False),
    ("a script of nobody", {"name": "a", "user": ""}, {"name": "b", "user": ""}, "python train.py", False),
    ("another folder", {"name": "a"}, {"name": "b", "workdir": "sha256:1"}, "python train.py", False),
]  # fmt: skip


@pytest.mark.parametrize(
    ("story", "before", "after", "run", "alike"), SWEEP, ids=[row[0] for row in SWEEP]
)
def test_a_sweep_teaches_without_a_group(
    story: str, before: dict[str, str], after: dict[str, str], run: str, alike: bool
) -> None:
    """Jobs of one user count as alike by script and folder, or by a name with another number."""

    def spec_of(fields: dict[str, str], script: str) -> JobSpec:
        spec = replace(job(), **{"user": "ada", **fields})
        return replace(spec, groups=(replace(spec.groups[0], run=script),))

    durations = Durations(3_600.0)
    record = JobRecord("j1", 1, spec_of(before, "python train.py"), 0.0)
    record.held_s = 8.0
    durations.learn(record)
    assert durations.expected_s(spec_of(after, run)) == (8.0 if alike else 3_600.0), story
