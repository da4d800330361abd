"""Traces, whatever is in them: exact round trips, readers that never fall over, gangs that add up."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.traces.test_writing import assert_same
from topmast.model.errors import InvalidInput
from topmast.model.job import Band
from topmast.traces.formats import FORMATS
from topmast.traces.reading import read
from topmast.traces.trace import Trace, gangs, sizes_of, trace_of
from topmast.traces.writing import write


def outcome(path: Path, format: str, skip: bool) -> Trace | str:
    """The trace that is read, or what is said instead."""
    try:
        return read(path, format, skip_bad_rows=skip)
    except InvalidInput as error:
        return str(error)


words = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=12)
words = words.filter(str.isprintable)
seconds = st.floats(0, 1e9)
ENDINGS = (".csv", ".csv.gz", ".parquet")


@st.composite
def traces(draw: Any) -> Trace:
    """A trace that its own format can hold."""
    n = draw(st.integers(1, 8))

    def some(values: Any) -> Any:
        return draw(st.lists(values, min_size=n, max_size=n))

    tasks = np.array(some(st.integers(1, 100_000)))
    limits = [draw(st.tuples(st.integers(1, t), st.integers(t, 100_000))) for t in tasks.tolist()]
    plain = words.filter(lambda word: "|" not in word)
    return trace_of(
        "t",
        job_id=draw(st.lists(words.filter(bool), min_size=n, max_size=n, unique=True)),
        submit_s=some(seconds),
        duration_s=some(seconds),
        gpus=some(st.one_of(st.integers(0, 65_536), st.floats(0, 1))),
        tasks=tasks,
        min_tasks=[low for low, _ in limits],
        max_tasks=[high for _, high in limits],
        tenant=some(words.map(lambda word: word or "default")),
        user=some(words),
        group=some(words),
        band=some(st.sampled_from([int(band) for band in Band])),
        gpu_models=some(plain),
        cpus=some(st.floats(0, 1e6)),
        memory=sizes_of(some(st.floats(0, 1e9)), "GB"),
        datasets=some(st.lists(plain.filter(bool), unique=True, max_size=3).map("|".join)),
        preemptible=some(st.booleans()),
        checkpoint_interval_s=some(seconds),
        deadline_s=some(st.one_of(seconds, st.just(float("nan")))),
        skew=some(st.one_of(st.floats(0, 1), st.just(float("nan")))),
    )


@settings(max_examples=40, deadline=None)
@given(traces(), st.sampled_from(ENDINGS))
def test_round_trip(trace: Trace, ending: str) -> None:
    """What is written and read again is the same, to the last bit, in every form."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"t{ending}"
        write(trace, path)
        assert_same(read(path), trace)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(FORMATS)), st.binary(max_size=300), st.booleans())
def test_readers_refuse_or_read(format: str, data: bytes, skip: bool) -> None:
    """No bytes make a reader fail otherwise than by saying what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t"
        path.write_bytes(data)
        found = outcome(path, format, skip)
    assert found.isprintable() if isinstance(found, str) else len(found) > 0


HEADS = {
    "topmast": "job_id,submit_s,duration_s,gpus,tasks,band,depends_on",
    "philly": "timestamp,duration,num_gpus,gpu_time,cluster",
    "helios-jobs": "job_id,arrival_s,service_sec,gpu_count",
    "tiresias": "job_id,num_gpu,submit_time,model_name,duration",
    "pai": "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user",
}
values = st.one_of(
    st.sampled_from(["", "0", "1", "-1", "nan", "inf", "1e999", "a", "a|b", "0.5", "2017-10-09 07:01:55"]),
    st.integers(0, 10**12).map(str),
    words.filter(lambda word: not set(word) & set('",\r\n')),
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(sorted(HEADS)))
def test_rows_are_read_refused_or_skipped(data: Any, format: str) -> None:
    """Every row of a file with the right header is a job, or is counted as bad."""
    width = HEADS[format].count(",") + 1
    row = st.lists(values, min_size=width, max_size=width).map(",".join)
    rows = data.draw(st.lists(row.filter(bool), min_size=1, max_size=8))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        path.write_text("\n".join([HEADS[format], *rows]), "utf-8")
        trace = outcome(path, format, True)
    if isinstance(trace, str):
        assert "no row is left" in trace
        return
    assert len(trace) + trace.skipped == len(rows)
    assert np.isfinite(trace.submit_s).all()
    assert (trace.duration_s >= 0).all()
    assert (np.diff(trace.submit_s) >= 0).all()
    assert ((trace.gpus <= 1) | (trace.gpus == np.floor(trace.gpus))).all()


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=20), st.integers(1, 64))
def test_gangs_add_up(counts: list[int], host_gpus: int) -> None:
    """Tasks fit a host, hold what was asked for, and could not be larger."""
    gpus, tasks = gangs(np.array(counts, dtype=np.float64), host_gpus)
    for count, per_task, size in zip(counts, gpus.tolist(), tasks.tolist(), strict=True):
        assert per_task * size == count
        assert per_task <= host_gpus
        larger = range(int(per_task) + 1, min(host_gpus, count) + 1)
        assert all(count % g for g in larger)
