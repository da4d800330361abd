"""Slurm's commands: run with a clean environment and a time limit, their failures told apart.

A command that failed either *refused* (Slurm said no, and nothing was made) or got no answer
(*unreachable*: what was asked may have happened). What is not known to be silence is a refusal,
because Slurm names the errors of its transport by few fixed texts (``slurm_errno.c``).
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from topmast.adapters.engines.far.launcher import Refused, Unreachable
from topmast.adapters.engines.far.slurm.options import SlurmOptions

OLDEST = (20, 11)
"""The first version that has every option used here."""
_SILENCE = re.compile(
    r"unable to contact|timed out|unable to resolve|connect failure|(send|receive) failure"
    r"|connection (failure|refused|reset|timed out)|shutdown failure|zero bytes|standby mode"
    r"|header lengths|unexpected message|temporarily unable|resource temporarily unavailable"
    r"|try again|munge|authentication|credential|no route to host|network is unreachable"
    r"|configuration.*(fetch|source)|io error|i/o error|broken pipe|protocol version",
    re.IGNORECASE,
)
_SUBMISSION = re.compile(r"^.*submission failed: ", re.DOTALL)
"""What stands before Slurm's own reason why it takes no job: words of a site's plugins among it."""
_UNPROVEN = re.compile(r"zero bytes|munge|authentication|credential", re.IGNORECASE)
"""What Slurm says when it does not believe what a command is, or cannot be asked to."""
_PROOF = "see to munged here: it must run, have the cluster's key, and clocks must agree"
_VERSION = re.compile(r"slurm[\w-]*\s+(\d+)\.(\d+)")
_LONGEST = 400
SSH_FAILED = 255
"""What ``ssh`` ends with when there is no connection, or it broke."""
_KEPT = ("PATH", "HOME", "USER", "LOGNAME")
_FOR_SSH = ("SSH_AUTH_SOCK", "KRB5CCNAME")


TRIAL = "trial"


class Remedy(NamedTuple):
    """What to do about a refusal."""

    word: str
    """That the refusal speaks of."""
    text: str
    option: str | None = None
    """Of the cluster, that is refused: for all jobs, unless it differs by tenant. Empty: all
    that comes is refused; None: this job alone; `TRIAL`: perhaps all, as a small job tells.
    """


REMEDIES = (
    Remedy("invalid partition", "see `sinfo -s`, and set option `partition` of the cluster",
           "partition"),
    Remedy("account/partition", "see `sacctmgr show assoc`, and set option `account` of the "
           "cluster, or `account.TENANT` for one tenant", "account"),
    Remedy("invalid account", "see `sacctmgr show assoc`, and set option `account`", "account"),
    Remedy("accounting/qos policy", "ask for less or later, or see the limits in `sacctmgr show "
           "qos` and `sacctmgr show assoc`", TRIAL),
    Remedy("qos", "see `sacctmgr show qos`, and set option `qos` of the cluster or `qos.TENANT`",
           "qos"),
    Remedy("node name", "hosts of the fleet file must be called as `sinfo -N` calls them: "
           "`topmast fleet discover slurm` writes them"),
    Remedy("feature", "see `sinfo -o '%N %f'`, and set option `constraint`", "constraint"),
    Remedy("reservation", "see `scontrol show reservation`, and set option `reservation`",
           "reservation"),
    Remedy("wckey", "set option `wckey`", "wckey"),
    Remedy("generic resource",
           "see `sinfo -o '%N %G'`, and map GPU models: option `gpu.H100: TYPE`", TRIAL),
    Remedy("node configuration", "the hosts can never give this: compare GPU types (option "
           "`gpu.MODEL: TYPE`), CPUs, memory and partition with `sinfo -N -o '%N %G %c %m %P'`",
           TRIAL),
    Remedy("invalid --time", "give the job another `time_limit`, or, if it has none, set option "
           "`time_limit` as `sbatch --time` takes it", "time_limit"),
    Remedy("invalid --mem", "Slurm takes less: ask for less `memory` in the job, or, if it names "
           "none, set option `memory_mib_per_gpu`", "memory_mib_per_gpu"),
    Remedy("time limit", "ask for less time, or choose another partition"),
    Remedy("group", "the account that runs Topmast needs the right to submit there", ""),
    Remedy("permission", "the account that runs Topmast needs the right to submit there", ""),
)  # fmt: skip
"""By what a refusal of Slurm speaks of: the first that occurs."""


def remedy_for(said: str) -> Remedy | None:
    """What to do about a refusal, where that is known."""
    return next((remedy for remedy in REMEDIES if remedy.word in said.lower()), None)


def refused(said: str) -> Refused:
    """A refusal in Slurm's words, with a remedy where one is known."""
    words = _plain(said)
    remedy = remedy_for(words)
    return Refused(f"{words} ({remedy.text})" if remedy else words)


