"""What the protocol hears, what it records, what it has done, and what it answers."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from topmast.adapters.engines.far.launcher import Host, Listed
from topmast.model.messages import Message, StartGang, TaskReport

Ranks = tuple[int, ...]


class Terms(Struct, frozen=True):
    """How long the protocol waits for what."""

    lease_s: float | None
    margin_s: float
    """Beyond the lease, for clocks that drift and processes that take time to die."""
    silence_s: float
    """A runner that was not heard for so long may be dead, or cut off."""
    distrust_s: float
    """Without a complete look for so long, no host takes new work."""
    first_hand: bool = False
    """As `Launcher.first_hand`: what is listed as running is not dead, whatever its lease."""


class Moment(Struct, frozen=True, gc=False):
    """Now, on two clocks."""

    s: float
    """Monotonic: for leases and patience. It does not compare over a restart of this process."""
    wall_s: float
    """Since the UTC epoch, as it is shown to people."""


class PartPlan(Struct, frozen=True):
    """A part of an attempt, and which ranks run on each of its hosts."""

    name: str
    ranks: dict[str, Ranks]
    """By host."""


class Carried(Struct, frozen=True):
    """What runners bring to their hosts, because these do not have it."""

    datasets: tuple[str, ...] = ()
    checkpoint: str | None = None
    """The folder for checkpoints within the job's, if they are kept in a bucket."""


# --- what it hears ------------------------------------------------------------------------------


class Start(Struct, frozen=True):
    """An order to start a gang. If it is new, it is started by these parts."""

    gang: StartGang
    parts: tuple[PartPlan, ...]
    envs: dict[str, str]
    """What all its tasks see."""
    cannot: str = ""
    """Why it cannot start at all."""
    carried: Carried = Carried()


class Stop(Struct, frozen=True):
    """An order to stop an attempt, now or later known."""

    job: str
    epoch: int
    grace_s: float


class Suspend(Struct, frozen=True):
    """An order to halt an attempt, or to let it go on."""

    job: str
    epoch: int
    still: bool


class ListTasks(Struct, frozen=True):
    """A question for the truth."""


class SetHosts(Struct, frozen=True):
    """An order to have these hosts."""

    names: tuple[str, ...]


class Looked(Struct, frozen=True):
    """The scheduler gave two complete answers, to questions asked at ``began_s`` or later."""

    began_s: float
    """On the monotonic clock."""
    listed: tuple[Listed, ...]
    hosts: tuple[Host, ...]
    unlisted: tuple[str, ...] = ()
    """Hosts of which it does not show the parts: nothing is known of these."""


class LookFailed(Struct, frozen=True):
    """It gave none, or half of one."""

    why: str


class Submitted(Struct, frozen=True):
    """A submission came to an end; whether it made something is for the next look to tell."""

    part: str
    refused: str = ""
    """Why the scheduler made nothing of it."""
    everyone: bool = False
    """It would refuse other jobs too."""
    unsure: str = ""
    """Why there is no telling what it made of it; it may still arrive."""
    id: str = ""
    """What the scheduler called it, if its answer told that."""


class Claim(Struct, frozen=True):
    """A runner asks for what it may run."""

    part: str
    host: str
    nonce: str
    """Made by this runner; no other has it."""
    address: str = ""
    """By which other hosts reach it."""
    port: int = 0
    """One that is free there, for rank 0 to listen on."""
    run: str = ""
    """Of the part, as its scheduler calls it."""


class Beat(Struct, frozen=True):
    """A runner lives."""

    part: str
    host: str
    nonce: str
    preparing: str | None = None
    """What its tasks wait for before they begin, if it says that; empty: nothing any more."""
    prepared: bool = False
    """Something of its tasks has begun."""


class RankEnded(Struct, frozen=True):
    """A runner says that nothing is left of a task."""

    part: str
    host: str
    nonce: str
    rank: int
    code: int | None
    """None: it left no exit status."""
    at_s: float
    error: str = ""
    evicted: bool = False
    """The scheduler, or the lease, ended it."""
    report: TaskReport = TaskReport()
    host_fault: bool = False
    """It never began: there is no place for it in the file system of the host, or of its image."""


class Tick(Struct, frozen=True):
    """Time has passed."""


