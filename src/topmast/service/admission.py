"""Reading a job that a request brings: what it says, whether the caller may, what to warn of."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from topmast.model.access import Caller, Permission
from topmast.model.errors import InvalidInput, refuse_all
from topmast.model.expansion import with_places
from topmast.model.files.alike import read_like, shared_part
from topmast.model.files.jobfile import JobFile, faults_in_fleet, parse_job
from topmast.model.files.tenants import DEFAULT_TENANT
from topmast.model.fleet import Fleet
from topmast.model.job import JobSpec, needs_of_engine
from topmast.runtime.machines import Machines
from topmast.service.access import Access
from topmast.service.blobs import Blobs
from topmast.service.regions import Regions
from topmast.service.warnings import nowhere, residence, secrets_of_engines, warnings_of

MOST_WARNED = 10_000
MOST_GROUPS_WARNED = 4
LONGEST_WARNED = 1_000
"""Characters of warnings, of names of datasets and of secrets that are kept for a job like it."""
MOST_KNOWN = 1_000
"""So many jobs of a request are kept that others may be like."""


class Checked(Struct, frozen=True, gc=False):
    """A job of a request that may be submitted."""

    spec: JobSpec
    warnings: tuple[str, ...]
    kind: int = 0
    """The place of the first job of the request that it is like, but for what `read_like` reads."""


class Admission:
    """Checks jobs before they are submitted; used on the event loop alone."""

    def __init__(self, machines: Machines, regions: Regions, access: Access, blobs: Blobs) -> None:
        self._machines = machines
        self._regions = regions
        self._access = access
        self._blobs = blobs
        self._models: tuple[Fleet | None, tuple[str, ...]] = (None, ())
        """Those of the fleet that was asked last: with many hosts they take long to list."""
        self._warned: dict[tuple[Any, ...], tuple[str, ...]] = {}

    def read(
        self,
        caller: Caller,
        document: Any,
        user: str,
        where: str,
        before: Mapping[str, int] = MappingProxyType({}),
        workdir: str | None = None,
    ) -> JobSpec:
        """A job from a request, checked against the fleet. Raises InvalidInput, Forbidden.

        An error has all that is wrong in ``more``, and the job without that in ``rest``. A tenant
        that the caller may neither see nor submit for is unknown.
        ``before``: how many jobs that come before it in the request have a name. ``workdir``: as
        `with_workdir` has it; None: the job needs no work folder yet.
        """
        if not isinstance(document, dict):
            raise InvalidInput("must be an object", field=where, remedy="see the job file")
        tenants = self._machines.queue.tenancy.ledger.tenants
        own = self._access.tenants(caller, Permission.JOBS_SUBMIT)
        usable = tenants if own is None else [name for name in tenants if name in own]
        default = self._default_tenant(caller, usable)
        found = list[InvalidInput]()
        try:
            file = parse_job(
                document, where=where, tenant_default=default, user=user, before=before
            )
        except InvalidInput as error:
            if not isinstance(error.rest, JobFile):
                raise
            file, found = error.rest, [error, *error.more]
        if file.workdir is not None:
            remedy = "upload a snapshot (PUT /workdirs/DIGEST), and give its digest"
            message = "a request cannot bring a folder"
            found.append(InvalidInput(message, field="workdir", where=where, remedy=remedy))
        told, spec = {one.field for one in found}, file.spec
        unknown = self._faults_in_fleet(caller, spec, usable, where)
        found += (one for one in unknown if one.field not in told)
        if workdir is not None:
            try:
                spec = self.with_workdir(spec, workdir)
            except InvalidInput as error:
                found.append(error.at(where=where))
        refuse_all(found, spec)
        self._access.require(caller, Permission.JOBS_SUBMIT, spec.tenant)
        for_user = self._access.user(caller, user, spec.tenant)
        return spec if for_user == user else replace(spec, user=for_user)

    def _default_tenant(self, caller: Caller, usable: Collection[str]) -> str:
        """Where a job goes that names no tenant; ``usable``: those that it may be submitted for."""
        kind, _, name = caller.principal.subject.partition(":")
        account = self._machines.accounts.accounts.get(name) if kind == "sa" else None
        if account is not None and account.tenant in usable:
            return account.tenant
        return DEFAULT_TENANT if DEFAULT_TENANT in usable else next(iter(usable), DEFAULT_TENANT)

    def _faults_in_fleet(
        self, caller: Caller, spec: JobSpec, usable: Collection[str], where: str
    ) -> tuple[InvalidInput, ...]:
        """What a job names that there is not, for all that a caller knows.

        ``usable``: the tenants that it may submit for.
        """
        tenants = self._machines.queue.tenancy.ledger.tenants
        seen = self._access.tenants(caller, Permission.JOBS_VIEW)
        known = tenants if seen is None else [n for n in tenants if n in seen or n in usable]
        faults = tuple(faults_in_fleet(spec, known, self._known_models(), where))
        if seen is not None and spec.tenant not in known:
            of_tenant = next(fault for fault in faults if fault.field == "tenant")
            of_tenant.may_conceal = True
            if spec.tenant in tenants:
                at = f" for tenant {spec.tenant}"
                of_tenant.conceals = caller.principal.refusal(Permission.JOBS_SUBMIT, at)
        return faults

    def _known_models(self) -> tuple[str, ...]:
        fleet = self._machines.queue.fleet
        if self._models[0] is not fleet:
            self._models = (fleet, fleet.models())
        return self._models[1]

    def with_workdir(self, spec: JobSpec, workdir: str) -> JobSpec:
        """The job with its work folder, which was uploaded before. Raises InvalidInput."""
        if workdir:
            spec = replace(spec, workdir=workdir)
        if spec.workdir and self._blobs.path(spec.workdir) is None:
            raise InvalidInput(
                "the server does not have this snapshot",
                field="workdir",
                remedy="upload it: --workdir FOLDER, or PUT it first",
            )
        return spec

    def warnings(self, spec: JobSpec) -> tuple[str, ...]:
        """What the user should know at once: the job is accepted but cannot start as things are."""
        queue, shapes = self._machines.queue, self._regions.shapes()
        unknown = queue.data.catalogue.unknown(spec.datasets)
        shape = tuple((g.count, g.resources) for g in spec.groups)
        datasets = len(queue.data.catalogue.datasets) if unknown else 0
        books = (id(queue.tenancy.ledger.tree), shapes, datasets)
        secrets = secrets_of_engines(spec)
        key = (
            shape,
            needs_of_engine(spec),
            secrets,
            spec.topology,
            spec.tenant,
            spec.band,
            spec.preemptible,
            unknown,
            tuple(nowhere(queue, spec)),
            residence(queue, spec),
            queue.tenancy.paused_by(spec.tenant),
            books,
        )
        if (known := self._warned.get(key)) is not None:
            return known
        regions = [placer.columns for placer in self._regions.placers.values()]
        # It is unknown what a region of another process can hold before it was reached.
        found = warnings_of(queue, None if shapes is None else regions, spec)
        if len(self._warned) > MOST_WARNED:
            self._warned.clear()
        texts = (*found, *spec.datasets, *secrets[0], *secrets[1])
        is_short = sum(map(len, texts)) <= LONGEST_WARNED
        if is_short and len(spec.groups) <= MOST_GROUPS_WARNED:
            self._warned[key] = found
        return found


class ManyJobs:
    """Reads the jobs of one request; of those that are alike, what they share is read once."""

    def __init__(self, admission: Admission, caller: Caller, user: str) -> None:
        self._admission = admission
        self._caller = caller
        self._user = user
        self._known: dict[bytes, Checked] = {}
        """By what jobs share, one that has it."""
        self._called: dict[str, int] = {}
        """How many jobs have a name, of those read."""
        self._places: dict[str, int] = {}
        """The last of them, by name."""

    def read(self, document: Any, place: int) -> Checked:
        """The job at a place of the request, with its work folder. Raises InvalidInput, Forbidden.

        O(document); where a job like it was read before, with little to do for each value.
        """
        key = shared_part(document) if isinstance(document, dict) else None
        known = self._known.get(key) if key is not None else None
        spec = None if known is None else read_like(known.spec, document)
        if known is None or spec is None:
            found = self._read_whole(document, place)
            if key is not None and len(self._known) < MOST_KNOWN:
                self._known[key] = found
        else:
            found = Checked(spec, known.warnings, known.kind)
        name = found.spec.name
        self._called[name] = self._called.get(name, 0) + 1
        self._places[name] = place
        return found

    def _read_whole(self, document: Any, place: int) -> Checked:
        admission, where = self._admission, f"jobs[{place}]"
        remedy = "submit each sweep by itself"
        many = InvalidInput("a sweep is many jobs", field=f"{where}.sweep", remedy=remedy)
        try:
            spec = admission.read(self._caller, document, self._user, where, self._called, "")
        except InvalidInput as error:
            if isinstance(error.rest, JobSpec) and error.rest.sweep:
                error.more += (many,)
            raise
        if spec.sweep:
            raise many
        spec = with_places(spec, self._places)
        return Checked(spec, admission.warnings(spec), place)
