"""No sentence of an explanation contradicts what was decided: where a job runs, why, at whose cost, or why it waits.

A story is a small system with jobs and a last one that comes. Every sentence about every job is taken apart and
held against the journal and against the verdicts on all clusters, which come from another search than the decision
does. `TOPMAST_MORE_EXAMPLES=10` tells 1,000 stories.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.build import cluster, dataset, elastic, profile
from tests.support.build import fleet as build_fleet
from tests.support.strategies import bounded, jobs, small_fleets
from tests.support.world import World
from topmast.fast.queue.jobs.record import JobRecord
from topmast.model.decided import Decided, Rule, points
from topmast.model.fleet import Fleet, Link
from topmast.model.job import Accelerator, JobSpec, Resources, TaskGroup, Topology
from topmast.model.plan import Plan
from topmast.model.reason import ChangeKind
from topmast.model.states import WAITING, HostState
from topmast.model.views import Explanation
from topmast.policies.options import (
    BindOptions,
    ElasticOptions,
    Preemption,
    Profile,
    ShareOptions,
    WhenBlocked,
)
from topmast.service.explain import explain_job, explain_spec

PROFILES: dict[str, dict[str, Any]] = {
    "weighs copies": {},
    "copies at once": {"copy_patience": 0.0},
    "few copies": {"copies_per_period": 1},
    "no copies": {"on_demand_copies": False},
    "patient": {"min_runtime_s": 100.0, "copy_patience": 3.0},
    "first come, first served": {
        "order": "submission", "when_blocked": WhenBlocked.STOP, "preemption": Preemption.NONE,
    },
    "kept room": {"reserve_after_s": 0.0, "preemption": Preemption.NONE},
    "by rank": {"order": "attained-service", "preemption": Preemption.RANK},
    "sent to clusters": {"bind": BindOptions(policy="least-loaded")},
    "sent to regions": {"bind": BindOptions(policy="spill-over", patience_s=100.0)},
    "moves": {"defragment": True, "defragment_after_s": 0.0},
    "changes sizes": {"elastic": ElasticOptions(grow=True, shrink=True, settle_s=0.0)},
    "shares time": {"order": "turn", "preemption": Preemption.NONE,
                    "shares": ShareOptions(policy="max-min-fairness")},
}  # fmt: skip


@dataclass
class Story:
    """A system with jobs, and one that comes last."""

    name: str
    options: Profile
    fleet: Fleet
    before: list[JobSpec]
    over: list[int]
    cordoned: list[str]
    after_s: float
    last: JobSpec

    def world(self) -> World:
        """All that happened before the last job comes."""
        world = World(self.fleet, self.options)
        for spec in self.before:
            world.submit(spec)
        world.advance(self.after_s)
        for host in self.cordoned:
            world.set_host(host, HostState.CORDONED)
        for number in self.over:
            world.cancel(f"j{number}")
        world.settle()
        return world


@st.composite
def stories(draw: st.DrawFn) -> Story:
    """A system that is rather full; links are slow in some, so that copies are dear."""
    name = draw(st.sampled_from(sorted(PROFILES)))
    fleet = draw(small_fleets())
    regions = [region.name for region in fleet.regions]
    rate = draw(st.sampled_from([1e9, 2e7, 1e6]))
    links = tuple(Link(a, b, rate) for a in regions for b in regions if a != b)
    fleet = replace(fleet, links=draw(st.sampled_from([links, links, ()])))
    listed = st.one_of(jobs(), jobs(), jobs().map(_elastic))
    before = draw(st.lists(listed, min_size=1, max_size=8))
    over = draw(st.lists(st.integers(1, len(before)), max_size=3, unique=True))
    hosts = [h.name for r in fleet.regions for c in r.clusters for h in c.hosts]
    cordoned = draw(st.lists(st.sampled_from(hosts), max_size=1))
    last = draw(listed)
    if draw(st.booleans()):
        last = replace(last, datasets=("here",))
    if draw(st.integers(0, 2)) == 0:
        fleet, last = _data_where_it_is_slow(fleet), _faster_elsewhere(last)
        cordoned = []
    after_s = draw(st.sampled_from([0.0, 30.0, 200.0]))
    options = profile(**PROFILES[name])
    return Story(name, options, fleet, before, over, cordoned, after_s, last)


def _data_where_it_is_slow(fleet: Fleet) -> Fleet:
    """Two roomy regions: `east` has the data and slow GPUs, `west` has fast ones."""
    return build_fleet(
        cluster("east-1", hosts=4, gpus=4, model="A100"), cluster("west-1", hosts=4, gpus=4),
        tenants=fleet.tenants, datasets=(dataset("here", "east"), dataset("both", "east", "west")),
    )  # fmt: skip


def _faster_elsewhere(spec: JobSpec) -> JobSpec:
    """One task that reads `here` and runs three times as fast on the GPUs of `west`."""
    either = (Accelerator("H100", 1_000, 3.0), Accelerator("A100", 1_000, 1.0))
    groups = (TaskGroup("main", 1, Resources(either), "true"),)
    return replace(spec, groups=groups, datasets=("here",), topology=Topology())


def _elastic(spec: JobSpec) -> JobSpec:
    return elastic(spec, 1, spec.groups[0].count + 2) if len(spec.groups) == 1 else spec


# --- what sentences claim ---------------------------------------------------------------------------------


@dataclass
class Scene:
    """What a sentence is held against. ``before``: what was said of the job before it was submitted."""

    world: World
    told: Explanation
    record: JobRecord | None = None
    before: Explanation | None = None
    decided: Decided | None = None
    plan: Plan | None = None
    said: list[str] = field(default_factory=list)


def _number(text: str) -> float:
    return float(text)


def _is_score(scene: Scene, text: str) -> None:
    score = scene.told.plans[0].score
    assert points(score) == text
    if scene.plan is not None:
        assert scene.plan.score == score


def _free(told: Explanation, *, near: bool) -> list[tuple[float, str, str]]:
    """The places where nobody has to go, with their scores; ``near``: where all data is."""
    return [
        (verdict.score, region.region, verdict.cluster)
        for region in told.regions
        for verdict in region.clusters
        if verdict.score is not None and not verdict.victims
        if not near or not (region.data_bytes or region.data_s)
    ]


def _lowest(scene: Scene, found: re.Match[str]) -> None:
    """It scored lowest of all free places: no other cluster that fits scores lower."""
    _rule(scene, Rule.LOWEST_SCORE, found["score"])
    if scene.before is not None:
        chosen = scene.told.plans[0]
        assert not chosen.victims
        lower = [p for p in _free(scene.before, near=False) if p[0] < chosen.score - 1e-9]
        assert not lower, lower


def _most_tasks(scene: Scene, found: re.Match[str]) -> None:
    _rule(scene, Rule.MOST_TASKS, found["score"])
    if scene.plan is not None:
        assert len(scene.plan.seats) == int(found["tasks"])


def _has_data(scene: Scene, found: re.Match[str]) -> None:
    """It has the data, and the place that scores lower has not."""
    _rule(scene, Rule.HAS_DATA, found["score"])
    chosen = scene.told.plans[0]
    assert not chosen.data_bytes
    assert not chosen.victims
    assert _number(found["rival"]) <= _number(found["score"])
    if scene.before is not None:
        places = {(r, c): score for score, r, c in _free(scene.before, near=False)}
        near = {(r, c) for _, r, c in _free(scene.before, near=True)}
        rival = (found["region"], found["cluster"])
        assert rival not in near
        assert scene.record is None or scene.record.spec.elastic or rival in places


def _stops(scene: Scene, found: re.Match[str]) -> None:
    """Exactly these jobs are stopped, and no free place with the data was passed over for it."""
    _rule(scene, Rule.STOPS_JOBS, found["score"])
    _are_victims(scene, found["jobs"], moved=False)
    if scene.before is not None and "free for it" in found["none"]:
        assert not _free(scene.before, near=False)


def _moves(scene: Scene, found: re.Match[str]) -> None:
    _rule(scene, Rule.MOVES_JOBS, found["score"])
    _are_victims(scene, found["jobs"], moved=True)


def _shrinks(scene: Scene, found: re.Match[str]) -> None:
    _rule(scene, Rule.SHRINKS_JOBS, found["score"])
    if scene.plan is not None:
        _names(found["jobs"], [victim.job for victim in scene.plan.victims])


def _are_victims(scene: Scene, named: str, *, moved: bool) -> None:
    _names(
        named,
        [str(victim["job"]) for victim in scene.told.plans[0].victims]
        if not moved
        else [victim.job for victim in scene.plan.victims]
        if scene.plan
        else re.findall(r"j\d+", named),
    )
    if scene.plan is not None and not moved:
        stopped = [victim.job for victim in scene.plan.victims if victim.to is None]
        _names(named, stopped)


def _names(text: str, jobs: list[str]) -> None:
    few = re.findall(r"j\d+", text)
    assert few == jobs[: len(few)]
    more = re.search(r"and (\d+) more", text)
    assert len(jobs) == len(few) + (int(more[1]) if more else 0)


def _rule(scene: Scene, rule: Rule, score: str) -> None:
    assert scene.told.decided is not None
    assert scene.told.decided.rule is rule
    if scene.decided is not None:
        assert scene.told.decided == scene.decided
    _is_score(scene, score)


def _over_quota(scene: Scene, found: re.Match[str]) -> None:
    assert scene.told.plans[0].over_quota
    assert scene.record is None or scene.record.plan is None or scene.record.over_quota


def _runs(scene: Scene, found: re.Match[str]) -> None:
    record = scene.record
    assert record is not None
    assert record.plan is not None
    assert (record.id, record.state.value) == (found["job"], found["state"])
    assert (record.plan.region, record.plan.cluster) == (found["region"], found["cluster"])


def _would_start(scene: Scene, found: re.Match[str]) -> None:
    chosen = scene.told.plans[0]
    assert (chosen.region, chosen.cluster) == (found["region"], found["cluster"])
    assert (chosen.gpu_model or "CPUs") == found["model"]
    assert bool(found["over"]) is (chosen.over_quota and bool(chosen.gpu_model))


def _no_room(scene: Scene, found: re.Match[str]) -> None:
    """No cluster fits, not even by stopping jobs, as far as they may be stopped."""
    fits = [v for r in scene.told.regions for v in r.clusters if v.score is not None]
    assert not fits, fits
    assert scene.told.reason == "InsufficientCapacity"


def _out_of_service(scene: Scene, found: re.Match[str]) -> None:
    """So many were tried, and suffice."""
    back = [change for change in scene.told.changes if change.kind is ChangeKind.SERVICE]
    assert (back[0].cluster, back[0].to) == (found["cluster"], float(found["count"]))


def _no_borrowing(scene: Scene, found: re.Match[str]) -> None:
    spec = None if scene.record is None else scene.record.spec
    assert spec is None or not scene.world.queue.tenancy.choices(spec.at_least(), True)


def _copied(scene: Scene, found: re.Match[str]) -> None:
    assert scene.told.reason == "WaitingForData"
    (region,) = [r for r in scene.told.regions if r.region == found["region"]]
    assert region.data_bytes > 0
    if found["begun"] == "is being":
        copies = scene.world.queue.data.catalogue.copies.values()
        assert any(copy.target == found["region"] for copy in copies)


def _never(scene: Scene, found: re.Match[str]) -> None:
    assert all(not v.ever for r in scene.told.regions for v in r.clusters)


def _stays_away(scene: Scene, found: re.Match[str]) -> None:
    """There is room, but the job waits: that is told of a place which is in the table."""
    assert scene.told.plans
    chosen = scene.told.plans[0]
    assert (chosen.region, chosen.cluster) == (found["region"], found["cluster"])


def _bound(scene: Scene, found: re.Match[str]) -> None:
    record = scene.record
    if record is not None and record.bound is not None:
        assert record.bound.region == found["region"]
        assert record.plan is None or record.plan.region == found["region"]


def _nothing(scene: Scene, found: re.Match[str]) -> None:
    """Says nothing that a record could contradict."""


GANG = r"\d+ tasks? with .*?(?: each)?"
OF_ENGINE = r" of an engine that .*?"
PLACE = r"(?P<region>[a-z]+)/(?P<cluster>[a-z0-9-]+)"
SCORE = r"(?P<score>-?[0-9.e+-]+)"
NOT_FREE = r"(?P<none>no place (?:is|was) free for it|no free place was chosen)"
RIVAL = r"(?P<rival>-?[0-9.e+-]+)"
Check = Callable[[Scene, re.Match[str]], None]
CLAIMS: tuple[tuple[str, Check], ...] = (
    (rf"(?P<job>j\d+) is (?P<state>[A-Z]+) in {PLACE}", _runs),
    (rf"{PLACE} was told to start (?P<job>j\d+) and has not answered yet", _nothing),
    (rf"(?P<job>j\d+) starts in {PLACE} when .* (?:has|have) stopped", _nothing),
    (rf"{GANG} would start now in {PLACE} on (?P<model>\w+)(?P<over>, over quota and preemptible)?",
     _would_start),
    (rf"of all free places, this one (?:has|had) the lowest score \({SCORE}\)", _lowest),
    (rf"of all free places, this one (?:holds|held) the most tasks \((?P<tasks>\d+) tasks?, score {SCORE}\)",
     _most_tasks),
    (rf"this place (?:is|was) free and (?:has|had) the job's data \(score {SCORE}\); {PLACE} (?:has|had) "
     rf"score {RIVAL}, but would (?:need|have needed) a copy of the data", _has_data),
    (r"this place was kept for it while it stopped elsewhere", _nothing),
    (r"preempted by j\d+", _nothing),
    (rf"{NOT_FREE}, so it stop(?:s|ped) (?P<jobs>.*?) \(score {SCORE}\)", _stops),
    (rf"{NOT_FREE}, so (?P<jobs>.*?) move[sd]? to other hosts \(score {SCORE}\)", _moves),
    (rf"{NOT_FREE}, so (?P<jobs>.*?) (?:gets?|got) fewer tasks \(score {SCORE}\)", _shrinks),
    (rf"{PLACE} (?:is|was) free, but need(?:s|ed) a copy of the data first \(score {RIVAL}\)", _nothing),
    (rf"the next best plan (?:is|was) in {PLACE} \(score {RIVAL}\)", _nothing),
    (r"the job was sent to (?P<region>\w+)(?:/(?P<cluster>[\w-]+))?, so no other place was asked",
     _bound),
    (r"it runs over its tenant's quota and may be preempted at any time", _over_quota),
    (r"it (?:starts with the most that fit|runs with \d+ tasks?, and may have),? from \d+ to \d+ tasks.*",
     _nothing),
    (r"it asked for \d+", _nothing),
    (r"last change of size: .*", _nothing),
    (rf"no cluster has room for {GANG} now", _no_room),
    (rf"no cluster has room for {GANG} now, and stopping the jobs that it may stop would not make enough",
     _no_room),
    (rf"(?P<region>\w+)(?:/(?P<cluster>[\w-]+))?, where the job was sent, does not have room for {GANG} now"
     r"(?:, and stopping the jobs that it may stop would not make enough)?", _no_room),
    (rf"{GANG} would fit into {PLACE} now, but the job waits(?: until the queue asks again)?",
     _stays_away),
    (rf"{GANG} (?:fit|fits) into no \w+(?:{OF_ENGINE})?, even if it were empty", _never),
    (rf"no host(?:{OF_ENGINE})? could run (?:one task of )?{GANG}, even if it were empty", _never),
    (r"the job needs an engine that .*, and no cluster has one", _never),
    (rf"no job of tenant \w may hold {GANG}: one has to lie within .*", _nothing),
    (r"(?P<count>\d+) hosts? of (?P<cluster>[\w-]+) would do, but (?:is|are) out of service \(.*?\)",
     _out_of_service),
    (rf"{GANG} must wait for quota: tenant \w would exceed its quota, and the job may not borrow GPUs",
     _no_borrowing),
    (rf"{GANG} must wait for quota: tenant \w would exceed its quota, and no idle GPUs are left that it "
     r"may borrow", _nothing),
    (r"the job waits for its data: [\w, ]+ (?P<begun>is being|would be) copied to (?P<region>\w+)",
     _copied),
    (r"the job waits for its data", _nothing),
    (r"\w+: (?:the residency of .* forbids it|no link .*|its data is elsewhere .*|the job was sent to .*)",
     _nothing),
    (r"room is expected where its data is in \d+ s, and a copy to \w+ would take \d+ s", _nothing),
    (r"data was copied for \d+ jobs in this period, which is the limit", _nothing),
    (r"room in \w+ is kept for j\d+", _nothing),
    (r"room is kept for it in .*: another job starts there only if it is expected to end in time",
     _nothing),
    (r"j\d+ has to start first, and waits itself", _nothing),
    (r"this round gives the GPUs to other jobs", _nothing),
    (r"waits out a delay: .*", _nothing),
)  # fmt: skip


def hold_to_it(scene: Scene) -> None:
    """Every part of the summary is known, and true."""
    rest = scene.told.summary
    while rest:
        found = [
            (match, check)
            for pattern, check in CLAIMS
            if (match := re.match(rf"(?:{pattern})(?=$|: |; )", rest)) is not None
        ]
        assert found, f"nobody has checked: {rest!r} of {scene.told.summary!r}"
        match, check = max(found, key=lambda one: one[0].end())
        check(scene, match)
        scene.said.append(check.__name__)
        rest = rest[match.end() :].removeprefix(": ").removeprefix("; ")


def _hosts_add_up(told: Explanation) -> None:
    for region in told.regions:
        for verdict in region.clusters:
            counted = sum(count.count for count in verdict.rejections)
            assert counted + verdict.fitting_hosts == verdict.hosts


def _terms_add_up(told: Explanation) -> None:
    for plan in told.plans:
        assert abs(sum(plan.terms.values()) - plan.score) < 1e-6


# --- the property -----------------------------------------------------------------------------------------


@bounded(100)
@given(stories())
def test_no_sentence_contradicts_the_decision(story: Story) -> None:
    """What is said of a job before it comes, of all jobs then, and of the job afterwards is what was decided."""
    world = story.world()
    blobs, clocks = world.blobs(), world.queue.now
    foretold = explain_spec(world.queue, world.machines.placers, story.last, world.now)
    assert world.blobs() == blobs
    assert world.queue.now == clocks
    hold_to_it(Scene(world, foretold))
    _hosts_add_up(foretold)
    _terms_add_up(foretold)
    _all_records_hold(world)
    (name,) = world.submit(story.last)
    record = world.jobs[name]
    event(f"{story.name}: {foretold.reason or (foretold.decided and foretold.decided.rule)}")
    decisions = [fact for fact in world.plans() if fact.job == name]
    told = explain_job(world.queue, world.machines.placers, record, world.now)
    if foretold.reason is not None:
        assert not decisions, foretold.summary
        assert record.state in WAITING
        hold_to_it(Scene(world, told, record))
        return
    assert decisions, (foretold.summary, told.summary)
    assert foretold.decided == decisions[0].decided
    chosen, plan = foretold.plans[0], decisions[0].plan
    assert (chosen.region, chosen.cluster, chosen.hosts) == (plan.region, plan.cluster, plan.hosts)
    assert chosen.score == plan.score
    if record.epoch == 1 and record.plan is not None:
        scene = Scene(world, told, record, foretold, decisions[0].decided, plan)
        hold_to_it(scene)


def _all_records_hold(world: World) -> None:
    """What is said of the jobs that are there, each held against its last decision."""
    last = {fact.job: fact for fact in world.plans()}
    for name, record in world.jobs.items():
        if record.finished:
            continue
        told = explain_job(world.queue, world.machines.placers, record, world.now)
        assert told.reason == world.reason(name) or world.reason(name) == "PendingEvaluation"
        scene = Scene(world, told, record)
        if record.plan is not None:
            fact = last[name]
            assert fact.epoch == record.epoch
            scene = Scene(world, told, record, None, fact.decided or None, fact.plan)
        hold_to_it(scene)
