"""Batch scripts of Slurm as job files."""

import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topmast.importers.sbatch import import_sbatch
from topmast.model.errors import InvalidInput
from topmast.model.files.jobfile import parse_job

SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=llama
#SBATCH -N 4 --ntasks-per-node=8
#SBATCH --gres=gpu:H100:8
#SBATCH --cpus-per-task 12
#SBATCH --mem=512G
#SBATCH -t 2-00:00:00
#SBATCH -p gpu
#SBATCH --frobnicate
##SBATCH -N 9

module load cuda
#SBATCH --nodes=7
srun --kill-on-bad-exit=1 -u \\
   python train.py --rank $SLURM_PROCID
"""


def test_a_script_becomes_a_job() -> None:
    """A task for each of Slurm's; what is lost is said with its line and what to do."""
    found = import_sbatch(SCRIPT.encode(), "a.sbatch")
    job = dict(found.job)
    run = job.pop("run")
    assert job == {
        "name": "llama", "num_nodes": 32, "time_limit": 172_800,
        "resources": {"accelerators": "H100:1", "cpus": 12, "memory": "65536MiB"},
    }  # fmt: skip
    parse_job(found.job)
    assert run.endswith(
        "module load cuda\n#SBATCH --nodes=7\n\\\n   python train.py --rank $SLURM_PROCID\n"
    )
    assert [(note.line, note.field) for note in found.notes] == [
        (0, "script"), (4, "--gres"), (8, "--partition"), (9, "--frobnicate"),
    ]  # fmt: skip
    assert found.notes[2].of("a.sbatch").startswith("a.sbatch:8: --partition: is left out (Topmast")


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ("-N2 --gpus-per-node=4", {"num_nodes": 2, "resources": {"accelerators": 4}}),
        ("-n 16 -N 2 -G 16", {"num_nodes": 16, "resources": {"accelerators": 1}}),
        ("-n16 --ntasks-per-node=8 --gpus-per-task=a100:1",
         {"num_nodes": 16, "resources": {"accelerators": "a100:1"}}),
        ("--ntasks-per-node=4 --gres=gpu:1", {"num_nodes": 4, "resources": {"accelerators": 0.25}}),
        ("-N 2-4 --gres=gpu:8", {"min_nodes": 2, "max_nodes": 4, "resources": {"accelerators": 8}}),
        ("--mem-per-cpu=4000 -c 8", {"resources": {"cpus": 8, "memory": "32000MiB"}}),
        ("--mem-per-gpu=80G --gpus=2", {"resources": {"accelerators": 2, "memory": "163840MiB"}}),
        ("-t 90", {"time_limit": 5400}),
        ("--time=1:30", {"time_limit": 90}),
        ("--time=1:00:30", {"time_limit": 3630}),
        ("--time=1-2", {"time_limit": 93_600}),
        ("--no-requeue", {"max_restarts": 0}),
        ("--signal=B:USR1@120", {"checkpoint": {"grace": 120}}),
        ("-A vision", {"tenant": "vision"}),
        ("--container-image=nvcr.io#nvidia/pytorch:24", {"image": "nvcr.io/nvidia/pytorch:24"}),
        ("--chdir=src", {"workdir": "src"}),
    ],
)  # fmt: skip
def test_options_become_fields(options: str, want: dict[str, Any]) -> None:
    """In all their spellings."""
    found = import_sbatch(f"#!/bin/sh\n#SBATCH {options}\nsrun true\n".encode(), "x").job
    parse_job(found)
    del found["run"]
    assert found == want


INDEX = "SLURM_ARRAY_TASK_ID"


@pytest.mark.parametrize("option", ["--gres=gpu:2", "--gpus-per-node=2"])
def test_gpus_of_a_node_that_its_tasks_share_are_told(option: str) -> None:
    """Here each has a part of one; where each has one of its own there is nothing to tell."""
    found = import_sbatch(f"#SBATCH -n 8 --ntasks-per-node=4 {option}\nsrun a\n".encode(), "x")
    assert found.job["resources"] == {"accelerators": 0.5}
    name = option.partition("=")[0]
    assert [note.message for note in found.notes if note.field == name] == [
        "the 4 tasks of a node share its GPUs: 0.5 each"
    ]
    alone = import_sbatch(f"#SBATCH -n 8 --ntasks-per-node=2 {option}\nsrun a\n".encode(), "x")
    assert not [note for note in alone.notes if note.field == name]


