"""What is wrong with a trace is said with file, line and column, whatever the file is made of."""

import gzip
import os
from pathlib import Path

import pytest

from topmast.model.errors import MOST_TOLD, InvalidInput
from topmast.traces import source
from topmast.traces.formats import FORMATS
from topmast.traces.reading import read

HEAD = "job_id,submit_s,duration_s,gpus"


def refusal(path: Path, format: str = "topmast") -> str:
    """The one line by which a file is refused, without the folder."""
    with pytest.raises(InvalidInput) as caught:
        read(path, format)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(f"{path.parent}/", "")


ROWS = [
    ("a number cut off", "a,0,,1", "t.csv:3: duration_s: is missing"),
    ("a row cut off", "a,0,5", "t.csv:3: gpus: the row has 3 columns, and the header names 4 (is the row cut off?)"),
    ("a row too long", "a,0,5,1,9", "t.csv:3: the row has 5 columns, and the header names 4"),
    ("no id", ",0,5,1", "t.csv:3: job_id: is missing"),
    ("time before time", "a,-1,5,1", "t.csv:3: submit_s: '-1' is negative (a number from 0 to 1e+10)"),
    ("not a number", "a,0,NaN,1", "t.csv:3: duration_s: 'NaN' is not a finite number"),
    ("without end", "a,0,inf,1", "t.csv:3: duration_s: 'inf' is not a finite number"),
    ("beyond floats", "a,0,1e999,1", "t.csv:3: duration_s: '1e999' is not a finite number"),
    ("longer than a life", "a,0,1e12,1", "t.csv:3: duration_s: '1e12' is too large"),
    ("a word", "a,0,soon,1", "t.csv:3: duration_s: 'soon' is not a number"),
    ("digits of Python", "a,0,1_000,1", "t.csv:3: duration_s: '1_000' is not a number"),
    ("digits of elsewhere", "a,0,٣,1", "t.csv:3: duration_s: '٣' is not a number"),
    ("hexadecimal", "a,0,0x10,1", "t.csv:3: duration_s: '0x10' is not a number"),
    ("a formula", "a,0,=1+1,1", "t.csv:3: duration_s: '=1+1' is not a number"),
    ("half a GPU too many", "a,0,5,1.5", "t.csv:3: gpus: is more than one and not whole"),
    ("a terminal sequence", "\x1b[31ma,0,5,1", "t.csv:3: job_id: '\\x1b[31ma' has a control character"),
    ("an endless name", f"{'a' * 5000},0,5,1", "t.csv:3: job_id: 'aaaa"),
    ("the same id", "fine,0,5,1", "t.csv:3: job_id: 'fine' is the id of line 2 too"),
    ("a quote never closed", '"a,0,5,1', "t.csv:3: a quote that is opened is never closed"),
    ("a quote too early", '"a"b,0,5,1', "t.csv:3: is not CSV"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "want"), [r[1:] for r in ROWS], ids=[r[0] for r in ROWS])
def test_bad_rows(row: str, want: str, tmp_path: Path) -> None:
    """The first bad row stops the read, with what is wrong and where."""
    path = tmp_path / "t.csv"
    path.write_text(f"{HEAD}\nfine,0,5,1\n{row}\n")
    assert want in refusal(path)


@pytest.mark.parametrize(
    ("end", "want"),
    [
        ("c,-1,5,1", "submit_s"),
        ('"c,0,5,1', 'a quote that is opened is never closed (add the ")'),
    ],
)
def test_all_bad_rows_are_told_at_once(end: str, want: str, tmp_path: Path) -> None:
    """In the order of the file, whatever is wrong with each, over chunks and what ends the read."""
    path = tmp_path / "t.csv"
    many = "".join(f"j{number},{number},5,1\n" for number in range(source.CHUNK_ROWS))
    path.write_text(f"{HEAD}\na,0,,x\nb,0,5\n{many}{end}\n")
    with pytest.raises(InvalidInput) as caught:
        read(path, "topmast")
    told = [str(error).replace(f"{path}:", "") for error in (caught.value, *caught.value.more)]
    assert [line.split(": ")[0:2] for line in told] == [
        ["2", "duration_s"], ["2", "gpus"], ["3", "gpus"], [f"{source.CHUNK_ROWS + 4}", want],
    ]  # fmt: skip


def test_of_very_many_bad_rows_the_first_are_told(tmp_path: Path) -> None:
    """A file of another kind would fill the screen."""
    path = tmp_path / "t.csv"
    path.write_text(f"{HEAD}\n" + "a,0,soon,1\n" * 100)
    with pytest.raises(InvalidInput) as caught:
        read(path, "topmast")
    told = [str(error) for error in (caught.value, *caught.value.more)]
    assert (len(told), told[-1]) == (MOST_TOLD + 1, "and 80 more errors")


