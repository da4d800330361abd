"""`bench search`, `queue`, `simulate`, `apart`, `burst` and `fill`: on a large fleet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from topmast.cli import values
from topmast.cli.command import FOLDER, Session, command
from topmast.cli.completion import complete_profiles
from topmast.cli.documents import say_document
from topmast.cli.rootoptions import BenchOptions

SeedOption = Annotated[int, typer.Option(help="The seed of all random numbers.")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change an option; may be repeated."),
]
OutOption = Annotated[
    Path | None, typer.Option(metavar="DIR", help="Write the figures and plots there.")
]


@dataclass(frozen=True)
class FleetOptions:
    """How large the fleet is, as `BenchOptions` has it."""

    regions: Annotated[int, typer.Option(min=1, help="Regions of the fleet.")] = 20
    clusters: Annotated[int, typer.Option(min=1, help="Clusters in all regions together.")] = 200
    hosts: Annotated[int, typer.Option(min=1, help="Hosts in all clusters together.")] = 20_000
    gpus_per_host: Annotated[int, typer.Option(min=1, max=64, help="GPUs of each host.")] = 8


def add(app: typer.Typer) -> None:
    """Add the commands to those of `bench`."""
    _add_search(app)
    _add_queue(app)
    _add_simulate(app)
    _add_apart(app)
    _add_burst(app)
    _add_fill(app)


def _add_search(app: typer.Typer) -> None:
    @command(
        app, "search", asks=FOLDER,
        example="topmast bench search --regions 20 --clusters 200 --hosts 20000 --json\n"
        "topmast bench search --scaling --out search/",
    )  # fmt: skip
    def search(
        session: Session,
        fleet: FleetOptions = FleetOptions(),
        fill: Annotated[
            float, typer.Option(min=0.0, max=1.0, help="The part of the fleet that is held.")
        ] = 0.9,
        sizes: Annotated[
            str, typer.Option(metavar="N,N,...", help="GPUs of the jobs that hold it.")
        ] = "1,2,4,8,16,64",
        jobs: Annotated[int, typer.Option(min=1, help="Decisions of each kind.")] = 2_000,
        mix: Annotated[
            bool, typer.Option("--mix", help="Let requests tell the mix of tasks, as a queue does.")
        ] = False,
        settings: SettingsOption = None,
        seed: SeedOption = 0,
        out: OutOption = None,
        scaling: Annotated[
            bool, typer.Option("--scaling", help="Measure fleets of other sizes as well.")
        ] = False,
        first_use: Annotated[
            bool, typer.Option(help="Measure how long it takes to compile the kernels.")
        ] = True,
    ) -> None:
        """Measure how fast the search decides over a large fleet."""
        options = BenchOptions(
            jobs=jobs, seed=seed, state=session.state, json=session.json, fill=fill, **vars(fleet),
            sizes_gpus=values.whole_numbers(sizes), scaling=scaling, first_use=first_use, out=out,
            mix=mix, settings=values.assignments(settings or [], "--set"),
        )  # fmt: skip
        _show(session, session.root.bench("search", options))


def _add_queue(app: typer.Typer) -> None:
    @command(
        app, "queue", asks=FOLDER, example="topmast bench queue --jobs 100000 --duration 20s --json"
    )
    def queue(
        session: Session,
        fleet: FleetOptions = FleetOptions(),
        jobs: Annotated[
            int, typer.Option(min=1, help="Jobs that wait at the beginning.")
        ] = 100_000,
        rate: Annotated[
            float, typer.Option(min=0.1, help="Jobs that end, and jobs that arrive, each second.")
        ] = 100.0,
        duration: Annotated[
            str, typer.Option(metavar="TIME", help="How long, for example 30s.")
        ] = "20s",
        seed: SeedOption = 0,
        out: OutOption = None,
    ) -> None:
        """Measure how long jobs wait for a decision while others come and go."""
        options = BenchOptions(
            jobs=jobs, seed=seed, state=session.state, json=session.json, rate=rate,
            duration_s=values.duration_s(duration), out=out, **vars(fleet),
        )  # fmt: skip
        _show(session, session.root.bench("queue", options))


def _add_simulate(app: typer.Typer) -> None:
    @command(
        app, "simulate", asks=FOLDER,
        example="topmast bench simulate --jobs 50000 --profile mast --json\n"
        "topmast bench simulate --scaling --out simulate/",
    )  # fmt: skip
    def simulate(
        session: Session,
        fleet: FleetOptions = FleetOptions(hosts=12_500),
        jobs: Annotated[int, typer.Option(min=1, help="Jobs of the trace.")] = 20_000,
        load: Annotated[
            float,
            typer.Option(
                help="The GPU time that jobs ask for over the GPU time there is, while jobs arrive."
            ),
        ] = 0.9,
        profile: Annotated[
            str,
            typer.Option(metavar="NAME", help="The policies.", autocompletion=complete_profiles),
        ] = "mast",
        seed: SeedOption = 0,
        out: OutOption = None,
        scaling: Annotated[
            bool, typer.Option("--scaling", help="Measure other numbers of jobs and hosts as well.")
        ] = False,
    ) -> None:
        """Measure how fast the simulator runs generated jobs."""
        options = BenchOptions(
            jobs=jobs, seed=seed, state=session.state, json=session.json, load=load,
            profile=profile, scaling=scaling, out=out, **vars(fleet),
        )  # fmt: skip
        _show(session, session.root.bench("simulate", options))


def _add_apart(app: typer.Typer) -> None:
    @command(
        app, "apart", asks=FOLDER, example="topmast bench apart --jobs 1000 --delay 20ms --json"
    )
    def apart(
        session: Session,
        hosts: Annotated[int, typer.Option(min=2, help="Hosts in both regions together.")] = 2_000,
        jobs: Annotated[int, typer.Option(min=2, help="Jobs of each scenario.")] = 1_000,
        delay: Annotated[
            str, typer.Option(metavar="TIME", help="How much longer a request between them takes.")
        ] = "0s",
        seed: SeedOption = 0,
        out: OutOption = None,
    ) -> None:
        """Measure decisions a second when regions have processes of their own."""
        options = BenchOptions(
            jobs=jobs, seed=seed, state=session.state, json=session.json, hosts=hosts,
            delay_s=values.duration_s(delay, "--delay"), out=out,
        )  # fmt: skip
        _show(session, session.root.bench("apart", options))


def _add_burst(app: typer.Typer) -> None:
    @command(
        app, "burst", asks=FOLDER,
        example="topmast bench burst --jobs 10000 --hosts 20000 --regions 20 --json\n"
        "topmast bench burst --jobs 1000 --hosts 200 --regions 2 --apart --delay 20ms",
    )  # fmt: skip
    def burst(
        session: Session,
        jobs: Annotated[
            int, typer.Option(min=1, max=100_000, help="Jobs of the one request.")
        ] = 10_000,
        hosts: Annotated[int, typer.Option(min=1, help="Hosts in all regions together.")] = 20_000,
        regions: Annotated[int, typer.Option(min=1, help="Regions of the fleet.")] = 20,
        gpus_per_host: Annotated[
            int, typer.Option(min=1, max=64, help="GPUs of each host; 64: room for all jobs.")
        ] = 8,
        apart: Annotated[
            bool, typer.Option("--apart", help="Give each region a process of its own.")
        ] = False,
        delay: Annotated[
            str, typer.Option(metavar="TIME", help="How much longer a request between them takes.")
        ] = "0s",
        settings: SettingsOption = None,
        seed: SeedOption = 0,
        out: OutOption = None,
    ) -> None:
        """Measure how fast a server places jobs that are submitted together."""
        options = BenchOptions(
            jobs=jobs, seed=seed, state=session.state, json=session.json, hosts=hosts,
            regions=regions, gpus_per_host=gpus_per_host, apart=apart,
            delay_s=values.duration_s(delay, "--delay"), out=out,
            settings=values.assignments(settings or [], "--set"),
        )  # fmt: skip
        _show(session, session.root.bench("burst", options))


def _add_fill(app: typer.Typer) -> None:
    @command(
        app, "fill",
        example="topmast bench fill --trace openb_pod_list_default.csv.gz "
        "--format openb --fleet openb.yaml",
    )  # fmt: skip
    def fill(
        session: Session,
        trace: Annotated[Path, typer.Option(metavar="FILE", help="The jobs.")],
        fleet: Annotated[Path, typer.Option(metavar="FILE", help="The fleet file.")],
        format: Annotated[
            str, typer.Option(metavar="NAME", help="The trace's format.")
        ] = "topmast",
        asked: Annotated[
            float,
            typer.Option(min=0.01, max=100.0, help="GPUs that jobs ask for, over those there are."),
        ] = 1.3,
        seeds: Annotated[
            int,
            typer.Option("--orders", "--seeds", min=1, help="How many random orders of the jobs."),
        ] = 3,
        seed: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
        profile: Annotated[
            str,
            typer.Option(metavar="NAME", help="The policies.", autocompletion=complete_profiles),
        ] = "mast",
        settings: SettingsOption = None,
    ) -> None:
        """Measure how many GPUs stay idle when more are asked for than there are."""
        options = BenchOptions(
            trace=trace, fleet=fleet, format=format, asked=asked, seeds=seeds, seed=seed,
            profile=profile, settings=values.assignments(settings or [], "--set"),
            json=session.json,
        )  # fmt: skip
        _show(session, session.root.bench("fill", options))


def _show(session: Session, document: object) -> None:
    session.show(document, lambda: say_document(document))
