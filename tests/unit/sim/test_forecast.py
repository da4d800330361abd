"""Expected starts: asked for in the middle of a simulated run, and held against what then happened."""

from __future__ import annotations

import random
import statistics

import msgspec
import pytest

from tests.support.build import cluster, fleet
from tests.support.simulated import FREE, jobs
from topmast.fast.queue.backlog.durations import Durations
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model import messages as m
from topmast.model.fleet import Fleet
from topmast.model.job import JobSpec
from topmast.model.states import WAITING, HostState, JobState
from topmast.model.sweep import Sweep
from topmast.policies.options import Profile
from topmast.policies.registry import load_profile
from topmast.runtime.machines import RegionState
from topmast.sim.books import JOBS, Tables
from topmast.sim.estimate import Basis, Estimates
from topmast.sim.forecast import Forecast, forecast_start
from topmast.sim.list_scheduling import list_scheduled_start
from topmast.sim.settings import Settings
from topmast.sim.simulation import Simulation
from topmast.sim.whatif import LIVE, StateSnapshot, WhatIf, state_snapshot_of
from topmast.traces.trace import Trace, trace_of

WORLD = fleet(cluster("r-1", hosts=4, gpus=8))
ONE_GPU = fleet(cluster("r-1", hosts=1, gpus=1))
ONE_HOST = fleet(cluster("r-1", hosts=1, gpus=8))


class Watched:
    """A run that stops when it is told to, and tells in the end when each job started."""

    def __init__(self, trace: Trace, world: Fleet, profile: str | Profile = "fifo-skip") -> None:
        self.rows: list[tuple[object, ...]] = []

        def nowhere(row: object) -> None:
            """Other tables are not looked at."""

        tables = Tables(lambda row: self.rows.append(tuple(row)), nowhere, nowhere, nowhere)
        self.profile = load_profile(profile) if isinstance(profile, str) else profile
        self.simulation = Simulation(trace, world, self.profile, FREE, tables)
        self.simulation.begin()

    def state(self, at_s: float) -> StateSnapshot:
        """Everything as it is when all of ``at_s`` has happened."""
        simulation = self.simulation
        while len(simulation.heap) and simulation.heap.next_s() <= at_s:
            simulation.loop.step()
        return state_snapshot_of(
            simulation.machines.queue, simulation.machines.region_states(), at_s, 0
        )

    def waiting(self) -> list[str]:
        """The jobs that wait now."""
        records = self.simulation.machines.queue.jobs.records.values()
        return [record.id for record in records if record.state in WAITING]

    def starts(self) -> dict[str, float]:
        """Run to the end: when each job started first, by the id that the queue gave it."""
        while len(self.simulation.heap):
            self.simulation.loop.step()
        names = {r.spec.name: r.id for r in self.simulation.machines.queue.jobs.records.values()}
        name, start = JOBS.index("job_id"), JOBS.index("first_start_s")
        return {names[str(row[name])]: float(str(row[start])) for row in self.rows}


def crowd(count: int, seed: int, **more: object) -> Trace:
    """Jobs of all sizes that are there from the first second on."""
    rng = random.Random(seed)
    rows = [(0.0, rng.uniform(50.0, 3_000.0), rng.choice((1, 2, 4, 8))) for _ in range(count)]
    return jobs(*rows, **more)


@pytest.mark.parametrize("at_s", [0.5, 700.0, 2_345.6])
def test_with_exact_durations_and_nobody_new_the_start_is_exact(at_s: float) -> None:
    """Under fifo-skip every start that is forecast is the one that comes, to the microsecond."""
    run = Watched(crowd(80, seed=4), WORLD)
    state, waiting = run.state(at_s), run.waiting()
    forecast = Forecast(state, run.profile)
    expected = {job: forecast.start_of(job).at_s for job in waiting}
    real = run.starts()
    assert len(expected) > 10
    assert expected == {job: pytest.approx(real[job], abs=2e-6) for job in waiting}


def test_the_range_holds_the_expected_start_and_names_its_basis() -> None:
    """early <= at <= late; the basis says that people gave the durations."""
    run = Watched(crowd(40, seed=5), WORLD)
    forecast = Forecast(run.state(0.5), run.profile)
    for job in run.waiting():
        found = forecast.start_of(job)
        assert found.early_s is not None
        assert found.at_s is not None
        assert found.late_s is not None
        assert found.basis == "given durations"
        assert found.early_s < found.at_s < found.late_s