def test_the_same_id_is_told_of_each_row(tmp_path: Path) -> None:
    """With the line that has it first."""
    path = tmp_path / "t.csv"
    path.write_text(f"{HEAD}\na,0,5,1\na,1,5,1\nb,2,5,1\nb,3,5,1\n")
    with pytest.raises(InvalidInput) as caught:
        read(path, "topmast")
    lines = [str(error).partition(": ")[0] for error in (caught.value, *caught.value.more)]
    assert lines == [f"{path}:3", f"{path}:5"]


OPTIONAL = [
    ("tasks", "0", "'0' is too small"),
    ("tasks", "1.5", "'1.5' is not whole"),
    ("tasks", "1000000", "'1000000' is too large"),
    ("band", "urgent", "'urgent' is not known (critical, high, normal, low, opportunistic)"),
    ("preemptible", "maybe", "'maybe' is not known"),
    ("speeds", "1|0.5", "are not one positive number for each GPU model"),
    ("min_tasks", "2", "is above tasks"),
    ("datasets", "a||b", "has an empty part"),
    ("datasets", "a|a", "has an empty part, or one twice"),
    ("deadline_s", "-5", "is negative"),
    ("expected_s", "soon", "is not a time, and times from parts of the work on"),
    ("expected_s", "0", "is not a time"),
    ("expected_s", "5|0.5", "is not a time"),
    ("expected_s", "5|0.5:6|0.4:7", "is not a time"),
    ("expected_s", "5|1:6", "is not a time"),
    ("expected_s", "5|0.5:nan", "is not a time"),
    ("more_tasks", "4", "is not a list of tasks (4x0/8/32|1x4 for four tasks"),
    ("more_tasks", "0x1", "is not a list of tasks"),
    ("more_tasks", "1x1.5", "is not a list of tasks"),
    ("more_tasks", "1x1/2/3/4", "is not a list of tasks"),
    ("more_tasks", "1x-1", "is not a list of tasks"),
    ("more_tasks", "1x1|", "is not a list of tasks"),
    ("more_tasks", "1_0x1", "is not a list of tasks"),
    ("depends_on", "nobody", "'nobody' is no job of this trace"),
    ("depends_on", "a", "the job waits, in a circle, for itself"),
]


@pytest.mark.parametrize(("column", "value", "want"), OPTIONAL)
def test_bad_optional_values(column: str, value: str, want: str, tmp_path: Path) -> None:
    """What may be left out may not be wrong."""
    path = tmp_path / "t.csv"
    path.write_text(f"{HEAD},{column}\na,0,5,1,{value}\n")
    found = refusal(path)
    assert found.startswith(f"t.csv:2: {column}: ")
    assert want in found


HEADERS = [
    ("another format", "timestamp,duration,num_gpus,gpu_time,cluster", "job_id: the column is missing (this looks like --format philly)"),
    ("a slip", f"{HEAD},tennant", "no column 'tennant' is known (did you mean 'tenant'?)"),
    ("a column twice", f"{HEAD},gpus", "'gpus' names two columns"),
    ("no header", "a,0,5,1", "job_id: the column is missing (the columns are 'a', '0', '5', '1')"),
]  # fmt: skip


@pytest.mark.parametrize(("header", "want"), [h[1:] for h in HEADERS], ids=[h[0] for h in HEADERS])
def test_bad_headers(header: str, want: str, tmp_path: Path) -> None:
    """A header that does not fit says what does."""
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\na,0,5,1,2\n")
    assert refusal(path) == f"t.csv:1: {want}" or refusal(path).startswith(f"t.csv:1: {want}")


def test_all_that_is_wrong_with_a_header_is_told_at_once(tmp_path: Path) -> None:
    """What is missing, with the column that may be meant by it; what comes twice; what is not known."""
    path = tmp_path / "t.csv"
    path.write_text("job_id,submit_s,duration,user,user,tennant\na,0,5,u,u,t\n")
    with pytest.raises(InvalidInput) as raised:
        read(path)
    assert [error.line().removeprefix(f"{path}:1: ") for error in (raised.value, *raised.value.more)] == [
        "duration_s: the column is missing (is it 'duration'?)",
        "gpus: the column is missing (the columns are 'job_id', 'submit_s', 'duration', 'user', 'user', 'tennant')",
        "'user' names two columns (remove or rename one)",
        "no column 'tennant' is known (did you mean 'tenant'?)",
    ]  # fmt: skip


