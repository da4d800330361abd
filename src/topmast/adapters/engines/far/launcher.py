"""What a cluster's own scheduler is asked for: few calls, of which none is trusted alone.

A launcher brings *parts* of attempts before a scheduler (Slurm, Kubernetes, plain hosts) and says
what that scheduler holds. It decides nothing, remembers nothing that a restart would miss, and
promises nothing that its scheduler does not keep: that an attempt starts once, and that an end is
true, is the work of `FarEngine`, which looks again after every call.

All calls block, and are made from threads of the engine's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, ClassVar

from msgspec import Struct

from topmast.adapters.engines.far.options import FarOptions
from topmast.model.fleet import ClusterSpec, HostSpec


class Refused(Exception):
    """The scheduler said no and made nothing; the text is its reason, for people.

    ``everyone``: it would say so of other jobs too, of whatever tenant: a partition that is not
    there, rights that are missing. The cluster gets no new work for a while.
    """

    def __init__(self, why: str, *, everyone: bool = False) -> None:
        super().__init__(why)
        self.everyone = everyone


class Unreachable(Exception):
    """No complete answer came: what was asked may have happened, or may still happen."""


class Ticket(Struct, frozen=True):
    """What a runner needs to call home. It is secret: only its owner may read it on any disk.

    A launcher hands it to the runners of a part as JSON, by standard input, a file of mode 0600 or
    a Secret; never in arguments, names, comments or labels.
    """

    url: str
    """Where the engine listens: ``https://host:port``, or ``unix:/path`` on the runner's host."""
    ca: str
    """The certificate (PEM) that the listener proves itself with; empty for a unix socket."""
    token: str
    """Good for this part only."""
    part: str
    lease_s: float | None
    """The runner ends its tasks when home was silent for so long; None: never."""
    grace_s: float
    """Between SIGTERM and SIGKILL, when a lease ends or the scheduler itself stops the runner."""


class Part(Struct, frozen=True):
    """What is submitted at once: an attempt on hosts that all give it the same."""

    name: str
    """``tm-FLEET-JOB-EPOCH-N``: found again after any crash, and no other fleet's."""
    hosts: tuple[str, ...]
    """As the scheduler names them. Exactly these, and the part starts on all or on none."""
    tasks: int
    """Of the attempt on each of the hosts. One runner on each starts them all."""
    gpus: int
    """On each host, for all its tasks together."""
    model: str
    """Of the GPUs, as the scheduler calls it; empty when it does not say, or without GPUs."""
    cpus: float
    """On each host; 0 asks for none."""
    memory_bytes: int
    """On each host; 0 asks for none."""
    limit_s: float | None
    """The scheduler may end it after that time; None does not limit."""
    tenant: str
    """Of the job: some sites bill it to an account of its own."""
    image: str
    """The container image; empty: the default of the cluster, or none."""
    ticket: Ticket
    secrets: dict[str, tuple[str, str]] = {}
    """What the scheduler keeps and gives to the containers: name and key, by variable."""
    hold: bool = True
    """It may not run before it is released, where the scheduler can hold parts."""


class State(StrEnum):
    """How far a part has come, as its scheduler says."""

    HELD = "held"
    """Submitted, and not to run before it is released."""
    WAITING = "waiting"
    RUNNING = "running"
    """Or starting, or ending: processes of it may live."""
    ENDED = "ended"


class Listed(Struct, frozen=True):
    """One part as its scheduler knows it. A name can be listed more than once."""

    name: str
    id: str
    """The scheduler's own, which it may use again after a crash: unique with ``submitted_s``."""
    submitted_s: float
    """On the scheduler's clock, to compare only with another of the same part."""
    state: State
    why: str = ""
    """Why it waits, or how it ended, in the scheduler's words."""
    evicted: bool = False
    """Ended by the scheduler or its people (preempted, evicted, timed out, cancelled)."""
    run: str = ""
    """Which run of it this is, if the scheduler may run it again (a restart count, a start time):
    what the runner finds in its variable ``TOPMAST_RUN``. The end of another run proves nothing.
    Empty: this scheduler never runs a part that it lists a second time.
    """
    hosts: int = 0
    """How many it has while it runs; 0: the scheduler does not say."""
    never: bool = False
    """It waits, and what it waits for does not come by itself; ``why`` says what has to change."""
    code: int | None = None
    """Once it ended, and by its own doing alone (it took more memory than it asked for): the exit
    status of those of its tasks of which no runner tells.
    """
    everyone_but: tuple[str, ...] | None = None
    """With ``never``: parts of all tenants would wait so, but perhaps not of these; None: only this
    one. The cluster gets no new work for a while, as when a submission is refused for `everyone`.
    """