@pytest.mark.parametrize(
    ("array", "want", "bounds"),
    [
        ("0-9%2", {"max_parallel": 2, "range": {"variable": INDEX, "from": 0, "to": 9, "step": 1}}, "0 9"),
        ("0-15:4", {"range": {"variable": INDEX, "from": 0, "to": 12, "step": 4}}, "0 12"),
        ("7", {"range": {"variable": INDEX, "from": 7, "to": 7, "step": 1}}, "7 7"),
        ("5-6,1,5", {"list": [{INDEX: 1}, {INDEX: 5}, {INDEX: 6}]}, "1 6"),
    ],
)  # fmt: skip
def test_a_job_array_becomes_a_sweep(array: str, want: dict[str, Any], bounds: str) -> None:
    """With as many at a time, and the variables that its tasks know."""
    script = f"#SBATCH --array={array}\necho $SLURM_ARRAY_TASK_MIN $SLURM_ARRAY_TASK_MAX "
    script += "$SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_COUNT\n"
    found = import_sbatch(script.encode(), "x")
    assert (found.job["sweep"], found.notes) == (want, ())
    parse_job(found.job)
    envs = {
        "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "TOPMAST_JOB_ID": "j9",
        "TOPMAST_HOSTS": "a", "TOPMAST_EPOCH": "1", "TOPMAST_SWEEP": "s7",
        "TOPMAST_SWEEP_SIZE": "3", "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", found.job["run"]], env=envs, capture_output=True, text=True
    )
    assert done.stdout == f"{bounds} 7 3\n", done.stderr


@pytest.mark.parametrize("array", ["", "x", "9-0", "0-9%", "0-9%0", "1,,2", "0-4:0", "0-200000"])
def test_an_array_that_is_not_understood_is_noted(array: str) -> None:
    """The job is one then, and the note says what to write."""
    found = import_sbatch(f"#SBATCH --array={array}\ntrue\n".encode(), "x")
    assert "sweep" not in found.job
    assert [note.field for note in found.notes] == ["--array"]
    assert "sweep: {range:" in found.notes[0].remedy


def test_what_a_script_waits_for_is_noted_with_what_to_write() -> None:
    """Jobs of Slurm have other ids here; a condition that there is not here is said to be none."""
    script = b"#SBATCH -d afterok:12:13,afterany:14,singleton\ntrue\n"
    found = import_sbatch(script, "x")
    assert "depends_on" not in found.job
    assert [(note.message, note.remedy) for note in found.notes] == [
        ("afterok:12:13 is left out",
         "write depends_on: [{job: ID, after: ok}] with the id that it has here"),
        ("afterany:14 is left out",
         "write depends_on: [{job: ID, after: any}] with the id that it has here"),
        ("singleton is left out",
         "a job can wait until others have started, ended or succeeded: depends_on"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "want"),
    [
        ("srun python a.py -n 3", "python a.py -n 3"),
        ("srun -n 4 --gres gpu:1 -l python a.py", "python a.py"),
        ("echo a && srun --mpi=pmix 'my prog'", "echo a && 'my prog'"),
        ("if srun true; then exec srun -N1 b; fi", "if true; then exec b; fi"),
        ("# srun is not used\necho srun", "# srun is not used\necho srun"),
        ("srunner --x", "srunner --x"),
    ],
)
def test_srun_is_left_out(command: str, want: str) -> None:
    """With its options: here each task runs the script."""
    run = import_sbatch(f"#!/bin/sh\n{command}\n".encode(), "x").job["run"]
    assert run.endswith(f"\n{want}\n")


def test_a_script_that_slurm_would_run_once_is_noted() -> None:
    """Only where there are several tasks."""
    found = import_sbatch(b"#SBATCH -N 2\npython a.py\n", "x")
    assert found.notes[0].message == "Slurm runs it once; here each of 2 tasks does"
    assert import_sbatch(b"#SBATCH -N 1\npython a.py\n", "x").notes == ()