class Commands:
    """Runs Slurm's commands for one cluster."""

    def __init__(self, options: SlurmOptions) -> None:
        self._options = options
        self._checked = False

    def ask(self, *argv: str, text: str = "") -> str:
        """What a command prints. Raises `Refused`, `Unreachable`."""
        self._check_version()
        return self._run(argv, text)

    def look(self, *argv: str) -> str:
        """What a command prints that only asks: whatever fails, there is no answer."""
        try:
            return self.ask(*argv)
        except Refused as error:
            raise Unreachable(str(error)) from None

    def _check_version(self) -> None:
        """An option that a version does not know could be ignored: such a version is not used."""
        if self._checked:
            return
        said = self._run(("sbatch", "--version"), "")
        found = _VERSION.search(said)
        if found is None:
            raise Unreachable(f"sbatch --version says {_plain(said)!r}: this is not Slurm")
        if (int(found[1]), int(found[2])) < OLDEST:
            raise Unreachable(f"Slurm {found[1]}.{found[2]} is too old: 20.11 or newer is needed")
        self._checked = True

    def _run(self, argv: Sequence[str], text: str) -> str:
        limit_s, command = self._options.command_s, argv[0]
        if any("\0" in word for word in argv):
            raise Refused(f"{command}: an argument with NUL")
        words, env = self._invocation(argv)
        try:
            process = subprocess.Popen(
                words,
                env=env,
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            remedy = "install Slurm's client commands, or set option `bin`"
            raise Unreachable(f"{words[0]}: {error.strerror} ({remedy})") from None
        try:
            out, err = process.communicate(text.encode(), timeout=limit_s)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            _, err = process.communicate()
            last = _plain(err.decode("utf-8", "replace"))
            said = f": {last}" if last else ""
            raise Unreachable(f"{command} did not answer within {limit_s:g} s{said}") from None
        if process.returncode == 0:
            return out.decode("utf-8", "replace")
        said = _plain(err.decode("utf-8", "replace")) or f"status {process.returncode}"
        failed = process.returncode < 0 or (self._options.ssh and process.returncode == SSH_FAILED)
        reason = _SUBMISSION.sub("", said)
        if failed or _SILENCE.search(reason):
            remedy = f" ({_PROOF})" if _UNPROVEN.search(reason) else ""
            raise Unreachable(f"{command}: {said}{remedy}")
        raise refused(said)

    def _invocation(self, argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """A command with its environment, here or on the login node.

        Nothing of Topmast's own environment reaches Slurm: a job would inherit it, and users could
        read it.
        """
        options = self._options
        program = str(Path(options.bin) / argv[0]) if options.bin else argv[0]
        words = [program, *argv[1:]]
        env = {"LC_ALL": "C.UTF-8", "SLURM_TIME_FORMAT": "%s"}  # seconds, whatever the zone
        conf = options.conf or ("" if options.ssh else os.environ.get("SLURM_CONF", ""))
        if conf:
            env["SLURM_CONF"] = conf
        own = {name: os.environ[name] for name in _KEPT if name in os.environ}
        if not options.ssh:
            return words, own | env
        agent = {name: os.environ[name] for name in _FOR_SSH if name in os.environ}
        remote = shlex.join(["env", *(f"{name}={value}" for name, value in env.items()), *words])
        config = ["-F", options.ssh_config] if options.ssh_config else []
        ssh = ["ssh", *config, "-T", "-o", "BatchMode=yes", "--", options.ssh, remote]
        return ssh, own | agent


def _plain(said: str) -> str:
    """An answer in one line without control characters, and not too long."""
    lines = [" ".join(line.split()) for line in said.splitlines()]
    text = "; ".join(line for line in lines if line)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
