"""The process of the queue: it leads at once, or stands by until it is its turn."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec
import structlog
from starlette.types import ASGIApp

import topmast
from topmast.accounts import Accounts
from topmast.adapters.clock import elapsed_s
from topmast.adapters.connections import Limits
from topmast.adapters.engines.registry import check_engines
from topmast.adapters.link import Peer
from topmast.adapters.objects.checkpoints import bucket_of
from topmast.adapters.otlp import Traces
from topmast.adapters.store import (
    Claim,
    Full,
    InUse,
    JournalFailure,
    Keeper,
    Leader,
    NotAdmitted,
    SqlJournal,
    Sweeper,
    is_database,
    open_journal,
    remember_store,
    require_free,
    store_of,
)
from topmast.api import create_api
from topmast.api.link import LinkEndpoint
from topmast.api.standby import Front, Hindrance, Reads, create_standby_api
from topmast.app.claim import claim_of, holder
from topmast.app.control_plane import ControlPlane, relays_of, small_fleet
from topmast.app.fleet_choice import warn_of_unused
from topmast.app.folder import leave, own_folder
from topmast.app.login import (
    check_entry,
    keep_login,
    network_of,
    open_entry,
    refuse_local_engines,
    require_login,
    split_address,
)
from topmast.app.process import Outside, Term, fail_stop
from topmast.app.reads import StandbyReads
from topmast.app.server import (
    announce,
    announce_as,
    announce_standby,
    bind,
    keep,
    run,
    url_of,
    withdraw,
    withdraw_as,
)
from topmast.app.standby import Standby, require_engines_here, step_down
from topmast.app.token import read_token
from topmast.cli.output import say, say_block
from topmast.cli.rootoptions import ServeOptions
from topmast.client.address import LEADER, STANDBY, STARTING, checked_url
from topmast.model.errors import Conflict, Faults, InvalidInput, TopmastError, Unavailable
from topmast.model.files.fleetfile import read_fleet
from topmast.model.fleet import Fleet
from topmast.model.views import Health
from topmast.policies.options import Profile
from topmast.policies.registry import DEFAULT_PROFILE, load_profile, profile_names
from topmast.runtime.machines import Machines
from topmast.runtime.recovery import Follower
from topmast.service.forecast import FORESEEN
from topmast.service.metrics import of_standby
from topmast.service.profile import PROFILE
from topmast.service.regions import Elsewhere
from topmast.service.warnings import quotas_beyond, tenants_gone
from topmast.service.whatif import WhatIfs
from topmast.sim.settings import check_models, read_foreseen, told_apart
from topmast.traces.throughputs import read_throughputs
from topmast.web import routes as pages

KEEP_MONTHS = "keep_months"
"""The option of the journal with the whole months after which jobs are forgotten; 0: never."""
KEEP_WORKDIRS = "keep_workdirs"
QUEUE_MEMORY = "queue_memory"
"""The option of the journal with the bytes of work folders that are kept at most."""

log = structlog.get_logger(__name__)


def _kept(journal: SqlJournal, name: str, asked: int | None, default: int) -> int:
    """What is asked for is kept for later starts and for other leaders."""
    kept = journal.option(name)
    known = default if kept is None else int(kept)
    if asked is None or asked == known:
        return known
    journal.set_option(name, str(asked))
    return asked


def profile_of(options: ServeOptions) -> Profile:
    """The policies that the command line asks for."""
    own, _ = told_apart(options.settings)
    return load_profile(options.profile or DEFAULT_PROFILE, own)


class QueueServer:
    """What the process is given, and the control plane as long as it leads."""

    def __init__(self, options: ServeOptions, outside: Outside, limits: Limits) -> None:
        self._options = options
        self._outside = outside
        self._limits = limits
        faults = Faults()
        self._fleet = faults.of(self._read_fleet)
        self._given = faults.of(lambda: profile_of(options))
        self._own, self._foreseen = told_apart(options.settings)
        faults.of(self._check_foreseen)
        self._token = faults.of(lambda: read_token(options.token_file))
        speeds = options.throughputs
        self._speeds = faults.of(lambda: read_throughputs(speeds) if speeds else None)
        self._apart = {
            region: faults.of(partial(checked_url, url, f"--placer {region}"))
            for region, url in options.placers.items()
        }
        url = faults.of(lambda: checked_url(options.otlp, "--otlp") if options.otlp else "")
        self._entry = check_entry(options, faults)
        self._store = faults.of(lambda: store_of(options.state, options.store))
        faults.of(lambda: bucket_of(str(options.checkpoints or "")))
        self._notify_networks = [
            faults.of(partial(network_of, text, "--notify-network"))
            for text in options.notify_networks
        ]
        faults.refuse()
        self._traces = Traces(url, topmast.__version__) if url else None
        if options.standby and not is_database(self._store):
            raise InvalidInput(
                "two servers need a journal that both can reach", field="--standby",
                remedy="--store postgresql://HOST/DATABASE",
            )  # fmt: skip
        self._made_folder = not options.state.exists()
        if self._made_folder and not is_database(self._store):  # told before anything is made
            refuse_local_engines(self._fleet or small_fleet(), options)
        own_folder(options.state)
        self._url = ""
        self._listeners: dict[str, socket.socket] = {}
        """By the options that they were made for."""
        self._system: ControlPlane | None = None
        self._standby: Standby | None = None
        self._sweeper: Sweeper | None = None
        self._started_s = time.time()
        self._reads = StandbyReads(
            options.state, outside.engines, self._peers,
            lambda service: self._entry.gate(service, self._options), self._leader, self._age_s,
            limits.streams,
        )  # fmt: skip
        self._front = Front(create_standby_api(self._health, self._leader, self._token))

    def _read_fleet(self) -> Fleet | None:
        """The fleet file, if one is given, with what engines find wrong with it."""
        file = self._options.fleet
        check = partial(check_engines, engines=self._outside.engines)
        return None if file is None else read_fleet(file, check)

    def run(self) -> int | None:
        """Serve until a signal; returns how many jobs run on, or None if it has not led."""
        options = self._options
        if isinstance(self._store, Path):
            require_free(self._store)
        with ExitStack() as stack:
            stack.callback(leave, options.state, self._made_folder)
            listeners = self._listeners
            listeners["--host"] = stack.enter_context(bind(options.host, options.port))
            if options.link is not None:
                host, port = split_address(options.link, "--link")
                listeners["--link"] = stack.enter_context(
                    bind(host, port, token=self._token, field="--link")
                )
            self._url = url_of(listeners["--host"])
            announce_as(options.state, STARTING, self._url)
            stack.callback(withdraw_as, options.state, STARTING)
            self._entry = open_entry(self._entry, options, stack, self._url)
            if self._entry.listener is not None:
                listeners["--listen"] = self._entry.listener
            self._front.app = self._standing_by()
            stack.callback(self._close)
            self._begin()
            front = self._front if self._traces is None else self._traces.of(self._front)
            run(
                front, options.state, list(listeners.values()), self._say_ready, self._leave,
                most_connections=self._limits.connections, announced=self._system is not None,
                role=LEADER if is_database(self._store) else "", tls=self._entry.tls,
            )  # fmt: skip
        if self._system is None:
            return None
        records = self._system.machines.queue.jobs.records.values()
        return sum(record.plan is not None and not record.finished for record in records)

    def _begin(self) -> None:
        """Lead, or stand by if another process leads."""
        store, claim = self._store, claim_of(self._options.state, self._address)
        try:
            journal = open_journal(store, claim=claim)
        except (Conflict, JournalFailure) as error:
            if not self._options.standby or isinstance(error, NotAdmitted):
                raise
            self._stand_by(str(store), claim, error)
            return
        remember_store(self._options.state, store)
        try:
            self._lead(journal, Keeper(journal, self._fail), None)
        except Unavailable as error:  # such as a full disk of an engine's folder
            if not self._options.standby:
                raise
            self._fail(error)

    def _stand_by(self, store: str, claim: Claim, error: TopmastError) -> None:
        """Follow once before it says so, so that what is refused is refused at once."""

        looked: list[int] = []

        def build(journal: SqlJournal) -> Machines:
            require_login(self._entry, journal)
            return self._machines(journal)

        def check(journal: SqlJournal, follower: Follower, leader: Leader) -> None:
            if leader.epoch not in looked:  # it may have a login that the one before had not
                require_login(self._entry, journal)
                looked.append(leader.epoch)
                if self._is_namesake(leader):
                    log.warning(Hindrance.SHARED.value, url=leader.address, leader=leader.holder)
            require_engines_here(
                follower.machines.queue.fleet, self._apart, leader, claim.folder,
                self._outside.engines,
            )  # fmt: skip
            remember_store(self._options.state, store)

        self._standby = Standby(
            store, claim, build, check, self._take_over, self._fail, self._reads.show,
            reads=self._options.reads, full=str(error) if isinstance(error, Full) else "",
        )  # fmt: skip
        if isinstance(error, InUse):
            self._standby.look_once()
            if self._standby.follower is not None:
                warn_of_unused(self._fleet, self._standby.follower.machines.queue)
        list(self._outside.engines.values())  # a new leader needs them all at once: loaded by then
        log.info(
            "this process stands by", why=error.told if isinstance(error, InUse) else str(error)
        )
        self._standby.start()

    @property
    def _address(self) -> str:
        """Where clients find this server when it leads."""
        return self._entry.public_url or self._url

    @property
    def _fail(self) -> Callable[[BaseException], NoReturn]:
        if not self._options.standby:
            return fail_stop
        return partial(step_down, keep=partial(keep, self._listeners))

    # --- leading ------------------------------------------------------------------------------

    def _profile(self, journal: SqlJournal) -> Profile:
        """What is kept goes before what a standby is given, and before the default."""
        kept = journal.option(PROFILE)
        asked = self._options.profile is not None or bool(self._own)
        if kept is None or (asked and not self._options.standby):
            return self._given
        profile = msgspec.json.decode(kept, type=Profile)
        if asked and profile != self._given:
            log.warning(
                "the policies of the leader are kept; --profile and --set mean nothing",
                remedy="topmast policies set",
            )
        return profile

    def _check_foreseen(self) -> None:
        settings = read_foreseen(self._foreseen, "up")
        if self._fleet is not None:
            check_models(settings, self._fleet.models())

    def _keep_foreseen(self, journal: SqlJournal) -> None:
        """Forecasts and what-ifs read it there. A standby keeps what the leader was told."""
        known = self._options.standby and journal.option(FORESEEN) is not None
        if self._foreseen and not known:
            journal.set_option(FORESEEN, json.dumps(self._foreseen))

    def _machines(self, journal: SqlJournal) -> Machines:
        return Machines(self._profile(journal), relays_of(self._apart), self._speeds)

    def _lead(self, journal: SqlJournal, keeper: Keeper, follower: Follower | None) -> None:
        require_login(self._entry, journal)
        options, profile = self._options, self._profile(journal)
        if follower is not None and follower.machines.profile != profile:
            follower = Follower(self._machines(journal))
        # A leader that was refused, or was killed at once, has left no fleet to go on with.
        known = options.standby and journal.span_s() is not None
        system = ControlPlane(
            options.state, profile, None if known else self._fleet,
            fleet_replaces=options.fleet_replaces, apart=self._apart,
            token=self._token, checkpoints=options.checkpoints, pair_speeds=self._speeds,
            outside=self._outside, term=Term(journal, follower, keeper, self._fail),
            notify_networks=self._notify_networks,
            require=partial(refuse_local_engines, options=options),
        )  # fmt: skip
        self._system = system
        if known:
            warn_of_unused(self._fleet, system.machines.queue)
        refuse_local_engines(system.fleet, options)
        keep_login(self._entry, journal)
        if is_database(self._store) or journal.option(PROFILE) is not None:
            journal.set_option(PROFILE, msgspec.json.encode(profile).decode())
        self._keep_foreseen(journal)
        system.open()
        if options.validate:
            system.validate()
        room = system.blobs.room
        room.most_bytes = _kept(journal, KEEP_WORKDIRS, options.keep_workdirs, room.most_bytes)
        queue_room = system.service.queue_room
        queue_room.most_bytes = _kept(
            journal, QUEUE_MEMORY, options.queue_memory, queue_room.most_bytes
        )
        months = _kept(journal, KEEP_MONTHS, options.keep_months, 0)
        if months:
            self._sweeper = Sweeper(journal, months, system.clock.now, self._fail)
        endpoints = {region: queue_endpoint(system, region) for region in self._apart}
        self._front.leads = journal.leads
        self._front.app = self._api(system, endpoints)

    def _api(self, system: ControlPlane, endpoints: dict[str, LinkEndpoint]) -> ASGIApp:
        command = [sys.executable, "-m", "topmast.app", "whatif", "--progress-json"]
        command.append(f"--state={self._options.state}")
        if self._options.throughputs:
            command.append(f"--throughputs={self._options.throughputs}")
        system.service.whatifs = WhatIfs(command, profile_names(), system.clock)
        return create_api(
            system.service, endpoints, self._token, self._limits.streams,
            self._entry.gate(system.service, self._options), self._entry.openid(),
            system.metrics, pages(system.service),
        )  # fmt: skip

    def _take_over(self, journal: SqlJournal, keeper: Keeper, follower: Follower) -> None:
        self._lead(journal, keeper, follower)
        announce(self._options.state, self._url, LEADER)
        withdraw_as(self._options.state, STANDBY)
        self._say_ready(self._url)

    def _leave(self) -> None:
        if self._system is not None:
            self._system.event_stream.close()
            self._system.service.judging.close()
            if self._system.service.whatifs is not None:
                self._system.service.whatifs.close()

    def _close(self) -> None:
        if self._traces is not None:
            self._traces.close()
        if self._sweeper is not None:
            self._sweeper.close()
        if self._system is not None:
            self._system.close()

    # --- standing by --------------------------------------------------------------------------

    def _standing_by(self) -> ASGIApp:
        """What is answered while another process leads."""
        own = create_standby_api(
            self._health, self._leader, self._token,
            self._entry.standby_gate(self._options.state, self._accounts), self._figures,
            self._hindered,
        )  # fmt: skip
        return Reads(self._shown, self._age_s, own)

    def _age_s(self) -> float:
        """How long ago it had all that the leader had, while it stands by."""
        return self._standby.age_s if self._standby is not None else 0.0

    def _shown(self) -> ASGIApp | None:
        return None if self._standby is None else self._reads.app(self._standby.shown)

    def _peers(self) -> dict[str, Elsewhere]:
        peers = ((r, Peer(r, url, self._token, self._outside.transport))
                 for r, url in self._apart.items())  # fmt: skip
        return dict(peers)

    def _leader(self) -> str:
        known = self._standby.leader if self._standby is not None else None
        return "" if known is None or known.address == self._address else known.address

    def _is_namesake(self, leader: Leader | None) -> bool:
        """Whether another process leads that calls itself as this one does."""
        return leader is not None and leader.address == self._address and leader.holder != holder()

    def _hindered(self) -> Hindrance | None:
        standby = self._standby
        if standby is None:
            return None
        if standby.full:
            return Hindrance.FULL
        if standby.is_cut_off:
            return Hindrance.CUT_OFF
        return Hindrance.SHARED if self._is_namesake(standby.leader) else None

    def _accounts(self) -> Accounts | None:
        follower = self._standby.follower if self._standby is not None else None
        return None if follower is None else follower.machines.accounts

    def _health(self) -> Health:
        standby = self._standby
        follower = standby.follower if standby is not None else None
        known = standby.leader if standby is not None else None
        return Health(
            topmast.__version__, time.time(), self._started_s, {},
            0 if follower is None else follower.rebuilt.seq, role="standby",
            epoch=0 if known is None else known.epoch, leader=self._leader(),
            why="" if standby is None else standby.why or standby.full or self._hindered() or "",
        )  # fmt: skip

    def _figures(self) -> bytes:
        standby = self._standby
        if standby is None:
            return of_standby(0, 0, 0.0)
        epoch = 0 if standby.leader is None else standby.leader.epoch
        return of_standby(epoch, standby.lag_records, elapsed_s() - standby.looked_s)

    # --- what people are told -----------------------------------------------------------------

    def _say_ready(self, url: str) -> None:
        system, state = self._system, self._options.state
        if system is None:
            withdraw(state)  # it led, and began again
            announce_standby(state, url)
            if self._system is not None:  # meanwhile
                withdraw_as(state, STANDBY)
            self._say_stands_by(url, state)
            return
        regions = [region.name for region in system.fleet.regions]
        if self._options.json:
            say_document(url, state, regions)
            return
        for replica in system.missing:
            log.warning(
                f"dataset {replica} is not in its store; `topmast datasets add` puts it there"
            )
        for line in (*quotas_beyond(system.fleet), *tenants_gone(system.service.machines.queue)):
            log.warning(line)
        recovered = f", recovered to record {system.rebuilt.seq}" if system.rebuilt.seq else ""
        say(f"Topmast is up at {url} (regions {', '.join(regions)}{recovered})")
        self._say_public()
        say("Submit with `topmast launch JOB.yaml`; stop with Ctrl-C: jobs run on.")
        sys.stdout.flush()

    def _say_public(self) -> None:
        if self._entry.listener is not None:
            say(f"Other machines reach it at {self._address}")

    def _say_stands_by(self, url: str, state: Path) -> None:
        if self._options.json:
            say_document(url, state, [], role="standby")
            return
        say(f"Topmast stands by at {url}; stop with Ctrl-C.")
        self._say_public()
        sys.stdout.flush()


def say_document(url: str, state: Path, regions: Sequence[str | None], **more: str) -> None:
    """Where a server is, for programs."""
    say_block(json.dumps({"url": url, "state": str(state), "regions": regions, **more}))
    sys.stdout.flush()


def queue_endpoint(system: ControlPlane, region: str) -> LinkEndpoint:
    """What the placer of a region may ask of the queue."""
    return LinkEndpoint(
        partial(system.receive, region),
        for_queue=True,
        dataset=lambda name: system.replica(name, region),
        workdir=system.blobs.path,
    )
