"""What is written can be read again, and is the same."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from topmast.model.errors import InvalidInput
from topmast.traces.reading import read
from topmast.traces.trace import COLUMNS, Texts, Trace, trace_of
from topmast.traces.writing import write

SAMPLES = Path(__file__).parent / "samples"
ENDINGS = [".csv", ".csv.gz", ".parquet"]


def assert_same(left: Trace, right: Trace) -> None:
    """Every column is equal, bit for bit."""
    for name in COLUMNS:
        a, b = getattr(left, name), getattr(right, name)
        if isinstance(a, Texts):
            assert a.values() == b.values(), name
        elif isinstance(a, list):
            assert a == b, name
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


@pytest.mark.parametrize("ending", ENDINGS)
def test_everything_comes_back(ending: str, tmp_path: Path) -> None:
    """A trace that uses every column survives being written and read."""
    trace = read(SAMPLES / "topmast.csv")
    path = tmp_path / f"t{ending}"
    write(trace, path)
    assert_same(read(path), trace)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_trace_is_the_same_file(ending: str, tmp_path: Path) -> None:
    """No time and no path gets into a file."""
    trace = read(SAMPLES / "topmast.csv")
    paths = [tmp_path / f"{name}{ending}" for name in ("a", "b")]
    for path in paths:
        write(trace, path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_defaults_are_not_written(tmp_path: Path) -> None:
    """A column that says nothing is left out."""
    path = tmp_path / "t.csv"
    write(trace_of("t", submit_s=[0], duration_s=[0.1], gpus=[8]), path)
    assert path.read_text() == "job_id,submit_s,duration_s,gpus\n0,0,0.1,8\n"


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    """A folder that is not there, or a folder in place of the file, is an error with the path."""
    trace = trace_of("t", submit_s=[0], duration_s=[1], gpus=[8])
    with pytest.raises(InvalidInput, match=r"no/t\.csv: cannot be written: No such file"):
        write(trace, tmp_path / "no" / "t.csv")
    with pytest.raises(InvalidInput, match="is a folder"):
        write(trace, tmp_path)


def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there stays until what replaces it is complete."""
    path = tmp_path / "t.csv"
    path.write_text("old")
    broken = trace_of("t", submit_s=[0], duration_s=[1], gpus=[8], user=["\ud800"])
    with pytest.raises(UnicodeEncodeError):
        write(broken, path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]


def test_parquet_holds_numbers(tmp_path: Path) -> None:
    """Other programs find numbers as numbers, and nothing where there is no value."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "t.parquet"
    write(read(SAMPLES / "topmast.csv"), path)
    rows = parquet.read_table(path).to_pylist()
    assert rows[0]["deadline_s"] == 86400.0
    assert rows[1]["deadline_s"] is None
    assert rows[0]["tasks"] == 2
    assert rows[0]["band"] == "high"


def test_parquet_of_others(tmp_path: Path) -> None:
    """Columns may be of any numeric type, text may be dictionary-encoded; a bad row is named by number."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    path = tmp_path / "t.parquet"
    columns = {
        "job_id": arrow.array(["a", "b"]).dictionary_encode(),
        "submit_s": arrow.array([0, 5], type=arrow.int32()),
        "duration_s": arrow.array([0.1, 7.0]),
        "gpus": arrow.array([1, 2], type=arrow.uint8()),
        "preemptible": arrow.array([True, False]),
    }
    parquet.write_table(arrow.table(columns), path)
    trace = read(path)
    assert trace.duration_s.tolist() == [0.1, 7.0]
    assert trace.preemptible.tolist() == [True, False]
    columns["duration_s"] = arrow.array([0.1, -7.0])
    parquet.write_table(arrow.table(columns), path)
    with pytest.raises(InvalidInput, match=r"t\.parquet:2: duration_s: '-7\.0' is negative"):
        read(path)
    columns["duration_s"] = arrow.array([[1.0], [2.0]])
    parquet.write_table(arrow.table(columns), path)
    with pytest.raises(InvalidInput, match=r"duration_s: is of type list"):
        read(path)


def test_without_pyarrow(tmp_path: Path) -> None:
    """Parquet without pyarrow is an error that says what to install; CSV needs nothing."""
    program = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from pathlib import Path\n"
        "from topmast.traces.reading import read\n"
        "from topmast.traces.writing import write\n"
        "trace = read(Path(sys.argv[1]))\n"
        "write(trace, Path(sys.argv[2]) / 't.csv')\n"
        "try: write(trace, Path(sys.argv[2]) / 't.parquet')\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    arguments = [sys.executable, "-c", program, str(SAMPLES / "topmast.csv"), str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert "InvalidInput" in done.stdout
    assert "pip install 'topmast[parquet]'" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["t.csv"]
