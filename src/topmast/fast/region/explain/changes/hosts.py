"""Hosts that would have to come free, or back into service, to give a gang a place; each tried."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from topmast.fast.region.explain.changes.trials import Trials, count_of, listed
from topmast.fast.region.explain.rejections import emptied
from topmast.fast.region.inventory.columns import Bools, Columns, Ints
from topmast.fast.region.search.domains import Space, levels_of
from topmast.fast.region.search.packing import gpus_of_task
from topmast.fast.region.search.scoring import choices_of
from topmast.model.job import MILLI, Level
from topmast.model.reason import Change, ChangeKind
from topmast.model.states import SUSPECTED, HostState

HOSTS_NAMED = 64
_WITH_REASONS = (HostState.CLOSED, HostState.DOWN, HostState.SUSPECT)


def more_hosts(trials: Trials) -> Iterator[Change]:
    """Hosts of each cluster, as few as possible. O(clusters x choices x hosts log hosts)."""
    for cluster in sorted(trials.search.columns.clusters):
        yield from _hosts_freed(trials, cluster)
        yield from _hosts_back(trials, cluster)


def _hosts_freed(trials: Trials, cluster: str) -> Iterator[Change]:
    """The fewest hosts of one domain that would have to come free. O(choices x H log H)."""
    columns = trials.search.columns
    free = columns.empty()
    free.available = trials.space.columns.available
    rows = _fewest_hosts(trials, cluster, Space(free))
    if rows is None:
        return
    trial = columns.trial()
    for row in rows:
        trial.slots(row)[:] = MILLI
        trial.free_cpus[row], trial.free_memory[row] = columns.cpus[row], columns.memory[row]
    if trials.holds(trial) is not None:
        names = _names(columns, rows)
        have = _what_is_free(trials, rows[0])
        where = _domain_name(trials, rows[0])
        text = f"{count_of(len(rows), 'more host')} of {where} free ({listed(names)}){have}"
        hosts, held = set(names), trials.search.allocations.values()
        jobs = tuple(a.job for a in held if not hosts.isdisjoint(a.plan.hosts))
        yield _change(trials, cluster, ChangeKind.HOSTS, text, names, jobs)


def _hosts_back(trials: Trials, cluster: str) -> Iterator[Change]:
    """The fewest hosts out of service that would have to be in service. O(choices x H log H)."""
    columns = trials.search.columns
    if bool(columns.available[columns.clusters[cluster]].all()):
        return
    served = columns.trial()
    served.available = np.ones(len(columns.hosts), dtype=np.bool_)
    usable = Space(served, served.excluded(trials.ask))
    rows = _fewest_hosts(trials, cluster, usable)
    if rows is None:
        return
    trial = columns.trial()
    trial.available = columns.available.copy()
    trial.available[rows] = True
    if trials.holds(trial) is not None:
        names = _names(columns, rows)
        states = states_of(columns, names)
        text = f"{count_of(len(rows), 'host')} of {cluster} back in service ({states})"
        yield _change(trials, cluster, ChangeKind.SERVICE, text, names)


def _change(
    trials: Trials,
    cluster: str,
    kind: ChangeKind,
    text: str,
    hosts: tuple[str, ...],
    jobs: tuple[str, ...] = (),
) -> Change:
    """Hosts of a cluster that are to be free, or in service."""
    return Change(
        kind, text, _size_of_hosts(trials, cluster, len(hosts)), trials.search.region, cluster,
        to=float(len(hosts)), hosts=hosts[:HOSTS_NAMED], jobs=jobs[:HOSTS_NAMED],
    )  # fmt: skip


def _names(columns: Columns, rows: list[int]) -> tuple[str, ...]:
    return tuple(columns.hosts[row].name for row in rows)


def states_of(columns: Columns, hosts: Iterable[str]) -> str:
    """The states of hosts in words, those alike together, and why, where someone said why."""
    alike: dict[str, list[str]] = {}
    for host in hosts:
        state, why = columns.states[columns.index[host]], columns.closed.get(host, "")
        why = SUSPECTED if state is HostState.SUSPECT else why
        said = f": {why}" if why and state in _WITH_REASONS else ""
        alike.setdefault(f"{state.value}{said}", []).append(host)
    return "; ".join(
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} {state}"
        for state, names in alike.items()
    )


def _fewest_hosts(trials: Trials, cluster: str, better: Space) -> list[int] | None:
    """The fewest hosts of one domain that, each being as in ``better``, give the gang a place.

    Exact for a gang of one group: those that gain most come first. Of several groups, what the
    hungriest gains decides. O(choices x H log H).
    """
    rows = trials.search.columns.clusters[cluster]
    best: list[int] | None = None
    for choice in choices_of(trials.ask) if len(rows) else ():
        groups = trials.ask.groups
        group = max(groups, key=lambda g: (gpus_of_task(g.resources, choice), g.count))
        now = trials.space.room(group.resources, choice)[rows]
        then = better.room(group.resources, choice)[rows]
        domain = trials.search.columns.domain[levels_of(trials.ask)[-1]][rows]
        found = fewest_to_gain(domain, now, np.maximum(then - now, 0), group.count)
        if found is not None and len(found) and (best is None or len(found) < len(best)):
            best = rows[found].tolist()
    return best


def _size_of_hosts(trials: Trials, cluster: str, count: int) -> float:
    """How many hosts, against how many the gang would need if they were free."""
    empty = emptied(trials.search.columns, trials.ask)
    rows = trials.search.columns.clusters[cluster]
    most = [
        int(empty.room(g.resources, c)[rows].max(initial=0))
        for g in trials.ask.groups[:1]
        for c in choices_of(trials.ask)
    ]
    needed = -(-trials.ask.groups[0].count // max(1, *most, 1))
    return count / max(1, needed)


def _domain_name(trials: Trials, row: int) -> str:
    """The domain that the gang must stay in, by a host of it."""
    host, level = trials.search.columns.hosts[row], levels_of(trials.ask)[-1]
    cluster = trials.search.columns.cluster_of[row]
    names = {
        Level.HOST: cluster,
        Level.RACK: f"rack {host.rack} of {cluster}",
        Level.POD: f"pod {host.pod} of {cluster}",
        Level.DATACENTER: f"datacenter {host.datacenter} of {cluster}",
        Level.CLUSTER: cluster,
    }
    return names[level]


def _what_is_free(trials: Trials, row: int) -> str:
    """Of the GPUs that the gang needs, those free in the domain of a host, in words."""
    choice = choices_of(trials.ask)[0]
    groups = trials.ask.groups
    need = sum(g.count * gpus_of_task(g.resources, choice) for g in groups) / MILLI
    if not need:
        return ""
    columns = trials.search.columns
    numbers = columns.domain[levels_of(trials.ask)[-1]]
    here: Bools = (numbers == numbers[row]) & trials.space.columns.available
    models = {a.model for g in groups for a in g.resources.accelerators}
    if None not in models:
        here &= np.isin(columns.models.astype(str), sorted(str(model) for model in models))
    free = int(columns.free_by_host()[here].sum()) / MILLI
    gpus, be = "GPU" if need == 1 else "GPUs", "is" if free == 1 else "are"
    return f": it needs {need:g} {gpus}, and {free:g} {be} free there"


def fewest_to_gain(domain: Ints, now: Ints, gain: Ints, count: int) -> Ints | None:
    """The fewest hosts of a domain that bring its tasks from ``now`` up to ``count`` by ``gain``.

    Places in the arrays (hosts); of equals the domain first in order, and in it the hosts that gain
    most. None if no domain can. O(hosts log hosts).
    """
    order = np.lexsort((-gain, domain))
    numbers = domain[order]
    first = np.flatnonzero(np.concatenate([[True], numbers[1:] != numbers[:-1]]))
    best: Ints | None = None
    for start, end in zip(first.tolist(), [*first[1:].tolist(), len(order)], strict=True):
        here = order[start:end]
        missing = count - int(now[here].sum())
        gained = np.cumsum(gain[here])
        if missing > 0 and len(gained) and gained[-1] >= missing:
            needed = int(np.searchsorted(gained, missing)) + 1
            if best is None or needed < len(best):
                best = here[:needed]
    return best
