"""The readers of files: nothing they are given makes them do anything but answer or refuse."""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from topmast.model.dataset import dataset_variable
from topmast.model.errors import InvalidInput
from topmast.model.files import source
from topmast.model.files.documents import from_document
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.files.jobfile import dump_job, parse_job, read_job
from topmast.model.files.source import JOB_LIMITS, Kind, Node, kind_of_plain, parse_text
from topmast.model.job import (
    MILLI,
    Accelerator,
    Band,
    Checkpoint,
    JobSpec,
    Level,
    Resources,
    TaskGroup,
    Topology,
)
from topmast.model.units import (
    MAX_BYTES,
    MAX_DURATION_S,
    exact_bytes,
    format_bytes,
    format_duration,
    parse_bytes,
    parse_duration_s,
    parse_memory_gb,
)

quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))

# ------------------------------------------------------------------------- jobs that can be written

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=60)
# PyYAML writes `08` without quotes, as YAML 1.1 may: a number to us, and no script.
scripts = texts.filter(lambda text: bool(text.strip()) and kind_of_plain(text) is Kind.TEXT)
models = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9 ._-]{0,10}[A-Za-z0-9]", fullmatch=True)
counts = st.integers(1, MILLI - 1) | st.integers(1, 8).map(lambda gpus: gpus * MILLI)
speeds = st.floats(1e-6, 1e6, exclude_min=True)
durations = st.floats(0, MAX_DURATION_S)
levels = st.none() | st.sampled_from(Level)


@st.composite
def accelerators(draw: st.DrawFn) -> tuple[Accelerator, ...]:
    """None, any model, or some models in order."""
    if draw(st.booleans()):
        return draw(st.just(()) | st.builds(Accelerator, st.none(), counts).map(lambda a: (a,)))
    chosen = draw(st.lists(models, unique=True, max_size=4))
    return tuple(Accelerator(m, draw(counts), draw(st.just(1.0) | speeds)) for m in chosen)


resources = st.builds(Resources, accelerators(), st.floats(0, 1e6), st.integers(0, MAX_BYTES))
groups = st.lists(
    st.builds(TaskGroup, names, st.integers(1, 500), resources, scripts, st.just("") | scripts),
    min_size=1,
    max_size=4,
    unique_by=lambda group: group.name,
).map(tuple)


@st.composite
def with_range(draw: st.DrawFn, given: tuple[TaskGroup, ...]) -> tuple[TaskGroup, ...]:
    """The same groups, of which one may be of varying size."""
    at, fewer, more = draw(st.integers(0, 3)), draw(st.integers(0, 9)), draw(st.integers(0, 9))
    if at >= len(given) or not fewer + more:
        return given
    group, listed = given[at], list(given)
    low = max(1, group.count - fewer)
    if low < group.count + more:
        listed[at] = replace(group, min_count=low, max_count=group.count + more)
    return tuple(listed)


paths = st.lists(st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True), max_size=3).map("/".join)
specs = st.builds(
    JobSpec,
    name=names,
    groups=(groups | st.builds(lambda one: (one,), st.builds(
        TaskGroup, st.just("main"), st.integers(1, 500), resources, scripts
    ))).flatmap(with_range),
    tenant=names,
    user=texts,
    band=st.sampled_from(Band),
    envs=st.dictionaries(st.from_regex(r"[A-Z_][A-Za-z0-9_]{0,9}", fullmatch=True), texts),
    workdir=st.just("") | st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True),
    datasets=st.lists(names, unique_by=dataset_variable, max_size=4).map(tuple),
    topology=st.builds(Topology, levels, levels),
    checkpoint=st.builds(
        Checkpoint, paths, durations.filter(bool), st.floats(0, 86_400)
    ),
    time_limit_s=st.none() | durations.filter(bool),
    max_restarts=st.integers(0, 1000),
    preemptible=st.booleans(),
    group=st.just("") | names,
).filter(lambda spec: spec.preemptible or spec.band is not Band.OPPORTUNISTIC)  # fmt: skip


@quick
@given(specs)
def test_a_job_written_is_the_job_read(spec: JobSpec) -> None:
    """In memory, through JSON, and through a YAML file."""
    document = dump_job(spec)
    as_json = json.dumps(document)
    assert parse_job(document, user=spec.user).spec == spec
    assert parse_job(json.loads(as_json), user=spec.user).spec == spec


@quick
@given(specs)
def test_a_job_written_to_a_file_is_the_job_read(
    tmp_path_factory: pytest.TempPathFactory, spec: JobSpec
) -> None:
    """JSON is YAML, and YAML is YAML."""
    path = tmp_path_factory.mktemp("job") / "job.yaml"
    document = dump_job(spec)
    for text in (json.dumps(document), yaml.safe_dump(document, sort_keys=False)):
        path.write_text(text, encoding="utf-8")
        assert read_job(path, user=spec.user).spec == spec


@quick
@given(specs, st.data())
def test_a_job_with_a_part_replaced_is_read_or_refused(spec: JobSpec, data: st.DataObject) -> None:
    """One wrong value anywhere in a good document never ends in anything else."""
    document: Any = dump_job(spec)
    place = document
    while True:
        key = data.draw(
            st.sampled_from(list(place) if isinstance(place, dict) else range(len(place)))
        )
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(anything)
    refused_or_answered(document)


