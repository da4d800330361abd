"""What is submitted: the arguments of ``sbatch``, and the script that it reads from stdin.

The script carries the ticket and the runner, so that no shared file system is needed. Only the
owner of a job and Slurm itself can read a script; arguments, names and the environment, which
others may see, say nothing secret. ``srun`` hands the script to one process on each host, by its
standard input; that unpacks the runner, and runs it.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import shlex
import zlib
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from topmast.adapters.engines.far.launcher import Part, Refused
from topmast.adapters.engines.far.slurm.options import BY_TENANT, SlurmOptions

MIB = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_WIDTH = 120
NO_OP = "#!/bin/sh\ntrue\n"
"""A script for `trial`, which runs none."""
STEP_S = 60
"""How long Slurm may need to begin the step. A job that lost a host before would wait for ever."""
READY = 'timeout 3600 scontrol wait_job "$SLURM_JOB_ID" >/dev/null 2>&1'
"""Waits for the prologs of all hosts: Slurm runs the script when that of the first is over, and a
step that comes to a host before its prolog is over fails after ``MessageTimeout``. What keeps this
from being known is no reason to begin no step.
"""
RUN = (
    'echo "$SLURM_JOB_ID@${SLURM_JOB_START_TIME:-'
    '$(SLURM_TIME_FORMAT=%s timeout 2 squeue -h -t all -o %S -j "$SLURM_JOB_ID")}"'
)
"""Tells runners which run of the job theirs is, as `listings` does. Slurm before 23.02 must be
asked, while the step begins. An answer that takes longer could be of a later run: then this one has
no name, and the end of its job proves nothing.
"""

BOOT = """# The runner of a part of a job of Topmast
import binascii, io, marshal, os, sys, zlib
_, *parts, run = sys.stdin.read().split("#TOPMAST\\n")
runner, bundle = [zlib.decompress(binascii.a2b_base64(part.replace("#", ""))) for part in parts]
os.environ["TOPMAST_RUN"] = run.strip()
digest, ticket, *hosts = bundle.decode().split("\\n")
folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", "topmast-%d" % os.getuid())
try:
    os.makedirs(folder, 0o700, exist_ok=True)
    seen = os.lstat(folder)
    private = seen.st_uid == os.getuid() and seen.st_mode & 0o170077 == 0o040000
except OSError:
    private = False
if not private:
    import tempfile
    folder = tempfile.mkdtemp(prefix="topmast-")
path = os.path.join(folder, "runner-%s.%s.pyc" % (digest, sys.implementation.cache_tag))
if not os.path.exists(path):
    import py_compile, tempfile
    number, draft = tempfile.mkstemp(dir=folder)
    with os.fdopen(number, "wb") as file:
        file.write(runner)
    py_compile.compile(draft, draft + "c", "runner.py", doraise=True)
    with open(draft + "c", "rb") as file:
        os.fsync(file.fileno())
    os.replace(draft + "c", path)
    os.unlink(draft)
host = dict(line.split(" ") for line in hosts)[os.environ["SLURMD_NODENAME"]]
with open(path, "rb") as file:
    code = marshal.loads(file.read()[16:])
