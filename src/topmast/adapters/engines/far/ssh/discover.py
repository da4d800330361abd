"""What hosts behind SSH have: CPUs, memory, and the GPUs that nvidia-smi shows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

from topmast.adapters.engines.far.discovery import MIB, Discovered, short_model
from topmast.adapters.engines.far.launcher import Refused, Unreachable
from topmast.adapters.engines.far.ssh.lines import FAILURES, NotUsable, Where, connected
from topmast.adapters.engines.far.ssh.options import SshOptions
from topmast.model.errors import InvalidInput
from topmast.model.fleet import HostSpec

AT_ONCE = 8
FACTS_S = 30.0
GB = 10**9
CLUSTER = "ssh"


def discover(names: Sequence[str], options: SshOptions) -> Discovered:
    """Ask these hosts. Those that do not answer are left out. Raises InvalidInput."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidInput(f"host {twice[0]} is named twice", field="HOST")
    answers = asyncio.run(_ask_all(names, options))
    left_out = [f"{name}: {said}" for name, said in answers.items() if isinstance(said, str)]
    facts = {name: said for name, said in answers.items() if not isinstance(said, str)}
    for name, said in list(facts.items()):
        if len(models := sorted({gpu["name"] for gpu in said["gpus"]})) > 1:
            left_out.append(f"{name}: GPUs of types {', '.join(models)}; hosts have one model")
            del facts[name]
    if not facts:
        raise InvalidInput(f"no host is left: {'; '.join(left_out)}", field="HOST")
    hosts = tuple(_host(name, said) for name, said in facts.items())
    notes = tuple(
        f"{name} has no GPUs: {said['why']}" for name, said in facts.items() if said["why"]
    )
    return Discovered(CLUSTER, hosts, left_out=tuple(left_out), notes=notes)


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


async def _ask_all(names: Sequence[str], options: SshOptions) -> dict[str, Any]:
    """What each host says, or why it does not, as a text."""
    slots = asyncio.Semaphore(AT_ONCE)
    answers = await asyncio.gather(*(_ask(name, options, slots) for name in names))
    return dict(zip(names, answers, strict=True))


async def _ask(name: str, options: SshOptions, slots: asyncio.Semaphore) -> Any:
    where = Where(options.address.get(name, name), options)
    try:
        async with slots, asyncio.timeout(options.connect_s + FACTS_S), connected(where) as channel:
            return await channel.ask(op="facts")
    except TimeoutError:
        return "it does not answer"
    except (Refused, Unreachable, NotUsable) as error:
        return str(error)
    except FAILURES as error:
        return where.explain(error)
