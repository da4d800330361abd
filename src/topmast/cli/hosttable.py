"""The table of hosts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topmast.cli.output import Cell, Column, Row, say, say_table
from topmast.cli.text import moment, number, plural

if TYPE_CHECKING:
    from topmast.model.views import HostView

_HOST_STYLES = {
    "healthy": "green",
    "suspect": "yellow",
    "draining": "yellow",
    "closed": "yellow",
    "down": "red",
    "stopped": "red",
}
_HOST_COLUMNS = [
    Column("HOST", whole=True), Column("REGION", spare=4), Column("CLUSTER", folds=True),
    Column("STATE"), Column("GPU", folds=True), Column("FREE", right=True),
    Column("GPUS", right=True), Column("DATACENTER", spare=1), Column("POD", spare=2),
    Column("RACK", spare=3), Column("JOBS", beneath=True),
]  # fmt: skip


def say_hosts(found: Sequence[HostView]) -> None:
    """The table of hosts, and what else there is to say about them."""
    rows: list[Row] = [
        [
            row.name, row.region, row.cluster,
            Cell(row.state, _HOST_STYLES.get(row.state, ""))
            if row.reachable
            else Cell(f"{row.state}, unreachable", "red"),
            row.gpu_model, number(row.free_gpus), str(row.gpus),
            row.datacenter, row.pod, row.rack, listed(row.jobs),
        ]
        for row in found
    ]  # fmt: skip
    say_table(_HOST_COLUMNS, rows)
    for row in found:
        for job, why in row.stays.items():
            say(f"{job} is still on {row.name}: {why}")
        until = "" if row.until_s is None else f", until {moment(row.until_s)}"
        if row.closed:
            state = f" is {row.state}" if row.state in ("closed", "suspect") else ""
            say(f"{row.name}{state}: {row.closed}{until}")
        elif until:
            say(f"{row.name} is {row.state}{until}")
        for job in row.kept_for:
            say(f"GPUs of {row.name} are kept for {job}, which is being moved there")


def listed(jobs: Sequence[str]) -> str:
    """The first of several names, and how many more there are."""
    if len(jobs) > 8:
        return f"{','.join(jobs[:6])} and {plural(len(jobs) - 6, 'more', 'more')}"
    return ",".join(jobs)