FILES = [
    ("empty", b"", "the file is empty"),
    ("blank", b"\n\n \n"[:2], "the file is empty"),
    ("header alone", HEAD.encode(), "has a header, but no rows"),
    ("zeros", bytes(1000), "t.csv:1: this is a binary file, not text"),
    ("an executable", b"\x7fELF\x02\x01\x01" + bytes(64), "binary"),
    ("latin", f"{HEAD}\nb\xe9,0,5,1\n".encode("latin-1"), "t.csv:2: this is not UTF-8 text"),
    ("UTF-16", f"{HEAD}\n".encode("utf-16"), "is UTF-16 text"),
    ("zip", b"PK\x03\x04" + bytes(64), "is a zip archive"),
    ("tar", bytes(257) + b"ustar" + bytes(300), "is a tar archive"),
    ("not Parquet", b"PAR1 and no more", "is no Parquet"),
    ("gzip cut off", gzip.compress(f"{HEAD}\n".encode() + os.urandom(900).hex().encode())[:-40], "ends in the middle"),
    ("gzip damaged", gzip.compress(b"x" * 100, mtime=0)[:-8] + bytes(8), "is damaged"),
    ("line ends of old", f"{HEAD}\ra,0,5,1\r".encode(), "t.csv:1: a carriage return stands alone (end lines with line feeds)"),
    ("one endless line", b"a" * (source.MAX_LINE_BYTES + 2 * 2**18), "t.csv:1: a line is longer than 1 MiB"),
]  # fmt: skip


@pytest.mark.parametrize(("data", "want"), [f[1:] for f in FILES], ids=[f[0] for f in FILES])
def test_files_that_are_something_else(data: bytes, want: str, tmp_path: Path) -> None:
    """A file is judged by what it holds, and refused by what it is."""
    path = tmp_path / "t.csv"
    path.write_bytes(data)
    assert want in refusal(path)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    "data", [b"", b"\n\n", bytes(100), b"x\n", b",,,\n" * 50, b"\t" * 9 + b"\n"]
)
def test_no_format_falls_over(format: str, data: bytes, tmp_path: Path) -> None:
    """Whatever the format, rubbish is refused and never a fault of the reader."""
    path = tmp_path / "t"
    path.write_bytes(data)
    assert refusal(path, format)


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    """A folder, a pipe and nothing at all are refused at once."""
    os.mkfifo(tmp_path / "pipe")
    assert "is a folder" in refusal(tmp_path)
    assert "is a pipe" in refusal(tmp_path / "pipe")
    assert "no such file" in refusal(tmp_path / "nothing")


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small gzipped file that expands beyond reason is left before it fills the memory."""
    monkeypatch.setattr(source, "SMALL_BYTES", 2**20)
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(f"{HEAD}\n".encode() + b"j,0,5,1\n" * 2**20))
    assert "expands to more than" in refusal(path)


def test_too_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is an end to how many rows are read."""
    monkeypatch.setattr(source, "MAX_ROWS", 100)
    path = tmp_path / "t.csv"
    path.write_text(f"{HEAD}\n" + "j,0,5,1\n" * 101)
    assert "has more than 100 rows" in refusal(path)


def test_lines_are_counted_as_an_editor_does(tmp_path: Path) -> None:
    """Blank lines and quoted line breaks do not confuse the number of the line."""
    path = tmp_path / "t.csv"
    path.write_text(f'{HEAD},group\n\na,0,5,1,"x"\n\n\nb,0,5,1,\nc,0,five,1,\n')
    assert refusal(path).startswith("t.csv:7: duration_s: 'five'")
    path.write_text(f'{HEAD},group\na,0,5,1,"x\ny"\nb,0,5,1,\n')
    assert refusal(path).startswith("t.csv:2: group: 'x\\ny' has a control character")


def test_the_first_bad_row_is_the_one_reported(tmp_path: Path) -> None:
    """A row that is cut off does not hide a bad one above it, nor a late chunk an early one."""
    path = tmp_path / "t.csv"
    good = "".join(f"j{i},0,5,1\n" for i in range(source.CHUNK_ROWS + 10))
    path.write_text(f"{HEAD}\n{good}x,0,-5,1\ny,0\n")
    line = source.CHUNK_ROWS + 12
    assert refusal(path).startswith(f"t.csv:{line}: duration_s: '-5' is negative")


def test_skipping_bad_rows(tmp_path: Path) -> None:
    """What is bad is left out and counted: each row once, those that depend on it too."""
    path = tmp_path / "t.csv"
    path.write_text(
        f"{HEAD},depends_on\n"
        "a,0,5,1,\n"
        "b,0\n"  # cut off
        "c,-1,-5,-1,\n"  # wrong three times
        "d,0,5,1.5,\n"  # breaks a rule
        "a,1,5,1,\n"  # an id again
        "e,2,5,1,d\n"  # waits for what is left out
        "f,3,5,1,e\n"  # waits for that
        "g,4,5,1,a\n"
    )
    trace = read(path, skip_bad_rows=True)
    assert (trace.job_id, trace.skipped) == (["a", "g"], 6)


