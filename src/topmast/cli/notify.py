"""`topmast notify`: webhooks, which are told of what happens to jobs and hosts."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli import values
from topmast.cli.actoptions import ActOptions
from topmast.cli.command import Session, command, group
from topmast.cli.completion import complete_tenants
from topmast.cli.output import Column, note, say, say_table, warn
from topmast.cli.text import moment

if TYPE_CHECKING:
    from topmast.model.webhooks import WebhookView

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name of a webhook.")]


class Template(StrEnum):
    """What messages look like."""

    JSON = "json"
    SLACK = "slack"


def add(app: typer.Typer) -> None:
    """Add the group of commands."""
    made = group(
        app, "notify",
        example="topmast notify add ops https://hooks.example.com/topmast --event FAILED\n"
        "topmast notify list",
    )  # fmt: skip
    command(made, "list", example="topmast notify list")(listed)
    command(
        made, "add", example="topmast notify add ops https://hooks.example.com/topmast "
        "--secret file:/etc/topmast/webhook-key\n"
        "topmast notify add chat file:/etc/topmast/slack-url --template slack --tenant vision",
    )(put)  # fmt: skip
    command(made, "test", example="topmast notify test ops")(test)
    command(made, "remove", example="topmast notify remove ops")(remove)


def listed(session: Session) -> None:
    """All webhooks, and how they go.

    DELIVERED and LAST count from when the webhook was added, or changed the last time.
    """
    with session.client() as client:
        found = client.webhooks()
    session.show({"webhooks": found}, lambda: _say(found))


def put(
    session: Session,
    name: NameArgument,
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL", help="Where messages go: a URL, or file:/PATH or env:NAME of the server."
        ),
    ],
    secret: Annotated[
        str | None,
        typer.Option(metavar="PLACE", help="The key of signatures: file:/PATH or env:NAME."),
    ] = None,
    event: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only these events; may be repeated. Default: ends of jobs."
        ),
    ] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only jobs of these tenants and those below; may be repeated.",
            autocompletion=complete_tenants,
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE",
            help="Only jobs with these labels; may be repeated.",
            callback=values.ASSIGNMENTS,
        ),
    ] = None,
    template: Annotated[Template, typer.Option(help="What messages look like.")] = Template.JSON,
    options: ActOptions = ActOptions(),
) -> None:
    """Tell a URL of events from now on, or change the webhook of this name."""
    from topmast.model.webhooks import DEFAULT_EVENTS

    labels = values.assignments(label or [], "--label")
    with session.client() as client:
        was_there = name in {view.webhook.name for view in client.webhooks()}
        found = client.put_webhook(
            name, url, secret=secret or "", events=event or DEFAULT_EVENTS, tenants=tenant or (),
            labels=labels, template=template.value, **options.given,
        )  # fmt: skip
    options.tell()
    session.show(found, lambda: say(found.webhook.name))
    if was_there:
        note(f"{name} was there before: it {options.passive('changed')}")
    if not secret and template is Template.JSON:
        warn("its messages are not signed (--secret PLACE)")
    for warning in found.warnings:
        warn(warning)


def test(session: Session, name: NameArgument) -> None:
    """Send a message at once, and say whether it was taken."""
    with session.client() as client:
        found = client.test_webhook(name)
    session.show(found, lambda: say(f"{name} has taken it"))


def remove(session: Session, name: NameArgument, options: ActOptions = ActOptions()) -> None:
    """Remove a webhook. What it was not told yet, it never is."""
    with session.client() as client:
        found = client.remove_webhook(name, **options.given)
    options.tell()
    session.show(found, lambda: say(f"{name} {options.passive('removed')}"))


def _say(found: list[WebhookView]) -> None:
    columns = [
        Column("NAME", whole=True), Column("URL", beneath=True), Column("EVENTS"),
        Column("TENANTS"), Column("DELIVERED", right=True), Column("LAST"),
        Column("BEHIND", right=True), Column("ERROR", beneath=True),
    ]  # fmt: skip
    rows = [
        [
            view.webhook.name, view.webhook.url, ",".join(view.webhook.events),
            ",".join(view.webhook.tenants), str(view.delivered), moment(view.delivered_s),
            str(view.pending), f"{view.error}, tried {view.tries} times" if view.error else "",
        ]
        for view in found
    ]  # fmt: skip
    say_table(columns, rows)