class Host(Struct, frozen=True):
    """One host as its scheduler knows it, now."""

    name: str
    answers: bool
    """The scheduler's own daemon on the host answers: what it says of parts there is true."""
    closed: str = ""
    """Why it takes no new work (drained, cordoned, in use by others); empty: it does."""
    misfit: bool = False
    """It is closed because the fleet file, or an option, says otherwise than the scheduler."""


class Launcher(ABC):
    """The calls. An instance belongs to one cluster."""

    options_type: ClassVar[type[FarOptions]]
    """What a fleet file may say below ``options`` of such a cluster; each field has a default."""
    many_hosts: ClassVar[bool]
    """Whether a part may have several hosts; if not, each host of an attempt is a part."""
    exact_gpus: ClassVar[bool]
    """Whether the runner says which GPUs a task uses; if not, the scheduler does."""
    images: ClassVar[bool] = False
    """Whether runners can be started in a container image."""
    releases_at_once: ClassVar[int] = 1
    """How many parts one call of `release` may be about."""
    lists_by_host: ClassVar[bool] = False
    """Whether `list` lacks the parts of hosts that did not answer it, as the next `hosts` tells: of
    these parts nothing is known. If not, a listing is of all hosts or none.
    """

    first_hand: ClassVar[bool] = False
    """Whether hosts themselves tell `list` what runs there: a part is listed as running as long as
    any process of it lives, and no longer. Others are told by a scheduler, which may not know.
    """

    def __init__(self, cluster: ClusterSpec, fleet: str, options: Any) -> None:
        """``fleet`` is the second word of the names of its parts; ``options`` is as declared."""
        self._cluster = cluster
        self._fleet = fleet
        self._options = options
        self.is_recorded: Callable[[str, float], bool] = lambda id, submitted_s: False
        """Whether a part was recorded under an id and time of submission: names may be changed."""

    def open(self, home: str) -> None:
        """Called once, before all others: the engine listens at ``home``, a URL as in tickets."""
        return

    def set_hosts(self, hosts: tuple[HostSpec, ...]) -> None:
        """The cluster has these hosts from now on, and no others."""
        return

    @abstractmethod
    def submit(self, part: Part) -> str:
        """Bring a part before the scheduler; returns its id, or nothing if the answer tells none.

        Where the scheduler keeps names unique, a name that it knows is left as it is, and no id is
        told. Where it does not, others may give their jobs any name: an id tells which is ours.
        Raises `Refused`, `Unreachable`.
        """

    @abstractmethod
    def release(self, listed: Sequence[Listed]) -> None:
        """Let held parts run, at most ``releases_at_once``; harmless when one is not held.

        What is still held after a failure is released again. Raises `Refused`, `Unreachable`.
        """

    @abstractmethod
    def cancel(self, listed: Listed, grace_s: float) -> None:
        """End a part: SIGTERM to its runners now, and SIGKILL after the grace at the earliest.

        Only for runners that do not answer, and for parts that are held or wait. It never ends
        another part that got the same id since. Harmless when it has ended. Raises `Unreachable`.
        """

    @abstractmethod
    def list(self) -> tuple[Listed, ...]:
        """All parts of this fleet on this cluster: complete, or raises `Unreachable`.

        Those of silent hosts may be missing where ``lists_by_host`` says so. One that ended may be
        listed for a while. The cost does not grow with the number of calls before; it is one
        question to the scheduler (or to each host), whatever the number of parts.
        """

    @abstractmethod
    def hosts(self) -> tuple[Host, ...]:
        """All hosts of the cluster: complete, or raises `Unreachable`."""

    def forget(self, listed: Listed) -> None:
        """What became of a part that ended is on our disk: its scheduler may forget it.

        Only for one that is listed as ended, that never started and was cancelled, or that is over
        and listed no more, when something of it may be left where it was submitted. Where a
        scheduler keeps what ended until it is asked to forget it, it is listed until then.
        Harmless when repeated. Raises `Unreachable`.
        """
        return

    def close(self) -> None:
        """Release connections; parts go on."""
        return