@pytest.mark.parametrize(
    ("option", "want"),
    [
        ("--cpus-per-task=8", "8 job"),
        ("--cpus-per-task=eight", "1 job"),
        ('--cpus-per-task="8; touch FILE"', "1 job"),
        ("--cpus-per-task=$(touch${IFS}FILE)", "1 job"),
        ('--job-name="a; touch FILE"', "1 a; touch FILE"),
    ],
)
def test_no_value_of_an_option_is_run_as_a_command(option: str, want: str, tmp_path: Path) -> None:
    """One that is left out is not in the script, and one that is there is a text."""
    file = tmp_path / "made"
    line = option.replace("FILE", str(file))
    script = f'#!/bin/bash\n#SBATCH {line}\necho "$SLURM_CPUS_PER_TASK $SLURM_JOB_NAME"\n'
    run = import_sbatch(script.encode(), "x").job["run"]
    envs = {"RANK": "0", "TOPMAST_EPOCH": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["bash", "-c", run], env=envs, capture_output=True, text=True)
    assert done.stdout == want.replace("FILE", str(file)) + "\n"
    assert not file.exists()


def test_the_variables_of_slurm_are_there() -> None:
    """In a real shell that is as strict as the one of tasks."""
    script = "#SBATCH -J 'a b' -N 2 --ntasks-per-node=2 --gres=gpu:4\nfalse\necho $UNSET\n"
    script += "echo $SLURM_PROCID $SLURM_NTASKS $SLURM_NODEID $SLURM_JOB_ID $SLURM_JOB_NODELIST "
    script += '$SLURM_NNODES $SLURM_GPUS_ON_NODE $SLURM_RESTART_COUNT "$SLURM_JOB_NAME"\n'
    run = import_sbatch(script.encode(), "x").job["run"]
    envs = {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TOPMAST_JOB_ID": "j7",
        "TOPMAST_HOSTS": "a,b", "TOPMAST_EPOCH": "2", "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", run],
        env=envs,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["3", "4", "1", "7", "a,b", "2", "4", "1", "a", "b"]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xfe", "not UTF-8"),
        (b"#" * 200_000, "larger than"),
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"#!/bin/sh\necho \0\n", "binary file"),
        (b"#!/bin/sh\n" + b"#" * 5_000 + b"\necho \0\n", "NUL"),
        (bytes(200_000), "binary file"),
        (b"a letter to a friend\n", "does not look like a batch script"),
        (b"#!/bin/bash\n#SBATCH -N 2\n\n# later\n", "has no command"),
    ],
)
def test_what_is_no_script_is_refused(data: bytes, why: str) -> None:
    """By one error that says why."""
    with pytest.raises(InvalidInput, match=why):
        import_sbatch(data, "x")


def test_a_script_in_another_language_is_run_by_its_interpreter() -> None:
    """As sbatch runs it; its lines are no shell's."""
    script = "#!/usr/bin/env python3\n#SBATCH -J a\nimport os\nprint(os.environ['SLURM_PROCID'], '$HOME')\n"
    run = import_sbatch(script.encode(), "x").job["run"]
    envs = {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TOPMAST_JOB_ID": "j7",
        "TOPMAST_HOSTS": "a,b", "TOPMAST_EPOCH": "2", "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", run], env=envs, capture_output=True, text=True
    )
    assert done.stdout == "3 $HOME\n", done.stderr
    assert "mktemp" not in run
    wrapped = import_sbatch(b'#!/bin/bash\n#SBATCH --wrap="echo a"\n', "x").job["run"]
    assert wrapped.endswith("echo a\n")


@pytest.mark.parametrize(
    "name",
    [
        "nodes", "ntasks", "ntasks-per-node", "gpus", "gpus-per-node", "ntasks-per-gpu",
        "cpus-per-task", "mem", "time",
    ],
)  # fmt: skip
@pytest.mark.parametrize("number", ["9" * 400, "9" * 5_000])
def test_a_number_without_bounds_is_noted_and_left_out(name: str, number: str) -> None:
    """No machine has so many."""
    found = import_sbatch(f"#!/bin/bash\n#SBATCH --{name}={number}\nsrun x\n".encode(), "x")
    assert number in str(found.notes)
    assert found.job.keys() == {"run"}