sys.argv, sys.stdin = [path, "-", host], io.StringIO(ticket)
exec(code)
"""
"""Runs on each host. It keeps one copy of a runner there for all parts, compiled, in a folder that
only its owner can write to, and runs it in its own process: an interpreter less on each host.
Every start of a task waits for it, so that it imports as little as it can.
"""


def arguments(part: Part, hosts: Sequence[str], options: SlurmOptions) -> list[str]:
    """How ``sbatch`` is called for ``part`` on ``hosts``, as Slurm names them."""
    _check(part, hosts)
    cpus, memory_mib = _cpus(part, options), _memory_mib(part, options)
    given = {
        "job-name": part.name,
        "nodelist": ",".join(hosts),
        "nodes": str(len(hosts)),  # without it Slurm may add hosts to the list
        "ntasks": str(len(hosts)),
        "ntasks-per-node": "1",
        "chdir": "/",
        "output": "/dev/null",
        "error": "/dev/null",
        "propagate": "NONE",
        # Before a limit ends it, Slurm tells the runner so early that tasks have their grace.
        "signal": f"TERM@{min(math.ceil(part.ticket.grace_s), 65_535)}",
    }
    if part.gpus:
        kind = options.gpu_type(part.model)
        given["gres"] = f"gpu:{kind}:{part.gpus}" if kind else f"gpu:{part.gpus}"
    if cpus:
        given["cpus-per-task"] = str(cpus)
    if memory_mib:
        given["mem"] = f"{memory_mib}M"
    if part.limit_s is not None:
        given["time"] = str(max(1, math.ceil(part.limit_s / 60)))
    elif options.time_limit:
        given["time"] = options.time_limit
    given |= submission_options(options, part.tenant)
    flags = ["--parsable", *(["--hold"] if part.hold else []), "--no-requeue", "--no-kill"]
    if options.exclusive:
        flags.append("--exclusive")
    return ["sbatch", *flags, *(f"--{name}={value}" for name, value in given.items())]


def trial(part: Part, hosts: Sequence[str], options: SlurmOptions) -> list[str]:
    """How ``sbatch`` is asked whether it would take ``part``; nothing is submitted."""
    program, _, *rest = arguments(part, hosts, options)
    return [program, "--test-only", *rest]


def submission_options(options: SlurmOptions, tenant: str) -> dict[str, str]:
    """What a site wants to be said of jobs of a tenant."""
    return {name: said for name in BY_TENANT if (said := options.of_tenant(name, tenant))}


def script(part: Part, hosts: Sequence[str], options: SlurmOptions, runner: str) -> str:
    """The script of ``part``: it starts one runner on each of its hosts."""
    count, cpus = str(len(hosts)), _cpus(part, options)
    step = ["srun", "--nodes", count, "--ntasks", count, "--ntasks-per-node=1", "--mpi=none"]
    step.append(f"--immediate={STEP_S}")
    if cpus:
        step.append(f"--cpus-per-task={cpus}")
    # Hosts that are done, failed or lost end nothing on the others: that is for the runners to say.
    step += ["--kill-on-bad-exit=0", "--wait=0", "--no-kill"]
    step += [options.python, "-I", "-S", "-c", BOOT]
    names = (f"{called} {host}" for called, host in zip(hosts, part.hosts, strict=True))
    digest = hashlib.sha256(runner.encode()).hexdigest()
    bundle = "\n".join([digest, msgspec.json.encode(part.ticket).decode(), *names])
    ready = [READY] if len(hosts) > 1 else []
    return "\n".join(
        ["#!/bin/sh", *ready, f'{{ cat "$0"; {RUN}; }} | {shlex.join(step)}', "exit",
         "#TOPMAST", _packed(runner), "#TOPMAST", _packed(bundle), "#TOPMAST", ""]
    )  # fmt: skip


@lru_cache(maxsize=4)
def _packed(text: str) -> str:
    """A text as lines of comments; that of the runner is the same in all scripts."""
    packed = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
    return "\n".join(f"#{packed[at : at + _WIDTH]}" for at in range(0, len(packed), _WIDTH))


def _check(part: Part, hosts: Sequence[str]) -> None:
    """What Slurm would take and mean otherwise is refused here."""
    if not _NAME.fullmatch(part.name):
        raise Refused(f"{part.name!r} is not a name of a part")
    for host in hosts:
        if not _HOST.fullmatch(host):  # brackets would be a range
            raise Refused(f"{host!r} is not a name of a host in Slurm")
        if hosts.count(host) > 1:  # Slurm would add another host
            raise Refused(f"host {host} is named twice")


def _cpus(part: Part, options: SlurmOptions) -> int:
    return math.ceil(part.cpus or part.gpus * options.cpus_per_gpu)


def _memory_mib(part: Part, options: SlurmOptions) -> int:
    asked_mib = math.ceil(part.memory_bytes / MIB)
    return asked_mib or part.gpus * options.memory_mib_per_gpu
