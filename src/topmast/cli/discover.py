"""`fleet discover`: a fleet file of a cluster that is there already; a command for each engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.command import NOTHING, Session, command, group
from topmast.cli.output import note, say, say_block
from topmast.cli.text import plural

if TYPE_CHECKING:
    from topmast.adapters.engines.far.discovery import Discovered

RegionOption = Annotated[
    str | None,
    typer.Option("--region", metavar="NAME", help="The region's name, else the cluster's."),
]
ClusterOption = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME", help="The cluster's name, else what it says."),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Write there, and not to stdout."),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="An option of the engine; may be repeated."),
]


def add(fleet: typer.Typer) -> None:
    """Add the group and its commands to the group ``fleet``."""
    discover = group(
        fleet, "discover", help="Write a fleet file of a cluster that is there already.",
        panel="Fleet and data", example="topmast fleet discover slurm --out fleet.yaml",
    )  # fmt: skip
    command(
        discover, "slurm", asks=NOTHING,
        example="topmast fleet discover slurm\n"
        "topmast fleet discover slurm --partition gpu --region east --out fleet.yaml",
    )(slurm)  # fmt: skip
    command(
        discover, "kubernetes", asks=NOTHING,
        example="topmast fleet discover kubernetes\n"
        "topmast fleet discover kubernetes --context east --namespace ml --out fleet.yaml",
    )(kubernetes)  # fmt: skip
    command(
        discover, "ssh", asks=NOTHING,
        example="topmast fleet discover ssh gpu-1 gpu-2\n"
        "topmast fleet discover ssh gpu-1=10.0.0.7 --user topmast --out fleet.yaml\n"
        "topmast fleet discover ssh amd-1 amd-2 --gpu MI300X=8 --out fleet.yaml",
    )(ssh)  # fmt: skip


def ssh(
    session: Session,
    hosts: Annotated[
        list[str], typer.Argument(metavar="HOST...", help="Names, or NAME=ADDRESS for some.")
    ],
    user: Annotated[
        str, typer.Option(metavar="NAME", help="The account on the hosts, else this one's name.")
    ] = "",
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL=N",
            help="The GPUs of each host that shows none, as without nvidia-smi.",
        ),
    ] = None,
    region: RegionOption = None,
    cluster: ClusterOption = None,
    settings: SetOption = None,
    out: OutOption = None,
) -> None:
    """Log in to hosts, and ask for CPUs, memory, and what nvidia-smi shows."""
    from topmast.adapters.engines.far.discovery import as_declared
    from topmast.adapters.engines.far.ssh import SshOptions
    from topmast.adapters.engines.registry import read_options
    from topmast.model.errors import InvalidInput

    try:
        from topmast.adapters.engines.far.ssh.discover import discover
    except ImportError:
        raise InvalidInput(
            "hosts behind SSH need asyncssh", remedy="pip install 'topmast[ssh]'"
        ) from None
    given = values.assignments(settings or [], "--set")
    if user:
        values.once(given, "user", user, "--user")
    pairs = [(name, address) for name, _, address in (host.partition("=") for host in hosts)]
    for name, address in pairs:
        if address:
            values.once(given, f"address.{name}", address, "HOST")
    options = read_options(given, SshOptions, engine="ssh", field="--set")
    unseen = next(iter(values.counts([gpu], "--gpu").items())) if gpu else None
    found = discover([name for name, _ in pairs], options, unseen)
    _write(session, found, "ssh", as_declared(given, options), region, cluster, out)


def slurm(
    session: Session,
    partition: Annotated[
        str, typer.Option(metavar="NAME", help="Only its hosts; jobs are submitted to it.")
    ] = "",
    gpu: Annotated[
        str, typer.Option(metavar="MODEL", help="The model of GPUs that Slurm gives no type.")
    ] = "",
    region: RegionOption = None,
    cluster: ClusterOption = None,
    settings: SetOption = None,
    out: OutOption = None,
) -> None:
    """Ask Slurm, by its own commands, for hosts, GPUs, CPUs, memory and switches."""
    from topmast.adapters.engines.far.discovery import as_declared
    from topmast.adapters.engines.far.slurm import SlurmOptions
    from topmast.adapters.engines.far.slurm.discover import discover
    from topmast.adapters.engines.registry import read_options

    given = values.assignments(settings or [], "--set")
    options = read_options(given, SlurmOptions, engine="slurm", field="--set")
    found = discover(options, partition, gpu)
    _write(session, found, "slurm", as_declared(given, options), region, cluster, out)


def kubernetes(
    session: Session,
    chosen: Annotated[
        str,
        typer.Option(
            "--context", metavar="NAME", help="A context of the kubeconfig, else its current one."
        ),
    ] = "",
    namespace: Annotated[
        str, typer.Option(metavar="NAME", help="Where pods are made, else as the context says.")
    ] = "",
    region: RegionOption = None,
    cluster: ClusterOption = None,
    settings: SetOption = None,
    out: OutOption = None,
) -> None:
    """Ask the API server for nodes, GPUs, CPUs, memory, zones and racks."""
    from topmast.adapters.engines.far.discovery import as_declared
    from topmast.adapters.engines.far.kubernetes.discover import discover
    from topmast.adapters.engines.far.kubernetes.options import KubernetesOptions
    from topmast.adapters.engines.registry import read_options

    given = values.assignments(settings or [], "--set")
    for option, text in {"context": chosen, "namespace": namespace}.items():
        if text:
            values.once(given, option, text, f"--{option}")
    options = read_options(given, KubernetesOptions, engine="kubernetes", field="--set")
    declared = as_declared(given, options)
    _write(session, discover(options), "kubernetes", declared, region, cluster, out)


def _write(
    session: Session, found: Discovered, engine: str, options: dict[str, Any],
    region: str | None, cluster: str | None, out: Path | None,
) -> None:  # fmt: skip
    """The fleet file, once the reader of fleet files has taken it."""
    from topmast.adapters.engines.far.discovery import fleet_document
    from topmast.model.files.fleetfile import parse_fleet
    from topmast.traces.machines import fleet_text, write_fleet

    # First: they may be why there is nothing to write.
    for line in found.notes:
        note(line)
    for line in found.left_out:
        note(f"left out: {line}")
    cluster = cluster or found.name
    document = fleet_document(
        found, engine, region=region or found.region or cluster, cluster=cluster, options=options
    )
    if out is None:
        parse_fleet(document, where="what was found")
        session.show(document, lambda: say_block(fleet_text(document)))
    else:
        made = write_fleet(document, out)
        gpus = ", ".join(f"{count} {model}" for model, count in sorted(made.gpus().items()))
        written = {"file": str(out), "hosts": len(found.hosts), "gpus": made.gpus()}
        session.show(
            written, lambda: say(f"wrote {out}: {plural(len(found.hosts), 'host')}, {gpus}")
        )