# --- what it records: durable before anything of the same decision is done or answered ----------


class Intended(Struct, frozen=True, tag=True):
    """The attempt is to start, in these parts."""

    gang: StartGang
    parts: tuple[PartPlan, ...]
    envs: dict[str, str]
    lease_s: float | None
    """As its runners are told; the option may be another after a restart."""
    carried: Carried = Carried()


class Recorded(Struct, frozen=True, tag=True):
    """Of what the scheduler lists under the name of a part, this one may run."""

    part: str
    id: str
    submitted_s: float


class Claimed(Struct, frozen=True, tag=True):
    """This runner, and no other, runs the ranks of the part on the host."""

    part: str
    host: str
    nonce: str
    at_s: float
    address: str
    port: int
    run: str = ""


class Doubled(Struct, frozen=True, tag=True):
    """Another runner asked for the same: an end that the scheduler tells may be that one's."""

    part: str
    host: str


class Stopped(Struct, frozen=True, tag=True):
    """Nothing of the attempt starts any more, and what runs is to end."""

    job: str
    epoch: int
    grace_s: float
    """The shortest that was ordered."""
    why: str = ""
    """It cannot start; empty: it was ordered."""


class Suspended(Struct, frozen=True, tag=True):
    """The attempt is to stand still, or to go on."""

    job: str
    epoch: int
    still: bool


class Ended(Struct, frozen=True, tag=True):
    """The task is over, and never starts again."""

    job: str
    epoch: int
    rank: int
    code: int | None
    at_s: float
    error: str = ""
    evicted: bool = False
    blameless: bool = False
    """Its host did not cause that."""
    report: TaskReport = TaskReport()
    stopped: bool = False
    """A stop had been ordered by then."""


class Forgotten(Struct, frozen=True, tag=True):
    """No epoch of the job up to this one starts any more, and nothing else is known of them."""

    job: str
    epoch: int


Fact = Intended | Recorded | Claimed | Doubled | Stopped | Suspended | Ended | Forgotten


# --- what it has done ---------------------------------------------------------------------------


class Submit(Struct, frozen=True):
    """Bring a part before the scheduler; answered by `Submitted`."""

    gang: StartGang
    plan: PartPlan
    lease_s: float | None
    hold: bool = True
    """It must not run before it is released, if the scheduler can have it so: perhaps another
    submission of its name arrives.
    """


class Release(Struct, frozen=True):
    """Let a held part run. Repeated after each look that still shows it held."""

    listed: Listed


class Cancel(Struct, frozen=True):
    """End a part by way of the scheduler. Repeated while looks show it."""

    listed: Listed
    grace_s: float


class Post(Struct, frozen=True):
    """News for the cluster manager."""

    message: Message


class Forget(Struct, frozen=True):
    """The scheduler may forget a part that ended: what became of it is recorded."""

    listed: Listed


class Delete(Struct, frozen=True):
    """Delete the output of a forgotten attempt."""

    job: str
    epoch: int


Action = Submit | Release | Cancel | Post | Forget | Delete


# --- what it answers ----------------------------------------------------------------------------

GRANTED = 200
TAKEN = 409
"""Another runner has the claim: exit."""
OVER = 410
"""It was stopped, or is over: exit, and leave nothing."""


class ExecOrder(Struct, frozen=True):
    """A command that is to run beside a rank."""

    id: str
    rank: int
    command: tuple[str, ...]
    tty: bool
    rows: int
    columns: int


class Orders(Struct, frozen=True):
    """What a runner is to do with its ranks."""

    version: int
    """Grows with each change."""
    grace_s: float | None = None
    """Stop: the time between SIGTERM and SIGKILL; None: do not."""
    still: bool = False
    address: str = ""
    """Of rank 0; empty while that is not known, and no rank can start."""
    port: int = 0
    save: int = 0
    """The last round in which hosts are to save their checkpoints; 0: there was none."""
    execs: tuple[ExecOrder, ...] = ()
    """Commands of users beside ranks, which a runner begins once."""


class Answer(Struct, frozen=True):
    """To a runner."""

    status: int
    orders: Orders | None = None


class Outcome(Struct, frozen=True):
    """What an event led to."""

    facts: tuple[Fact, ...] = ()
    actions: tuple[Action, ...] = ()
    answer: Any = None