# --------------------------------------------------------------------------------------- anything

WORDS = [
    "run", "name", "groups", "resources", "accelerators", "envs", "datasets", "topology", "count",
    "regions", "clusters", "hosts", "gpu", "gpus", "links", "tenants", "quota", "H100:8", "x",
]  # fmt: skip
numbers = st.integers() | st.floats() | st.sampled_from([10**18, -(10**400), 2**63, 1e308])
scalars = st.none() | st.booleans() | numbers | st.text(max_size=20) | st.sampled_from(WORDS)
keys = st.sampled_from(WORDS) | st.text(max_size=8)
anything = st.recursive(
    scalars,
    lambda part: st.lists(part, max_size=4) | st.dictionaries(keys, part, max_size=4),
    max_leaves=15,
)
yaml_texts = st.lists(
    st.sampled_from([
        "run: ", "groups: ", "regions: ", "- ", "  ", "\n", "\n  ", "\t", ": ", ":", ",", "[", "]",
        "{", "}", "&a ", "*a", "<<: ", "!!", "!x ", "? ", "|\n", ">-\n", "'", '"', "\\u00", "#",
        "---\n", "...\n", "%TAG", "@", "`", "~", "1", ".nan", "é", "\ufeff", "\x85", "\x1b", "\0",
        "a", "b",
    ])
    | st.text(max_size=3),
    max_size=40,
).map("".join)  # fmt: skip


def refusal(read: Callable[[], object]) -> str:
    """What a reader says against its input, or nothing; any other exception passes through."""
    try:
        read()
    except InvalidInput as error:
        return error.line()
    return ""


def refused_or_answered(document: Any) -> None:
    """Read ``document`` as each kind of file; only InvalidInput, of one line, may come of it."""
    assert one_line(refusal(lambda: parse_job(document)))
    assert one_line(refusal(lambda: parse_fleet(document)))


def one_line(text: str) -> bool:
    """Whether ``text`` can neither break a line nor write to a terminal."""
    return text.isprintable()


@quick
@given(anything)
def test_any_document_is_read_or_refused(document: Any) -> None:
    """Whatever a request brings."""
    refused_or_answered(document)


@pytest.mark.parametrize("loader", ["CSafeLoader", "SafeLoader"])
@quick
@given(text=yaml_texts)
def test_any_text_is_read_or_refused(loader: str, text: str) -> None:
    """Whatever a file holds, with either parser."""
    data = text.encode("utf-8", "surrogatepass")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_LOADER", getattr(yaml, loader, yaml.SafeLoader))
        assert one_line(refusal(lambda: parse_text(data, "f", JOB_LIMITS)))


@quick
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    """Even what is no text at all."""
    assert one_line(refusal(lambda: parse_text(data, "f", JOB_LIMITS)))


def shape(node: Node) -> object:
    """What a tree says, without its lines."""
    entries = [(key, shape(part)) for key, part in node.entries.items()]
    text = "" if node.kind is Kind.NOTHING else node.text
    return node.kind, text, [shape(item) for item in node.items], entries


@quick
@given(st.dictionaries(keys, anything, max_size=3))
def test_a_file_and_a_request_mean_the_same(document: Any) -> None:
    """A document sent, and the same document in a JSON file: one tree, or two refusals."""
    data = json.dumps(document).encode()
    against = refusal(lambda: from_document(document, "f", JOB_LIMITS))
    if against:
        event(against)
        return
    found = parse_text(data, "f", JOB_LIMITS)
    assert shape(found) == shape(from_document(document, "f", JOB_LIMITS))


# ------------------------------------------------------------------------------------------ units


@quick
@given(
    st.text(max_size=12) | st.from_regex(r"[0-9.e+-]{0,8}[A-Za-z]{0,4}", fullmatch=True) | numbers
)
def test_any_quantity_is_read_or_refused(written: Any) -> None:
    """A result is finite, not negative and bounded."""
    limits = {parse_bytes: MAX_BYTES, parse_memory_gb: MAX_BYTES, parse_duration_s: MAX_DURATION_S}
    for parse, most in limits.items():
        found: list[float] = []
        assert one_line(refusal(lambda parse=parse, found=found: found.append(parse(written))))  # type: ignore[misc]
        assert all(0 <= value <= most for value in found)


@quick
@given(st.integers(0, MAX_BYTES))
def test_exact_sizes_read_back(size_bytes: int) -> None:
    """Nothing is lost; and what people see is within half a percent."""
    assert parse_bytes(exact_bytes(size_bytes)) == size_bytes
    shown = parse_bytes(format_bytes(size_bytes))
    assert abs(shown - size_bytes) <= 0.0051 * size_bytes


@quick
@given(st.floats(10, MAX_DURATION_S))
def test_shown_durations_are_near(duration_s: float) -> None:
    """What people see is within two percent."""
    days, _, rest = format_duration(duration_s).rpartition("d")
    shown_s = (int(days) * 86400 if days else 0) + (parse_duration_s(rest) if rest else 0)
    assert abs(shown_s - duration_s) <= 0.05 * duration_s
