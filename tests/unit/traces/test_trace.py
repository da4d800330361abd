"""A trace in memory: order, cuts, load, gangs."""

import numpy as np
import pytest

from topmast.model.errors import InvalidInput
from topmast.model.units import bytes_of_gb, parse_memory_gb
from topmast.traces.trace import Texts, Trace, gangs, sizes_of, texts_of, trace_of


def trace() -> Trace:
    """Three jobs at 0, 10 and 20 s, given out of order."""
    return trace_of(
        "t", submit_s=[20.0, 0.0, 10.0], duration_s=[1, 2, 3], gpus=[1, 2, 4],
        job_id=["c", "a", "b"], tenant=["x", "y", "x"],
    )  # fmt: skip


def test_jobs_stand_in_the_order_of_submission() -> None:
    """Every column is put in order with the times; what was not given has its default."""
    found = trace()
    assert found.job_id == ["a", "b", "c"]
    assert found.duration_s.tolist() == [2, 3, 1]
    assert found.tenant.values() == ["y", "x", "x"]
    assert found.tasks.tolist() == found.max_tasks.tolist() == [1, 1, 1]
    assert np.isnan(found.deadline_s).all()


def test_jobs_of_one_instant_keep_the_order_of_the_file() -> None:
    """Order within an instant is that of the rows."""
    found = trace_of("t", submit_s=[5, 5, 0, 5], duration_s=[0] * 4, gpus=[1] * 4)
    assert found.job_id == ["2", "0", "1", "3"]


def test_cuts() -> None:
    """A part by number, and a part by time, whose beginning is included and whose end is not."""
    assert trace().head(2).job_id == ["a", "b"]
    assert trace().head(9).job_id == ["a", "b", "c"]
    part = trace().between(10, 20)
    assert (part.job_id, part.submit_s.tolist()) == (["b"], [0])
    assert trace().between(5).submit_s.tolist() == [5, 15]
    assert len(trace().between(30)) == 0


def test_load() -> None:
    """Twice the load is half the time between arrivals; how long jobs run stays."""
    twice = trace().with_load(2)
    assert twice.submit_s.tolist() == [0, 5, 10]
    assert twice.duration_s.tolist() == trace().duration_s.tolist()


@pytest.mark.parametrize("load", [0, -1, float("nan"), float("inf"), 1e-320, 1e-9])
def test_no_load(load: float) -> None:
    """A load is a factor above zero."""
    with pytest.raises(InvalidInput, match="load"):
        trace().with_load(load)


GANGS = [(0, 0, 1), (0.25, 0.25, 1), (8, 8, 1), (12, 6, 2), (16, 8, 2), (61, 1, 61), (100, 5, 20), (1.5, 2, 1)]  # fmt: skip


@pytest.mark.parametrize(("count", "per_task", "tasks"), GANGS)
def test_gangs(count: float, per_task: float, tasks: int) -> None:
    """One task if a host of eight holds it, else equal tasks as large as a host allows."""
    found = gangs(np.array([count]), 8)
    assert (found[0].tolist(), found[1].tolist()) == ([per_task], [tasks])


def test_texts() -> None:
    """A column of text knows each name once, and how often it comes."""
    column = texts_of(["b", "a", "b"])
    assert column.names == ["b", "a"]
    assert column.counts() == {"b": 2, "a": 1}
    assert [column[1], *column.take(np.array([0, 2])).values()] == ["a", "b", "b"]
    assert Texts(np.array([0], np.int32), ["x", "unused"]).counts() == {"x": 1}


def test_columns_that_do_not_exist() -> None:
    """A slip in a column's name is not passed over."""
    with pytest.raises(TypeError, match="tennant"):
        trace_of("t", submit_s=[0], duration_s=[0], gpus=[1], tennant="x")


@pytest.mark.parametrize(
    ("unit", "size_bytes"), [("GB", 10**9), ("GiB", 2**30), ("MiB", 2**20), ("MB", 10**6)]
)
def test_memory_has_a_unit(unit: str, size_bytes: int) -> None:
    """A job of 64 units asks for exactly what a host of 64 units has in a fleet file."""
    found = trace_of(
        "t", submit_s=[0.0], duration_s=[1.0], gpus=[1],
        memory=sizes_of([64.0], unit), gpu_memory=sizes_of([2.0], unit),
    )  # fmt: skip
    sizes = [bytes_of_gb(x) for x in (found.memory_gb[0], found.gpu_memory_gb[0])]
    assert sizes == [64 * size_bytes, 2 * size_bytes]
    assert sizes[0] == parse_memory_gb(f"64{unit}")


def test_memory_without_a_unit_is_refused() -> None:
    """A reader that forgets it fails with its first job."""
    with pytest.raises(TypeError, match="no such column: memory_gb"):
        trace_of("t", submit_s=[0.0], duration_s=[1.0], gpus=[1], memory_gb=[64.0])
    with pytest.raises(ValueError, match="GIB is no unit of memory: B, kB"):
        sizes_of([64.0], "GIB")