def test_a_region_of_which_no_state_is_known_takes_no_job() -> None:
    """Its process has just come within reach, and nobody has looked at it: the rest is foreseen."""
    world = fleet(cluster("east-1", hosts=1, gpus=1), cluster("west-1", hosts=1, gpus=1))
    run = Watched(jobs((0.0, 3_000.0, 1), (0.0, 500.0, 1), (20.0, 500.0, 1)), world)
    run.state(100.0)
    (waits,) = run.waiting()
    machines = run.simulation.machines
    by_region = {r.plan.region: r for r in machines.queue.jobs.records.values() if r.plan}
    for known, at_s in (("east", by_region["east"]), ("west", by_region["west"])):
        states = {known: machines.region_states()[known]}
        state = state_snapshot_of(machines.queue, states, 100.0, 0)
        ends_s = float(at_s.spec.duration_s or 0.0)
        start_s = Forecast(state, run.profile).start_of(waits).at_s
        assert start_s == pytest.approx(ends_s, abs=1.0)


def test_a_start_says_what_it_waits_for_and_when_that_is() -> None:
    """The end of the job before it, at the very time of the start."""
    run = Watched(jobs((0.0, 3_000.0, 1), (10.0, 500.0, 1), (20.0, 500.0, 1)), ONE_GPU)
    forecast = Forecast(run.state(100.0), run.profile)
    first, second = run.waiting()
    found = forecast.start_of(second)
    assert found.waits_for == f"the end of {first}; before that, 1 other job that waits starts"
    assert forecast.ended_s[first] == pytest.approx(found.at_s)
    assert forecast.start_of(first).waits_for == "the end of j1"


def test_how_far_off_starts_are_that_rest_on_history() -> None:
    """Groups of like jobs whose durations nobody gave: half of the starts are within 40% of the wait.

    Lognormal runs (sigma 0.5) around the group's median, and later arrivals that the forecast cannot know.
    """
    rng = random.Random(7)
    count, spread = 600, 0.5
    groups = [f"g{rng.randrange(5)}" for _ in range(count)]
    medians = {f"g{i}": 200.0 * (i + 1) for i in range(5)}
    trace = trace_of(
        "recurring",
        submit_s=sorted(rng.uniform(0.0, 12_000.0) for _ in range(count)),
        duration_s=[medians[g] * rng.lognormvariate(0.0, spread) for g in groups],
        gpus=[rng.choice((1, 2, 4)) for _ in range(count)],
        group=groups,
        user=["ann"] * count,
    )
    run = Watched(trace, fleet(cluster("r-1", hosts=8, gpus=8)))
    asked: list[tuple[str, float, float]] = []
    bases: list[str] = []
    for at_s in (4_000.0, 6_000.0, 8_000.0, 10_000.0):
        state = _without_durations(run.state(at_s))
        forecast = Forecast(state, run.profile)
        for job in run.waiting():
            found = forecast.start_of(job)
            assert found.at_s is not None
            asked.append((job, at_s, found.at_s))
            bases.append(found.basis)
    real = run.starts()
    errors = [
        abs(expected_s - real[job]) / (real[job] - at_s)
        for job, at_s, expected_s in asked
        if real[job] > at_s + 1.0
    ]
    print(f"median {statistics.median(errors):.3f} of the wait, over {len(errors)} jobs")
    assert len(errors) > 50
    assert statistics.median(errors) < 0.4
    assert any("historical durations of" in basis for basis in bases)


CALIBRATED = Settings(startup_s=30.0, checkpoint_s=6.0, restore_s=0.0, switch_s=0.0)


def test_calibrated_starts_come_before_given_durations() -> None:
    """Two jobs of 500 s on one host: each has it for the start, its work and no checkpoint."""
    run = Watched(jobs((0.0, 500.0, 8), (1.0, 500.0, 8), (2.0, 500.0, 8)), ONE_HOST)
    state = run.state(100.0)
    forecast = Forecast(state, run.profile, CALIBRATED)
    assert [forecast.start_of(job).at_s for job in ("j2", "j3")] == [530.0, 1_060.0]
    assert list_scheduled_start(WhatIf(state, run.profile, CALIBRATED), "j3") == (1_060.0, 1)