def test_no_task_for_a_gpu_is_noted_and_left_out() -> None:
    """It would be a GPU without end."""
    found = import_sbatch(b"#!/bin/bash\n#SBATCH --ntasks-per-gpu=0\nsrun x\n", "x")
    assert "--ntasks-per-gpu" in str(found.notes)
    assert found.job.keys() == {"run"}


@given(st.lists(st.text("-=:#SBATCHgpunrs0123 '\"\\\n@,", max_size=30), max_size=8))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    """Nothing but InvalidInput is raised."""
    with suppress(InvalidInput):
        import_sbatch("\n".join(f"#SBATCH {line}" for line in lines).encode(), "x")


@pytest.mark.parametrize(
    ("first", "want"),
    [
        ("#!/bin/bash -e", 1),
        ("#!/usr/bin/env -S bash -eu", 1),
        ("#!/bin/bash", 0),
        ("#!/bin/bash -o errexit", 1),
    ],
)
def test_the_options_of_the_shell_hold(first: str, want: int) -> None:
    """A script that would fail under Slurm fails here."""
    found = import_sbatch(f"{first}\n#SBATCH -J a\nfalse\ntrue\n".encode(), "x")
    envs = {
        "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "TOPMAST_JOB_ID": "j7",
        "TOPMAST_HOSTS": "a,b", "TOPMAST_EPOCH": "2", "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    assert (
        subprocess.run(["bash", "-c", found.job["run"]], env=envs, check=False).returncode == want
    )
    assert not found.notes


def test_an_option_of_the_shell_that_is_lost_is_noted() -> None:
    """A login shell reads files that a task's shell does not."""
    (note,) = import_sbatch(b"#!/bin/bash -l\nmodule load cuda\n", "x").notes
    assert (note.line, note.field) == (1, "#!")
    assert "-l are left out" in note.message


@pytest.mark.parametrize("first", ["#!/bin/sh; rm -rf x", "#!", "#!python3", '#!/usr/bin/"x'])
def test_a_first_line_that_names_no_program_is_refused(first: str) -> None:
    """Linux would run nothing by it; nothing of it reaches the shell."""
    with pytest.raises(InvalidInput, match="names no program"):
        import_sbatch(f"{first}\necho a\n".encode(), "x")


def test_what_follows_a_program_is_one_argument() -> None:
    """As Linux hands it over, and never a command of the shell."""
    run = import_sbatch(b"#!/usr/bin/perl -w $(touch x)\nprint 1;\n", "x").job["run"]
    assert "exec /usr/bin/perl '-w $(touch x)' /dev/fd/3 3<<" in run
    run = import_sbatch(b"#!/usr/bin/env -S python3 -u\nprint(1)\n", "x").job["run"]
    assert "exec /usr/bin/env -S python3 -u /dev/fd/3 3<<" in run


def test_texts_within_a_script_stay_as_they_are() -> None:
    """A script that writes another one: its lines are no options, and its srun is not ours."""
    inner = "#!/bin/bash\n#SBATCH --nodes=4\nsrun inside\nEOF\n"
    script = f"#!/bin/bash\n#SBATCH -J a\ncat > other.sh <<EOF\n{inner}srun -n 1 sh other.sh\n"
    run = import_sbatch(script.encode(), "x").job["run"]
    assert run.endswith(f"cat > other.sh <<EOF\n{inner}sh other.sh\n")
    python = '#!/usr/bin/python3\nx = """\n#SBATCH --nodes=3\n"""\n'
    assert '"""\n#SBATCH --nodes=3\n"""\n' in import_sbatch(python.encode(), "x").job["run"]


def test_an_option_with_a_slip_is_told_with_the_nearest() -> None:
    """As of all names."""
    found = import_sbatch(b"#!/bin/sh\n#SBATCH --tmie=1:00 --frobnicate\ntrue\n", "x")
    assert [note.of("x") for note in found.notes] == [
        "x:2: --tmie: is not known here and is left out (did you mean 'time'?)",
        "x:2: --frobnicate: is not known here and is left out",
    ]
