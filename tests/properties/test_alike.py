"""A request of jobs that are alike is read as its jobs are one by one: the same jobs, or errors."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st
from msgspec import UNSET
from msgspec.structs import replace

from topmast.model import messages as m
from topmast.model.access import local_caller
from topmast.model.errors import InvalidInput
from topmast.model.expansion import with_places
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.job import JobSpec
from topmast.policies.registry import DEFAULT_PROFILE, load_profile
from topmast.runtime.machines import Machines
from topmast.service.access import Access
from topmast.service.admission import Admission, ManyJobs
from topmast.service.blobs import Blobs
from topmast.service.regions import Regions

quick = settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
CALLER, USER = local_caller("ada"), "ada"
HOSTS = {"hosts": [{"count": 2, "gpu": "H100", "gpus": 8}]}
FLEET = {
    "regions": {"east": {"clusters": {"east-1": HOSTS}}},
    "tenants": {"a": {"quota": {"H100": 8}}},
}

SAME: list[dict[str, Any]] = [
    {},
    {"resources": {"accelerators": "H100:1"}, "tenant": "a"},
    {"resources": {"accelerators": "H100:99"}, "num_nodes": 3},
    {"datasets": ["imagenet"], "priority": "low"},
    {"groups": [{"name": "one", "run": "serve"}]},
    {"groups": [{"name": "one", "run": "serve"}, {"name": "two", "run": "work"}]},
    {"secrets": {"KEY": "env:KEY"}},
    {"depends_on": ["first"]},
    {"sweep": {"matrix": {"LR": [0.1, 0.2]}}},
    {"tenant": "unknown"},
    {"num_nodes": "two"},
    {"apiVersion": "batch/v1"},
    {"workdir": "sha256:" + "0" * 64},
    {"max_restarts": 1},
    {"max_restarts": 1.0},
    {"max_restarts": True},
]
OWN: dict[str, list[Any]] = {
    "name": ["first", "second", "a b", "x" * 200, "", 7, 7.5, True, None, ["n"], "n\0"],
    "run": ["train", "train --lr 0.1", " ", 8, None, "x" * 100_001, ["a", "b"], "é", "a\0b"],
    "envs": [
        {}, {"LR": "0.1"}, {"LR": 0.1, "N": 3}, {"LR": "é" * 40_000}, {"LR": True}, {"1": "a"},
        {"TOPMAST_X": "a"}, {"KEY": "a"}, {"A": "x" * 64_000, "B": "y" * 64_000}, None, "A=1",
        {f"V{i}": "x" * 300 for i in range(1_000)}, {f"V{i}": "" for i in range(1_001)},
        {"LR": None}, {"LR": ["a"]}, {"LR": "a\0"},
    ],
    "labels": [{}, {"team": "vision", "a": "b"}, {"team": "a b"}, {"-": "x"}, {"n": 5}, None, []],
}  # fmt: skip
GOOD = {field: values[:2] for field, values in OWN.items()}


def _own(values: dict[str, list[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    sampled = {field: st.sampled_from(known) for field, known in values.items()}
    return st.fixed_dictionaries({}, optional=sampled)


def _job(same: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """A job with these fields, mostly a good one."""
    needed = {} if "groups" in same else {"run": "train"}
    good = _own(GOOD).map(lambda own: same | needed | own)
    return good | good | _own(OWN).map(lambda own: same | needed | own)


ALIKE = st.sampled_from(SAME).flatmap(lambda same: st.lists(_job(same), min_size=2, max_size=6))
MIXED = st.lists(st.sampled_from(SAME).flatmap(_job), min_size=2, max_size=8)


@pytest.fixture(scope="module")
def admission(tmp_path_factory: pytest.TempPathFactory) -> Admission:
    """Of a fleet with one cluster."""
    machines = Machines(load_profile(DEFAULT_PROFILE))
    machines.queue.handle(m.ConfigureFleet(parse_fleet(FLEET)), 0.0)
    folder: Path = tmp_path_factory.mktemp("blobs")
    return Admission(machines, Regions(machines), Access(machines.queue), Blobs(folder))


GROUP = {"groups": [{"name": "one", "run": "serve"}]}
SECRET = {"run": "train", "secrets": {"KEY": "env:KEY"}}
FIRST = {"name": "first", "run": "train"}
AFTER = {"name": "then", "run": "train", "depends_on": ["first"]}


@quick
@given(ALIKE | MIXED)
@example([GROUP | {"run": None}, GROUP | {"run": "train"}])
@example([SECRET | {"envs": {"LR": "1"}}, SECRET | {"envs": {"KEY": "1"}}])
@example([FIRST, AFTER, FIRST, AFTER])
@example(
    [FIRST | {"envs": {"A": text}} for text in ("a", "b", "b\n", "c\0", "\ud800", 3, 0.5, None)]
)
@example([FIRST | {"envs": {f"V{i}": "x" * 640 for i in range(n)}} for n in (100, 390, 400, 390)])
def test_jobs_of_one_request_are_read_as_one_by_one(
    admission: Admission, documents: list[dict[str, Any]]
) -> None:
    """Whatever they share and differ in: the same jobs, warnings and lists of errors."""
    many = ManyJobs(admission, CALLER, USER)
    called, places, read = Counter[str](), dict[str, int](), dict[int, JobSpec]()
    for place, document in enumerate(documents):
        found: Any
        try:
            found = many.read(document, place)
            read[place] = found.spec
            assert asked_by(read[found.kind]) == asked_by(found.spec), "they are said to be alike"
            found = (found.spec, found.warnings)
        except InvalidInput as error:
            found = _told(error)
        assert found == _read_alone(admission, document, place, called, places)
        event("refused" if isinstance(found, list) else "read")


def asked_by(spec: JobSpec) -> JobSpec:
    """A job without what jobs that are alike may differ in."""
    groups = tuple(replace(group, run="") for group in spec.groups)
    return replace(spec, name="", groups=groups, envs={}, labels=UNSET)


def test_a_job_like_one_before_is_read_by_what_differs(admission: Admission) -> None:
    """The parts that jobs share are one object, so that a long sweep takes little memory."""
    many = ManyJobs(admission, CALLER, USER)
    job = {"resources": {"accelerators": "H100:1"}, "run": "train"}
    first, second, other = (
        many.read(job | own, place).spec
        for place, own in enumerate(({"name": "a"}, {"name": "b"}, {"run": "train --lr 1"}))
    )
    assert second == replace(first, name="b")
    assert second.groups is first.groups
    assert other.groups[0].resources is not first.groups[0].resources, "it has no name: not alike"


def _read_alone(
    admission: Admission,
    document: dict[str, Any],
    place: int,
    called: Counter[str],
    places: dict[str, int],
) -> Any:
    """A job as it is read by itself, knowing only the names of those before."""
    where, remedy = f"jobs[{place}]", "submit each sweep by itself"
    many = InvalidInput("a sweep is many jobs", field=f"{where}.sweep", remedy=remedy)
    try:
        spec = admission.read(CALLER, document, USER, where, called, "")
    except InvalidInput as error:
        rest = error.rest
        return _told(error) + (_told(many) if isinstance(rest, JobSpec) and rest.sweep else [])
    if spec.sweep:
        return _told(many)
    spec = with_places(spec, places)
    called[spec.name] += 1
    places[spec.name] = place
    return spec, admission.warnings(spec)


def _told(error: InvalidInput) -> list[tuple[str, str, str, str]]:
    return [(e.message, e.field, e.where, e.remedy) for e in (error, *error.more)]