@pytest.mark.parametrize("settings", [LIVE, CALIBRATED])
def test_starts_and_checkpoints_are_in_measured_runs_already(settings: Settings) -> None:
    """Runs of 1,236 s, with a start of 30 s and one checkpoint of 6 s or without: the next ends so, too."""
    trace = jobs(*((float(n), 1_236.0, 8) for n in range(4)), group=["g"] * 4)
    run = Watched(trace, ONE_HOST)
    found = Forecast(_without_durations(run.state(2_500.0)), run.profile, settings).start_of("j4")
    assert found.at_s == pytest.approx(3 * 1_236.0, abs=6.0)
    assert found.basis == "historical durations of group g (2 runs)"


def _raw(document: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(document))


def _without_durations(state: StateSnapshot) -> StateSnapshot:
    """The same state, had nobody said how long jobs will run."""
    queue = msgspec.json.decode(state.queue)
    for record in queue["jobs"].values():
        record["spec"].pop("duration_s", None)
    regions = {}
    for region, machines in state.regions.items():
        placer = msgspec.json.decode(machines.placer)
        for allocation in placer["allocations"].values():
            allocation["spec"].pop("duration_s", None)
        clusters = {}
        for name, blob in machines.clusters.items():
            manager = msgspec.json.decode(blob)
            for attempt in manager["attempts"].values():
                attempt["spec"].pop("duration_s", None)
            clusters[name] = _raw(manager)
        regions[region] = RegionState(_raw(placer), clusters)
    return msgspec.structs.replace(state, queue=msgspec.json.encode(queue), regions=regions)


def test_a_job_that_is_not_submitted_starts_behind_those_that_are() -> None:
    """A dry run: on a fleet that one job fills, the next starts when that one ends."""
    run = Watched(jobs((0.0, 500.0, 8)), fleet(cluster("r-1", hosts=1, gpus=8)))
    state = run.state(100.0)
    spec = run.simulation.machines.queue.jobs.records["j1"].spec
    assert forecast_start(state, run.profile, spec).at_s == 500.0


def test_a_job_that_fits_starts_at_once() -> None:
    """Where there is room, there is no range."""
    run = Watched(jobs((0.0, 500.0, 4)), fleet(cluster("r-1", hosts=1, gpus=8)))
    state = run.state(100.0)
    found = forecast_start(
        state, run.profile, run.simulation.machines.queue.jobs.records["j1"].spec
    )
    assert (found.at_s, found.late_s, found.basis) == (100.0, 100.0, "there is room for it now")


@pytest.mark.parametrize("later_s", [5.0, 60.0, 600.0])
def test_a_region_that_was_looked_at_before_the_queue_is_behind_it(later_s: float) -> None:
    """What happened meanwhile is news on its way there: every job that waits is given a start."""
    for seed in range(8):
        run = Watched(crowd(40, seed=seed), WORLD)
        before = run.state(100.0)
        state = msgspec.structs.replace(run.state(100.0 + later_s), regions=before.regions)
        forecast = Forecast(state, run.profile)
        for job in run.waiting():
            assert (forecast.start_of(job).at_s or 0.0) >= 100.0 + later_s


def test_the_system_that_is_forked_is_not_touched() -> None:
    """Before and after: the same bytes."""
    run = Watched(crowd(40, seed=6), WORLD)
    state = run.state(100.0)
    Forecast(state, run.profile).start_of(run.waiting()[-1])
    assert run.state(100.0) == state


def test_beyond_the_budget_gpus_are_counted() -> None:
    """Given up at once, the forecast still tells a start, near the one that comes, and says how."""
    run = Watched(crowd(300, seed=8), WORLD)
    forecast = Forecast(run.state(0.5), run.profile)
    job = run.waiting()[-1]
    found = forecast.start_of(job, give_up=lambda: True)
    real = run.starts()
    assert found.at_s == pytest.approx(real[job], rel=0.3)
    assert "estimated from GPU counts" in found.basis
    assert list_scheduled_start(forecast.whatif, "j0") is None