def test_when_every_row_is_bad(tmp_path: Path) -> None:
    """A trace without jobs is an error even then."""
    path = tmp_path / "t.csv"
    path.write_text(f"{HEAD}\na,x,5,1\n")
    with pytest.raises(InvalidInput, match="no row is left: all are bad"):
        read(path, skip_bad_rows=True)


def test_what_a_spreadsheet_writes(tmp_path: Path) -> None:
    """A byte order mark, line ends of Windows, spaces around names and quotes around all do no harm."""
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"job_id", submit_s ,duration_s,gpus\r\n"a","1","5.5","0.25"\r\n')
    trace = read(path)
    assert (trace.job_id, float(trace.gpus[0])) == (["a"], 0.25)


def test_gzipped_under_any_name(tmp_path: Path) -> None:
    """Whether a file is gzipped is seen from the file."""
    path = tmp_path / "t.csv"
    path.write_bytes(gzip.compress(f"{HEAD}\na,0,5,1\n".encode()))
    assert read(path).job_id == ["a"]


def test_unknown_format(tmp_path: Path) -> None:
    """The error lists those that are known."""
    with pytest.raises(InvalidInput, match=r"format: no format 'slurm' is known \(topmast, pai, "):
        read(tmp_path, "slurm")


BAD = [
    ("philly", "timestamp,duration,num_gpus,gpu_time,cluster\n2017-02-31 00:00:00,1,1,1,x\n", "t.csv:2: timestamp: '2017-02-31 00:00:00' is not a time"),
    ("philly", "timestamp,duration,num_gpus,gpu_time,cluster\nnow,1,1,1,x\n", "t.csv:2: timestamp: 'now' is not a time"),
    ("openb", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\np,1,1,1,500,,LS,R,9,8,9\n", "t.csv:2: deletion_time: is before the pod was created or placed"),
    ("openb", "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\np,1,1,2,500,,LS,R,0,8,1\n", "t.csv:2: gpu_milli: is a share of several GPUs"),
    ("pai", "j,worker,1,Terminated,5,1,600,1,100,T4\n", "t.csv:1: end_time: is before start_time"),
    ("pai", "j,worker,1,Terminated,5,,600,1,100,T4\n", "t.csv:1: end_time: is missing from a task that ended"),
    ("pai", "j,worker,1,Running,5,,600,1,100,T4\n", "t.csv: no task has begun and ended"),
    ("pai", "j,worker,1,Terminated,5,6,600,1,-100,T4\n", "t.csv:1: plan_gpu: '-100' is negative"),
    ("sia", "name,time,application,num_replicas,batch_size\na,0,unheard,1,1\n", "t.csv:2: application: has no known run time (add a column duration, in seconds)"),
    ("gavel", "LM\tc\td\t-s\t1\t300\t0\t1\t-1\t0\n", "t.csv:1: scale_factor: '0' is too small"),
    ("gavel", "LM\tc\td\t-s\t1\t300\t1\n", "t.csv:1: priority_weight: the row has 7 columns, and the format has 10"),
]  # fmt: skip


@pytest.mark.parametrize(("format", "text", "want"), BAD)
def test_bad_rows_of_public_formats(format: str, text: str, want: str, tmp_path: Path) -> None:
    """The readers of public formats name the columns of those formats."""
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert want in refusal(path, format)


THROUGHPUTS = [
    ("[]", "is no mapping of GPU models"),
    ("{", "is not JSON"),
    ('{"v100": {"ResNet": {}}}', "v100.ResNet: names no job type"),
    ('{"v100": {"(\'LM\', 1)": {"null": -1}}}', "'-1' is no rate"),
    ('{"v100": {"(\'LM\', 1)": {"null": NaN}}}', "'nan' is no rate"),
    ('{"v100": {"(\'LM\', 1)": {"null": 1, "(\'LM\', 1)": 5}}}', "is not a pair of numbers"),
    ("[" * 100_000, "is not JSON"),
]


@pytest.mark.parametrize(("text", "want"), THROUGHPUTS)
def test_bad_throughputs(text: str, want: str, tmp_path: Path) -> None:
    """A table of throughputs is refused by file and field."""
    (tmp_path / "t.trace").write_text("LM\tc\td\t-s\t1\t300\t1\t1\t-1\t0\n")
    (tmp_path / "simulation_throughputs.json").write_text(text)
    assert want in refusal(tmp_path / "t.trace", "gavel")
