"""What is handed to sbatch, and what its script does on a host."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from topmast.adapters.engines.far.launcher import Part, Refused, Ticket
from topmast.adapters.engines.far.slurm import SlurmLauncher, SlurmOptions
from topmast.adapters.engines.far.slurm.batch import (
    BOOT,
    arguments,
    script,
    submission_options,
)
from topmast.adapters.engines.far.slurm.options import BY_TENANT
from topmast.model.fleet import ClusterSpec, HostSpec

TICKET = Ticket("https://h:1", "PEM\n#TOPMAST\n" * 300, "secret", "tm-f-j1-1-0", 60.0, 20.0)
RUNNER = (
    "import os, sys\n"
    'print(sys.argv[1:], len(sys.stdin.read()), "#TOPMAST\\n" in "é#", os.environ["TOPMAST_RUN"])\n'
)


def part(**fields: Any) -> Part:
    given: dict[str, Any] = {
        "name": "tm-f-j1-1-0", "hosts": ("a", "b"), "tasks": 2, "gpus": 4, "model": "H100",
        "cpus": 0.0, "memory_bytes": 0, "limit_s": None, "tenant": "vision", "image": "",
        "ticket": TICKET,
    }  # fmt: skip
    return Part(**{**given, **fields})


def args(options: SlurmOptions | None = None, **fields: Any) -> list[str]:
    given = part(**fields)
    return arguments(given, given.hosts, options or SlurmOptions())


def test_a_part_is_submitted_held_on_exactly_its_hosts() -> None:
    """The whole of the arguments, so that none comes or goes unseen."""
    assert args() == [
        "sbatch", "--parsable", "--hold", "--no-requeue", "--no-kill",
        "--job-name=tm-f-j1-1-0", "--nodelist=a,b", "--nodes=2", "--ntasks=2",
        "--ntasks-per-node=1", "--chdir=/", "--output=/dev/null", "--error=/dev/null",
        "--propagate=NONE", "--signal=TERM@20", "--gres=gpu:H100:4",
    ]  # fmt: skip
    assert args(hold=False) == [word for word in args() if word != "--hold"]


@pytest.mark.parametrize(
    ("options", "fields", "want"),
    [
        ({}, {"gpus": 0}, ()),
        ({"gpu": {"H100": "nvidia_h100"}}, {}, ("--gres=gpu:nvidia_h100:4",)),
        ({"gpu": {"H100": "any"}}, {}, ("--gres=gpu:4",)),
        ({"cpus_per_gpu": 7.5}, {}, ("--cpus-per-task=30",)),
        ({"cpus_per_gpu": 7.5}, {"cpus": 2.5}, ("--cpus-per-task=3",)),
        ({}, {"memory_bytes": (1 << 30) + 1}, ("--mem=1025M",)),
        ({"memory_mib_per_gpu": 100}, {}, ("--mem=400M",)),
        ({}, {"limit_s": 61.0}, ("--time=2",)),
        ({"time_limit": "7-0"}, {}, ("--time=7-0",)),
        ({"time_limit": "7-0"}, {"limit_s": 1.0}, ("--time=1",)),
        ({"exclusive": True}, {}, ("--exclusive",)),
        ({"account": {"": "a", "vision": "v; rm -rf /"}}, {}, ("--account=v; rm -rf /",)),
        ({"account": {"": "a", "nlp": "n"}}, {}, ("--account=a",)),
        ({"account": {"nlp": "n"}}, {}, ()),
        (
            {"partition": {"": "p"}, "qos": {"": "q"}, "wckey": {"": "w"}, "constraint": {"": "c"}, "reservation": {"": "r"}},
            {},
            ("--partition=p", "--qos=q", "--wckey=w", "--constraint=c", "--reservation=r"),
        ),
    ],
)  # fmt: skip
def test_options_of_the_site_and_wishes_of_the_part(
    options: dict[str, Any], fields: dict[str, Any], want: tuple[str, ...]
) -> None:
    """Each comes as one argument, whatever is in it."""
    plain = set(args(gpus=0))
    found = set(args(SlurmOptions(**options), **fields)) - plain
    assert found - {"--gres=gpu:H100:4"} == set(want) - {"--gres=gpu:H100:4"}


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({"hosts": ("a", "a")}, "host a is named twice"),
        ({"hosts": ("a[0-9]",)}, "not a name of a host"),
        ({"hosts": ("a,b",)}, "not a name of a host"),
        ({"hosts": ("-a",)}, "not a name of a host"),
        ({"name": "tm a"}, "not a name of a part"),
        ({"name": "-tm"}, "not a name of a part"),
    ],
)
def test_names_that_slurm_would_take_for_something_else_are_refused(
    fields: dict[str, Any], want: str
) -> None:
    """A host that is named twice would make Slurm add another one."""
    with pytest.raises(Refused, match=want):
        args(**fields)


def test_the_script_hands_ticket_and_runner_to_each_host(tmp_path: Path) -> None:
    """Run with a stand-in for srun: the runner gets the ticket on stdin, and is kept once for all parts."""
    text = script(
        part(hosts=("east-a", "east-b")), ["a", "b"], SlurmOptions(python=sys.executable), RUNNER
    )
    assert TICKET.token not in text
    for word in ("--immediate=60", "--kill-on-bad-exit=0", "--wait=0", "--no-kill", "--nodes 2"):
        assert f" {word} " in text.splitlines()[2]
    (file := tmp_path / "slurm_script").write_text(text)
    srun = tmp_path / "srun"
    srun.write_text('#!/bin/sh\nwhile [ "$1" != "--no-kill" ]; do shift; done\nshift\nexec "$@"\n')
    srun.chmod(0o700)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TMPDIR": str(tmp_path), "SLURMD_NODENAME": "b"}
    env |= {"SLURM_JOB_ID": "7", "SLURM_JOB_START_TIME": "17"}
    for _ in range(2):
        done = subprocess.run(["sh", str(file)], env=env, capture_output=True, text=True, cwd="/")
        length = len(msgspec.json.encode(TICKET))
        assert (done.stdout, done.stderr) == (f"['-', 'east-b'] {length} False 7@17\n", "")
    kept = tmp_path / f"topmast-{os.getuid()}"
    assert kept.stat().st_mode & 0o777 == 0o700
    assert [file.name[:7] for file in kept.iterdir()] == ["runner-"]


@pytest.mark.parametrize(
    ("known", "squeue", "want"),
    [
        ({"SLURM_JOB_START_TIME": "17"}, "exit 1", "7@17"),
        ({}, 'echo "$SLURM_TIME_FORMAT $*" >&2; echo 18', "7@18"),
        ({}, "exec sleep 60", "7@"),
        ({}, "exit 1", "7@"),
    ],
)
def test_the_script_says_which_run_of_the_job_it_is(
    tmp_path: Path, known: dict[str, str], squeue: str, want: str
) -> None:
    """As the listing does: when it began. Without an answer in time it is not known, and starts.

    The script ends as its step does.
    """
    for name, does in (("squeue", squeue), ("srun", "tail -n 1; exit 3")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o700)
    (file := tmp_path / "slurm_script").write_text(script(part(), ["a", "b"], SlurmOptions(), ""))
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", **known}
    done = subprocess.run(["sh", str(file)], env=env, capture_output=True, text=True)
    assert (done.stdout, done.returncode) == (f"{want}\n", 3)
    assert want != "7@18" or done.stderr == "%s -h -t all -o %S -j 7\n"


@pytest.mark.parametrize("kind", ["a link", "open to others"])
def test_a_folder_of_another_account_is_not_used(tmp_path: Path, kind: str) -> None:
    """A runner is never taken from where another account could have put it."""
    (elsewhere := tmp_path / "elsewhere").mkdir()
    mine = tmp_path / f"topmast-{os.getuid()}"
    if kind == "a link":
        mine.symlink_to(elsewhere)
    else:
        mine.mkdir()
        mine.chmod(0o777)
    text = script(part(hosts=("a",)), ["a"], SlurmOptions(), "import sys; print(sys.argv[0])")
    env = {"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path), "SLURMD_NODENAME": "a"}
    done = subprocess.run(
        [sys.executable, "-I", "-c", BOOT], env=env, input=text, text=True, capture_output=True
    )
    assert done.stdout.startswith(f"{tmp_path}/topmast-"), done.stderr
    assert not done.stdout.startswith(f"{mine}/")
    assert not [*elsewhere.iterdir()]


def test_each_tenant_of_which_an_option_speaks_is_known() -> None:
    """Whichever option it is; a submission for each is tried by `topmast doctor`."""
    said: dict[str, Any] = {name: {"": "x", f"of-{name}": "y"} for name in BY_TENANT}
    assert SlurmOptions(**said).tenants == sorted(f"of-{name}" for name in BY_TENANT)
    assert SlurmOptions(constraint={"vision": "fast"}).tenants == ["vision"]
    assert submission_options(SlurmOptions(constraint={"vision": "fast"}), "vision") == {
        "constraint": "fast"
    }


@pytest.mark.parametrize(
    ("said", "option"),
    [
        ("Invalid --time specification", "time_limit"),
        ("Invalid --mem specification", "memory_mib_per_gpu"),
    ],
)
def test_an_option_that_sbatch_does_not_take_is_a_fault_of_the_cluster(
    tmp_path: Path, said: str, option: str
) -> None:
    """The next job would be refused for it too."""
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo slurm 23.11.0 && exit\n'
        f"echo 'sbatch: error: {said}' >&2; exit 1\n"
    )
    sbatch.chmod(0o700)
    hosts = (HostSpec("a", "H100", 4), HostSpec("b", "H100", 4))
    launcher = SlurmLauncher(
        ClusterSpec("hpc", hosts, "slurm"),
        "f",
        SlurmOptions(bin=str(tmp_path), time_limit="vision"),
    )
    with pytest.raises(Refused, match=f"option `{option}`") as caught:
        launcher.submit(part())
    assert caught.value.everyone
