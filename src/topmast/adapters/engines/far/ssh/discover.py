"""What hosts behind SSH have: CPUs, memory, and the GPUs that nvidia-smi shows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, structs

from topmast.adapters.clock import wall_s
from topmast.adapters.engines.far.discovery import MIB, Discovered, short_model
from topmast.adapters.engines.far.launcher import Refused, Unreachable
from topmast.adapters.engines.far.ssh.lines import NotUsable, Where, connected
from topmast.adapters.engines.far.ssh.options import SshOptions
from topmast.adapters.engines.forms import UNIX
from topmast.model.errors import InvalidInput
from topmast.model.files.fields import is_model
from topmast.model.fleet import ClusterSpec, HostSpec
from topmast.model.units import show

AT_ONCE = 32
FACTS_S = 30.0
GB = 10**9
NOWHERE = "/nowhere"
"""Where a socket leads that is forwarded only to see whether it can be."""
CLUSTER = "ssh"


def discover(
    names: Sequence[str], options: SshOptions, unseen: tuple[str, int] | None = None
) -> Discovered:
    """Ask these hosts. Those that do not answer are left out. Raises InvalidInput.

    ``unseen``: the GPUs, by model and count, of each host that shows none.
    """
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidInput(f"host {twice[0]} is named twice", field="HOST")
    facts, left_out = look(names, options)
    hosts = [_host(name, said) for name, said in facts.items()]
    why = {name: said["why"] for name, said in facts.items() if not said["gpus"]}
    odd = [f"{name}: {said['why']}" for name, said in facts.items() if said["gpus"] and said["why"]]
    if unseen is not None:
        model, gpus = unseen
        hosts = [structs.replace(h, model=model, gpus=gpus) if h.name in why else h for h in hosts]
    elif len(why) == len(hosts):
        told = "; ".join(f"{name}: {reason}" for name, reason in why.items())
        raise InvalidInput(
            f"no host shows GPUs ({told}), and a fleet has some", field="HOST",
            remedy="say what each of them has by --gpu MODEL=N",
        )  # fmt: skip
    has = f"is written with {unseen[1]} {unseen[0]}" if unseen else "has no GPUs"
    notes = [*(f"{name} {has}: {reason}" for name, reason in why.items()), *odd]
    return Discovered(CLUSTER, tuple(hosts), left_out=tuple(left_out), notes=tuple(notes))


def look(names: Sequence[str], options: SshOptions) -> tuple[dict[str, Any], list[str]]:
    """What each host says of itself, and those of which a fleet can have nothing, with why.

    Raises InvalidInput when none is left.
    """
    answers = asyncio.run(_ask_all(names, options))
    left_out = [f"{name}: {said}" for name, said in answers.items() if isinstance(said, str)]
    facts = {name: said for name, said in answers.items() if not isinstance(said, str)}
    hosts: dict[str, str] = {}
    for name, said in list(facts.items()):
        models = sorted({gpu["name"] for gpu in said["gpus"]})
        first = hosts.setdefault(said["machine"], name)
        if first != name:
            left_out.append(f"{name}: it is the same machine as {first}, by another address")
        elif len(models) > 1:
            left_out.append(f"{name}: GPUs of types {', '.join(models)}; hosts have one model")
        elif models and not is_model(short_model(models[0])):
            left_out.append(
                f"{name}: nvidia-smi calls its GPUs {show(models[0])}, which is no model"
            )
        else:
            continue
        del facts[name]
    if not facts:
        raise InvalidInput(f"no host is left: {'; '.join(left_out)}", field="HOST")
    return facts, left_out


def _host(name: str, said: Any) -> HostSpec:
    gpus = said["gpus"]
    return HostSpec(
        name,
        short_model(gpus[0]["name"]) if gpus else "",
        len(gpus),
        gpu_memory_bytes=gpus[0]["memory_bytes"] // GB * GB if gpus else 0,
        cpus=float(said["cpus"]),
        memory_bytes=said["memory_bytes"] // MIB * MIB,
    )


class Told(Struct, frozen=True):
    """What the hosts of a cluster say."""

    found: Discovered
    """What they have; of those that do not show their GPUs it is what the fleet file says."""
    unseen: list[str]
    """Those that do not show them, with why: a host without nvidia-smi may have GPUs."""
    skews_s: dict[str, float]
    """How far the clock of each is ahead of ours."""


def as_told(cluster: ClusterSpec, options: SshOptions) -> Told:
    """What the hosts of a cluster say. Raises InvalidInput when none answers."""
    told = {host.name: host for host in cluster.hosts}
    facts, left_out = look(list(told), options)
    hosts = {name: _host(name, said) for name, said in facts.items()}
    unseen = [name for name, said in facts.items() if not said["gpus"] and told[name].gpus]
    for name in unseen:
        hosts[name] = structs.replace(hosts[name], model=told[name].model, gpus=told[name].gpus)
    return Told(
        Discovered(CLUSTER, tuple(hosts.values()), left_out=tuple(left_out)),
        [f"{name}: {facts[name]['why']}" for name in unseen],
        {name: said["skew_s"] for name, said in facts.items()},
    )


async def _ask_all(names: Sequence[str], options: SshOptions) -> dict[str, Any]:
    """What each host says, or why it does not, as a text."""
    slots = asyncio.Semaphore(AT_ONCE)
    answers = await asyncio.gather(*(_ask(name, options, slots) for name in names))
    return dict(zip(names, answers, strict=True))


async def _ask(name: str, options: SshOptions, slots: asyncio.Semaphore) -> Any:
    where = Where(options.address.get(name, name), options)
    try:
        async with slots, connected(where) as channel, asyncio.timeout(FACTS_S):
            said = await channel.ask(op="facts", folder=options.folder)
            said["skew_s"] = said["now_s"] - wall_s()
            if said["hindrance"]:
                return said["hindrance"]
            if options.listen.startswith(UNIX):  # else runners need no way through the connection
                await channel.forward((await channel.ask(op="trial"))["socket"], NOWHERE)
            return said
    except TimeoutError:
        return f"no answer within {FACTS_S:g} s after the login: does a disk of it hang?"
    except (Refused, Unreachable, NotUsable) as error:
        return str(error)
    except Exception as error:  # whatever it is, the other hosts are to be told of
        return where.explain(error)
