"""The acts of the reference: a subject for each, the three ways to do it, and what it changes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.live import eventually, until_state
from topmast import Client
from topmast.model.errors import NotFound

FLEET = """
regions:
  east:
    clusters:
      east-1: {hosts: [{names: [e0, e1], gpu: H100, gpus: 8}]}
      east-2: {hosts: [{names: [f0], gpu: H100, gpus: 8}]}
  west: {clusters: {west-1: {hosts: [{names: [w0], gpu: A100, gpus: 4}]}}}
links: [{from: east, to: west, gbps: 100}]
tenants: {vision: {quota: {H100: 16}}, speech: {quota: {H100: 2}}}
"""
WAITS = {"tenant": "vision", "run": "true", "num_nodes": 9, "resources": {"accelerators": "H100:8"}}
RUNS = {"tenant": "vision", "run": "exec sleep 600", "resources": {"accelerators": "H100:1"}}
WHY = "tried in all ways"
FROM_S = float(round(time.time()) + 86_400)
UNTIL_S = FROM_S + 3_600.0
FROM, UNTIL = (datetime.fromtimestamp(at, UTC).isoformat() for at in (FROM_S, UNTIL_S))


@dataclass(frozen=True)
class World:
    """A server, a client of it, and what a shell needs."""

    client: Client
    url: str
    folder: Path
    taken: list[bytes]
    """What the receiver of webhooks was sent."""
    receiver: str
    numbers: Iterator[int] = field(default_factory=count)

    def name(self) -> str:
        return f"thing-{next(self.numbers)}"

    def file(self, text: str) -> Path:
        path = self.folder / f"{self.name()}.yaml"
        path.write_text(text)
        return path


Look = Callable[[World, str], object]
Given = Mapping[str, Any]


@dataclass(frozen=True)
class Act:
    """An act in three ways, on a subject that ``ready`` makes."""

    name: str
    """As the reference has it."""
    verb: str
    """As the audit log has it."""
    ready: Callable[[World], str]
    rest: str
    body: Callable[[World, str], dict[str, Any]]
    python: Callable[[World, str, Given], object]
    words: Callable[[World, str], str]
    look: Look
    want: object
    dry: bool = True
    dry_rest: str = ""
    """If another route shows what it would do."""
    reason: bool = True
    again: tuple[int, ...] = (200,)
    """What REST says to a repetition; nothing: it is one more act, by its meaning."""
    keyed: bool = False
    """Repetitions are known by their Idempotency-Key, which a command makes anew."""


# --- what there is, before and after ------------------------------------------------------------


def _job(w: World, document: Mapping[str, Any] = WAITS) -> str:
    return w.client.submit(dict(document)).id


def _running(w: World) -> str:
    """A job that runs, and will wait when it is stopped."""
    job = _job(w, RUNS)
    until_state(w.client, job, "RUNNING")
    return job


def _running_and_held(w: World) -> str:
    job = _running(w)
    w.client.hold([job])
    return job


def _after(act: Callable[[World, str], object]) -> Callable[[World], str]:
    """A waiting job to which something was done."""

    def ready(w: World) -> str:
        job = _job(w)
        act(w, job)
        return job

    return ready


def _state(w: World, job: str) -> object:
    return w.client.job(job).state


def _held(w: World, job: str) -> object:
    return bool(w.client.job(job).hold)


def _spec(name: str) -> Look:
    return lambda w, job: w.client.job_file(job).job.get(name)


def _named(w: World, name: str) -> object:
    return len(list(w.client.jobs(selector=f"name={name}*")))


def _tenant(act: Callable[[World], object]) -> Callable[[World], str]:
    def ready(w: World) -> str:
        w.client.resume_tenant("speech")
        with suppress(NotFound):
            w.client.end_quota("speech")
        act(w)
        return "speech"

    return ready


def _speech(name: str) -> Look:
    return lambda w, _: next(
        getattr(row, name)
        for row in w.client.tenants()
        if (row.name, row.gpu_model) == ("speech", "H100")
    )


def _paused(w: World, name: str) -> object:
    return bool(_speech("paused")(w, name))


def _tenants(w: World, more: str = "") -> dict[str, Any]:
    there = w.client.fleet().fleet["tenants"]
    kept = {name: there[name] for name in ("vision", "speech")}
    return kept | ({more: {}} if more else {})


def _no_more_tenants(w: World) -> str:
    w.client.fleet_apply(tenants=_tenants(w))
    return "extra"


def _fleet(w: World, name: str, given: Given) -> object:
    tenants = _tenants(w, name)
    return w.client.fleet_apply(tenants=tenants, **given)


def _host(state: str) -> Callable[[World], str]:
    def ready(w: World) -> str:
        w.client.uncordon_hosts(selector="host=*")
        if state == "cordoned":
            w.client.cordon_hosts(["e0"])
        return "e0"

    return ready


def _host_state(w: World, name: str) -> object:
    return next(host.state for host in w.client.hosts() if host.name == name)


def _cluster(opened: bool) -> Callable[[World], str]:
    def ready(w: World) -> str:
        (w.client.open_cluster if opened else w.client.close_cluster)("east-2")
        return "east-2"

    return ready


def _cluster_state(w: World, name: str) -> object:
    return next(one.state for one in w.client.clusters() if one.name == name)


def _profile(w: World) -> str:
    w.client.set_profile("mast")
    return "tiresias-las"


def _no_reservation(w: World) -> str:
    for one in w.client.reservations():
        w.client.end_reservation(one.name)
    return "w0"


def _reservation(w: World) -> str:
    _no_reservation(w)
    return w.client.reserve(["w0"], from_s=FROM_S, until_s=UNTIL_S).name


def _reservations(w: World, _: str) -> object:
    return len(w.client.reservations())


def _files(w: World) -> str:
    folder = w.folder / "files"
    folder.mkdir(exist_ok=True)
    (folder / "x").write_bytes(b"x" * 100)
    return str(folder)


def _dataset(*regions: str) -> Callable[[World], str]:
    def ready(w: World) -> str:
        name = w.name()
        w.client.add_dataset(name, "east", source=_files(w))
        for region in regions:
            w.client.replicate(name, region)
            eventually(lambda: len(_regions(w, name)) > 1, "it is copied")
        return name

    return ready


def _regions(w: World, name: str) -> tuple[str, ...]:
    found = [one for one in w.client.datasets() if one.name == name]
    return tuple(r.region for one in found for r in one.replicas if r.state == "complete")


def _webhook(w: World) -> str:
    name = w.name()
    w.client.put_webhook(name, w.receiver)
    return name


def _webhooks(w: World, name: str) -> object:
    return name in {view.webhook.name for view in w.client.webhooks()}


def _account(w: World) -> str:
    name = w.name()
    w.client.add_account(name, "vision")
    return name


def _accounts(w: World, name: str) -> object:
    return name in {account.name for account in w.client.accounts()}


def _token(w: World) -> str:
    return w.client.create_token(account=_account(w)).view.id


def _role(w: World) -> str:
    name = _account(w)
    w.client.grant(f"sa:{name}", "viewer", "vision")
    return name


def _roles(w: World, name: str) -> object:
    return f"sa:{name}" in {role.subject for role in w.client.roles()}


# --- the acts -----------------------------------------------------------------------------------


def _on_jobs(
    name: str, ready: Callable[[World], str], look: Look, want: object,
    verb: str = "", method: str = "",
) -> Act:  # fmt: skip
    """An act on many jobs; command and, unless it is named, method bear the name of the verb."""
    verb = verb or name
    return Act(
        name, verb, ready, f"POST /jobs/{verb}", lambda w, s: {"jobs": [s]},
        lambda w, s, given: getattr(w.client, method or verb)([s], **given),
        lambda w, s: f"{verb} {s}", look, want,
    )  # fmt: skip


JOBS = [
    Act(
        "submit one", "submit", World.name,
        "POST /jobs", lambda w, s: {"job": {**WAITS, "name": s}},
        lambda w, s, given: (
            w.client.dry_run({**WAITS, "name": s}) if given.get("dry_run")
            else w.client.submit({**WAITS, "name": s}, key=s)
        ),
        lambda w, s: f"launch {w.file(json.dumps(WAITS))} --name {s}",
        _named, 1, dry_rest="POST /jobs/dry-run", reason=False, again=(200, 201), keyed=True,
    ),
    Act(
        "submit many, a sweep, jobs that depend on one another", "submit", World.name,
        "POST /jobs/bulk", lambda w, s: {"jobs": [{**WAITS, "name": s}] * 2},
        lambda w, s, given: w.client.submit_many([{**WAITS, "name": s}] * 2, key=s),
        lambda w, s: "launch " + str(w.file("\n---\n".join([json.dumps({**WAITS, "name": s})] * 2))),
        _named, 2, dry=False, reason=False, again=(200, 201), keyed=True,
    ),
    Act(
        "cancel one", "cancel", _job,
        "POST /jobs/{s}/cancel", lambda w, s: {},
        lambda w, s, given: w.client.cancel(s, **given),
        lambda w, s: f"cancel {s}",
        _state, "CANCELLED", again=(202,),
    ),
    _on_jobs("cancel many", _job, _state, "CANCELLED", verb="cancel", method="cancel_jobs"),
    _on_jobs("hold", _job, _held, True),
    _on_jobs("release", _after(lambda w, s: w.client.hold([s])), _held, False),
    _on_jobs("suspend", _running, lambda w, s: (_state(w, s), _held(w, s)), ("PENDING", True)),
    _on_jobs("resume", _after(lambda w, s: w.client.suspend([s])), _held, False),
    _on_jobs("preempt", _running_and_held, _state, "PENDING"),
    _on_jobs("requeue", _after(lambda w, s: w.client.cancel(s)), _state, "PENDING"),
    Act(
        "change what they ask for", "edit", _job,
        "POST /jobs/edit", lambda w, s: {"jobs": [s], "changes": {"max_restarts": 7}},
        lambda w, s, given: w.client.edit_jobs([s], changes={"max_restarts": 7}, **given),
        lambda w, s: f"edit {s} --max-restarts 7",
        _spec("max_restarts"), 7,
    ),
    Act(
        "change their priority", "edit", _job,
        "POST /jobs/edit", lambda w, s: {"jobs": [s], "changes": {"priority": "low"}},
        lambda w, s, given: w.client.reprioritize([s], priority="low", **given),
        lambda w, s: f"reprioritize low {s}",
        _spec("priority"), "low",
    ),
]  # fmt: skip

TENANTS = [
    Act(
        "pause, drain", "pause-tenant", _tenant(lambda w: None),
        "POST /tenants/{s}/pause", lambda w, s: {},
        lambda w, s, given: w.client.pause_tenant(s, **given),
        lambda w, s: f"tenants pause {s}",
        _paused, True,
    ),
    Act(
        "resume", "resume-tenant", _tenant(lambda w: w.client.pause_tenant("speech")),
        "POST /tenants/{s}/resume", lambda w, s: {},
        lambda w, s, given: w.client.resume_tenant(s, **given),
        lambda w, s: f"tenants resume {s}",
        _paused, False,
    ),
    Act(
        "pause many", "pause-tenant", _tenant(lambda w: None),
        "POST /tenants/pause", lambda w, s: {"tenants": [s]},
        lambda w, s, given: w.client.pause_tenants([s], **given),
        lambda w, s: f"tenants pause --selector tenant={s[:-1]}*",
        _paused, True,
    ),
    Act(
        "resume many", "resume-tenant", _tenant(lambda w: w.client.pause_tenant("speech")),
        "POST /tenants/resume", lambda w, s: {"selector": f"tenant={s}"},
        lambda w, s, given: w.client.resume_tenants(selector=f"tenant={s}", **given),
        lambda w, s: f"tenants resume --selector tenant={s}",
        _paused, False,
    ),
    Act(
        "another quota for a while", "set-quota", _tenant(lambda w: None),
        "POST /tenants/{s}/quota", lambda w, s: {"quota": {"H100": 1}, "until_s": UNTIL_S},
        lambda w, s, given: w.client.set_quota(s, {"H100": 1}, until_s=UNTIL_S, **given),
        lambda w, s: f"tenants quota {s} --gpus H100=1 --until {UNTIL}",
        _speech("nominal"), 1.0,
    ),
    Act(
        "end that", "end-quota",
        _tenant(lambda w: w.client.set_quota("speech", {"H100": 1}, until_s=UNTIL_S)),
        "POST /tenants/{s}/quota/end", lambda w, s: {},
        lambda w, s, given: w.client.end_quota(s, **given),
        lambda w, s: f"tenants quota {s} --end",
        _speech("nominal"), 2.0, again=(404,),
    ),
]  # fmt: skip


def _on_host(name: str, verb: str, many: bool, was: str, want: str) -> Act:
    method = f"{verb}_hosts" if many else verb
    return Act(
        name, verb, _host(was),
        f"POST /hosts/{verb}" if many else f"POST /hosts/{{s}}/{verb}",
        lambda w, s: {"hosts": [s]} if many else {},
        lambda w, s, given: getattr(w.client, method)([s] if many else s, **given),
        lambda w, s: f"{verb} --selector host={s}" if many else f"{verb} {s}",
        _host_state, want,
    )  # fmt: skip


FLEET_ACTS = [
    Act(
        "change regions, clusters, hosts, tenants", "fleet-apply", _no_more_tenants,
        "POST /fleet/apply", lambda w, s: {"tenants": _tenants(w, s)},
        _fleet,
        lambda w, s: f"fleet apply --tenants {w.file(json.dumps({'tenants': _tenants(w, s)}))}",
        lambda w, s: s in w.client.fleet().fleet["tenants"], True, dry_rest="POST /fleet/diff",
    ),
    _on_host("cordon one host", "cordon", False, "healthy", "cordoned"),
    _on_host("uncordon one", "uncordon", False, "cordoned", "healthy"),
    _on_host("drain one", "drain", False, "healthy", "draining"),
    _on_host("cordon many", "cordon", True, "healthy", "cordoned"),
    _on_host("uncordon many", "uncordon", True, "cordoned", "healthy"),
    _on_host("drain many", "drain", True, "healthy", "draining"),
    Act(
        "close a cluster", "close-cluster", _cluster(opened=True),
        "POST /clusters/{s}/close", lambda w, s: {},
        lambda w, s, given: w.client.close_cluster(s, **given),
        lambda w, s: f"clusters close {s}",
        _cluster_state, "closed",
    ),
    Act(
        "open it", "open-cluster", _cluster(opened=False),
        "POST /clusters/{s}/open", lambda w, s: {},
        lambda w, s, given: w.client.open_cluster(s, **given),
        lambda w, s: f"clusters open {s}",
        _cluster_state, "open",
    ),
    Act(
        "close many", "close-cluster", _cluster(opened=True),
        "POST /clusters/close", lambda w, s: {"clusters": [s]},
        lambda w, s, given: w.client.close_clusters([s], **given),
        lambda w, s: f"clusters close --selector region=east,cluster={s}",
        _cluster_state, "closed",
    ),
    Act(
        "open many", "open-cluster", _cluster(opened=False),
        "POST /clusters/open", lambda w, s: {"selector": f"cluster={s}"},
        lambda w, s, given: w.client.open_clusters(selector=f"cluster={s}", **given),
        lambda w, s: f"clusters open --selector cluster={s}",
        _cluster_state, "open",
    ),
    Act(
        "set the profile of the next leader", "set profile", _profile,
        "PUT /profile", lambda w, s: {"profile": s},
        lambda w, s, given: w.client.set_profile(s, **given),
        lambda w, s: f"policies set {s}",
        lambda w, s: w.client.profile().later.name, "tiresias-las",
    ),
    Act(
        "reserve hosts", "reserve", _no_reservation,
        "POST /reservations",
        lambda w, s: {"hosts": [s], "from_s": FROM_S, "until_s": UNTIL_S},
        lambda w, s, given: w.client.reserve([s], from_s=FROM_S, until_s=UNTIL_S, **given),
        lambda w, s: f"reserve add {s} --from {FROM} --until {UNTIL}",
        _reservations, 1, again=(201,),
    ),
    Act(
        "end a reservation", "end-reservation", _reservation,
        "POST /reservations/{s}/end", lambda w, s: {},
        lambda w, s, given: w.client.end_reservation(s, **given),
        lambda w, s: f"reserve end {s}",
        _reservations, 0, again=(404,),
    ),
]  # fmt: skip

DATA = [
    Act(
        "add a dataset", "add-dataset", World.name,
        "POST /datasets", lambda w, s: {"name": s, "region": "east", "source": _files(w)},
        lambda w, s, given: w.client.add_dataset(s, "east", source=_files(w), **given),
        lambda w, s: f"datasets add {s} --region east --source {_files(w)}",
        _regions, ("east",), again=(409,),
    ),
    Act(
        "copy it to a region", "replicate", _dataset(),
        "POST /datasets/{s}/replicas", lambda w, s: {"region": "west"},
        lambda w, s, given: w.client.replicate(s, "west", **given),
        lambda w, s: f"datasets replicate {s} west",
        _regions, ("east", "west"), again=(202,),
    ),
    Act(
        "drop a replica", "drop-replica", _dataset("west"),
        "DELETE /datasets/{s}/replicas/west", lambda w, s: {},
        lambda w, s, given: w.client.drop(s, "west", **given),
        lambda w, s: f"datasets drop {s} west",
        _regions, ("east",), again=(404,),
    ),
    Act(
        "remove it", "remove-dataset", _dataset(),
        "DELETE /datasets/{s}", lambda w, s: {},
        lambda w, s, given: w.client.remove_dataset(s, **given),
        lambda w, s: f"datasets rm {s}",
        _regions, (), again=(404,),
    ),
]  # fmt: skip

WEBHOOKS = [
    Act(
        "add or change one", "put webhook", World.name,
        "PUT /webhooks/{s}", lambda w, s: {"url": w.receiver},
        lambda w, s, given: w.client.put_webhook(s, w.receiver, **given),
        lambda w, s: f"notify add {s} {w.receiver}",
        _webhooks, True,
    ),
    Act(
        "remove it", "remove webhook", _webhook,
        "DELETE /webhooks/{s}", lambda w, s: {},
        lambda w, s, given: w.client.remove_webhook(s, **given),
        lambda w, s: f"notify remove {s}",
        _webhooks, False, again=(404,),
    ),
    Act(
        "send it a message", "test webhook", _webhook,
        "POST /webhooks/{s}/test", lambda w, s: {},
        lambda w, s, given: w.client.test_webhook(s),
        lambda w, s: f"notify test {s}",
        lambda w, s: sum(f"{s}_test_".encode() in one for one in w.taken), 1,
        dry=False, reason=False, again=(),
    ),
]  # fmt: skip

ACCOUNTS = [
    Act(
        "make a token", "create-token", _account,
        "POST /tokens", lambda w, s: {"account": s},
        lambda w, s, given: w.client.create_token(account=s, **given),
        lambda w, s: f"tokens create --account {s}",
        lambda w, s: sum(token.subject == f"sa:{s}" for token in w.client.tokens()), 1,
        dry=False, reason=False, again=(),
    ),
    Act(
        "revoke it", "revoke-token", _token,
        "DELETE /tokens/{s}", lambda w, s: {},
        lambda w, s, given: w.client.revoke_token(s, **given),
        lambda w, s: f"tokens revoke {s}",
        lambda w, s: s in {token.id for token in w.client.tokens()}, False,
        again=(404,),
    ),
    Act(
        "make a service account", "add-account", World.name,
        "POST /accounts", lambda w, s: {"name": s, "tenant": "vision"},
        lambda w, s, given: w.client.add_account(s, "vision", **given),
        lambda w, s: f"accounts add {s} vision",
        _accounts, True, again=(201,),
    ),
    Act(
        "remove it", "remove-account", _account,
        "DELETE /accounts/{s}", lambda w, s: {},
        lambda w, s, given: w.client.remove_account(s, **given),
        lambda w, s: f"accounts remove {s}",
        _accounts, False, again=(404,),
    ),
    Act(
        "grant a role", "grant-role", _account,
        "POST /roles/grant",
        lambda w, s: {"subject": f"sa:{s}", "role": "viewer", "tenant": "vision"},
        lambda w, s, given: w.client.grant(f"sa:{s}", "viewer", "vision", **given),
        lambda w, s: f"roles grant sa:{s} viewer vision",
        _roles, True, again=(201,),
    ),
    Act(
        "take it away", "revoke-role", _role,
        "POST /roles/revoke",
        lambda w, s: {"subject": f"sa:{s}", "role": "viewer", "tenant": "vision"},
        lambda w, s, given: w.client.revoke(f"sa:{s}", "viewer", "vision", **given),
        lambda w, s: f"roles revoke sa:{s} viewer vision",
        _roles, False, again=(404,),
    ),
]  # fmt: skip

ACTS = [*JOBS, *TENANTS, *FLEET_ACTS, *DATA, *WEBHOOKS, *ACCOUNTS]