def test_beyond_the_budget_gpus_that_are_out_of_service_are_none() -> None:
    """Where operators have closed all hosts, no start is told, however long the queue is."""
    run = Watched(crowd(300, seed=8), WORLD)
    run.state(0.5)
    (placer,) = run.simulation.machines.placers.values()
    first, *others = (host.name for host in placer.columns.hosts)
    placer.handle(m.SetHost(first, HostState.CORDONED, "ann", also=tuple(others)), 0.5)
    forecast = Forecast(run.state(0.5), run.profile)
    found = forecast.start_of(run.waiting()[-1], give_up=lambda: True)
    assert (found.at_s, found.early_s, found.late_s) == (None, None, None)


def test_a_sweep_is_foreseen_as_a_whole() -> None:
    """Its first job starts in its turn, and the others run in the copy like any job."""
    run = Watched(jobs((0.0, 500.0, 4)), WORLD)
    state = run.state(0.5)
    spec = run.simulation.machines.queue.jobs.records["j1"].spec
    swept = msgspec.structs.replace(spec, sweep=Sweep({"LR": ("1", "2", "3")}))
    found, alone = (forecast_start(state, run.profile, one) for one in (swept, spec))
    assert found.at_s == alone.at_s
    assert found.at_s is not None


def test_what_a_duration_rests_on() -> None:
    """People's word, then like runs, then the limit, then the default; and what overran all of these."""
    durations = Durations(3_600.0)
    for run_s in (100.0, 200.0, 300.0, 400.0, 500.0):
        record = JobRecord("j", 1, _spec(group="g"), 0.0)
        record.held_s = run_s
        durations.learn(record)
    estimates = Estimates(durations, [])
    assert estimates.of(_spec(duration_s=50.0, group="g")).basis is Basis.GIVEN
    history = estimates.of(_spec(group="g"))
    assert (history.basis, history.run_s, history.runs) == (Basis.HISTORY, 300.0, 5)
    assert estimates.of(_spec(group="g"), done_s=350.0).run_s == 450.0  # of those that took longer
    assert estimates.of(_spec(group="g"), done_s=600.0).basis is Basis.OVERRUN
    assert estimates.of(_spec(time_limit_s=60.0)).late_s == 60.0
    assert estimates.of(_spec()).run_s == 3_600.0


def test_given_durations_are_as_good_as_they_have_been() -> None:
    """With enough finished jobs the range is that of their errors."""
    records = []
    for number, factor in enumerate((0.5, 0.9, 1.0, 1.1, 3.0)):
        record = JobRecord(f"j{number}", number, _spec(duration_s=100.0), 0.0, JobState.SUCCEEDED)
        record.held_s = 100.0 * factor
        records.append(record)
    low, high = Estimates(Durations(1.0), records).given_error
    assert low == pytest.approx(0.66)
    assert high == pytest.approx(2.24)


def _spec(**more: object) -> JobSpec:
    return JobSpec("job", (), "t", **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("at_s", [10.0, 1_500.0])
def test_an_elastic_job_goes_on_at_the_size_that_it_has(at_s: float) -> None:
    """Half of an elastic job that has half of its tasks lasts as long as the whole of one that has all."""
    trace = jobs(
        (0.0, 10_000.0, 28), (0.0, 2_000.0, 1), (1.0, 100.0, 4),
        tasks=[1, 8, 1], min_tasks=[1, 2, 1], max_tasks=[1, 8, 1],
    )  # fmt: skip
    run = Watched(trace, fleet(cluster("r-1", hosts=1, gpus=32)))
    forecast = Forecast(run.state(at_s), run.profile)
    expected = forecast.start_of("j3")
    starts = run.starts()
    assert starts["j3"] == pytest.approx(4_000.0)
    assert expected.at_s == pytest.approx(starts["j3"])


def test_gangs_that_take_turns_go_on_in_turns() -> None:
    """Two jobs of 3,000 s share a GPU in slices of a minute: at 2,000 s each has done a third of its work.

    The one that has not its turn stays suspended, so the third, for which no slice is left, starts when the
    first of them ends.
    """
    profile = load_profile("fifo-skip", {"slices.layers": "2"})
    run = Watched(jobs(*[(0.0, 3_000.0, 1)] * 2, (10.0, 500.0, 1)), ONE_GPU, profile)
    state, waiting = run.state(2_000.0), run.waiting()
    assert len(waiting) == 1
    found = Forecast(state, profile).start_of(waiting[0])
    real = run.starts()
    assert found.at_s == pytest.approx(real[waiting[0]], abs=2 * profile.slices.quantum_s)
    assert real[waiting[0]] > 5_500.0
