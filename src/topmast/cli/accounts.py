"""`tokens`, `accounts`, `roles`, `whoami` and `audit`: what callers may do, and what they did."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer

from topmast.cli import values
from topmast.cli.actoptions import ActOptions
from topmast.cli.command import FOLDER, Session, command, group
from topmast.cli.completion import complete_roles
from topmast.cli.groups import Later
from topmast.cli.output import Column, note, say, say_fields, say_table, warn
from topmast.cli.text import moment
from topmast.model.roles import Role

if TYPE_CHECKING:
    from topmast.client import Client

Tenant = Annotated[
    str, typer.Argument(metavar="TENANT", help="A tenant, as a name or path; / is all of them.")
]
Subject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="user:NAME, sa:NAME or group:NAME.")
]


def _check_role(role: str) -> str:
    """The role; of one that there is not the server says so, with all else that is wrong."""
    if role not in tuple(Role):
        from topmast.model.files.fields import one_of

        raise Later(f"unknown role '{role[:100]}' ({one_of(role, tuple(Role))})", role)
    return role


ItsRole = Annotated[
    str,
    typer.Argument(
        metavar="ROLE", help=f"One of {', '.join(Role)}.", autocompletion=complete_roles,
        callback=_check_role,
    ),
]  # fmt: skip
Most = Annotated[
    int, typer.Option("--limit", "-n", min=0, help="The number of rows to show; 0 for all.")
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a service account.")]


def add(app: typer.Typer) -> None:
    """Add the commands."""
    command(app, "whoami", example="topmast whoami")(whoami)
    tokens = group(
        app, "tokens", example="topmast tokens create --for 30d --label laptop",
    )  # fmt: skip
    command(
        tokens, "create", example="topmast tokens create --label laptop --for 30d\n"
        "topmast tokens create --account ci --scope jobs.submit --scope jobs.view",
    )(create_token)  # fmt: skip
    command(tokens, "list", example="topmast tokens list")(list_tokens)
    command(tokens, "revoke", example="topmast tokens revoke t1a2b3c4d5e")(revoke_token)
    _add_accounts(app)
    roles = group(
        app, "roles", example="topmast roles grant group:nlp submitter research",
    )  # fmt: skip
    command(roles, "list", example="topmast roles list")(list_roles)
    command(
        roles, "grant", example="topmast roles grant user:ann@example.com tenant-admin research\n"
        "topmast roles grant group:platform admin /",
    )(grant)  # fmt: skip
    command(roles, "revoke", example="topmast roles revoke sa:ci submitter research")(revoke)
    command(
        app, "audit", example="topmast audit --since 24h --verb cancel\n"
        "topmast audit --actor user:ann@example.com --json",
    )(audit)  # fmt: skip


def _add_accounts(app: typer.Typer) -> None:
    accounts = group(
        app, "accounts", example="topmast accounts add ci research",
    )  # fmt: skip
    command(accounts, "list", example="topmast accounts list")(list_accounts)
    command(accounts, "add", example="topmast accounts add ci research")(add_account)
    command(accounts, "remove", example="topmast accounts remove ci")(remove_account)

    @command(
        accounts, "break-glass", asks=FOLDER,
        example="topmast accounts break-glass --state ./state --for 15m",
    )  # fmt: skip
    def break_glass(
        session: Session,
        life: Annotated[
            str,
            typer.Option(
                "--for", metavar="TIME", help="How long it is good.", callback=values.DURATION
            ),
        ] = "1h",
    ) -> None:
        """Print a token of an administrator, on the machine of the server.

        It is made in the state folder of the server, so only its owner can make one, and a standby
        with another folder does not know it. The one made before is good no more.
        """
        life_s = values.duration_s(life, "--for") or 0.0
        values.with_unit(life, "--for")
        if not 0 < life_s <= 86_400.0:
            message = "a break-glass token lasts longer than 0 s, and for a day at most"
            raise typer.BadParameter(message, param_hint="'--for'")
        token, replaces = session.root.break_glass(session.state_folder(), life_s)
        if replaces:
            note("the token made before is good no more")
        session.show({"token": token}, lambda: say(token))


def whoami(session: Session) -> None:
    """Show the own name and roles, as the server knows them."""
    with session.client() as client:
        found = client.whoami()
    roles = ", ".join(f"{role.role} at {role.tenant}" for role in found.roles)
    fields = [
        ("name", found.subject),
        ("by", found.via),
        ("roles", roles or "none"),
        ("groups", ", ".join(found.groups)),
        ("scopes", ", ".join(found.scopes or ())),
        ("until", moment(found.expires_s) if found.expires_s is not None else ""),
    ]
    session.show(found, lambda: say_fields(fields))


def create_token(
    session: Session,
    label: Annotated[str, typer.Option(metavar="TEXT", help="What it is for.")] = "",
    account: Annotated[
        str, typer.Option(metavar="NAME", help="The service account that gets it.")
    ] = "",
    life: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="TIME", help="How long it is good, as 30d.", callback=values.DURATION
        ),
    ] = None,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="PERMISSION", help="All that it is good for; may be repeated."),
    ] = None,
) -> None:
    """Make a token, and print it: it is shown this once.

    It is good for what its owner may do, unless scopes name less.
    """
    values.with_unit(life, "--for")
    life_s = values.duration_s(life, "--for")
    with session.client() as client:
        made = client.create_token(label, account=account, ttl_s=life_s, scopes=scope)
        session.show(made, lambda: say(made.token))
        if not session.json:
            view = made.view
            note(f"{view.id} of {view.subject}, until {moment(view.expires_s)}; keep it secret")
            _warn_without_roles(client, view.subject)


def _warn_without_roles(client: Client, subject: str) -> None:
    """Say of a token that it is good for nothing yet."""
    from topmast.model.access import BREAK_GLASS
    from topmast.model.errors import TopmastError

    # The token is made: that its roles are not told is no failure.
    with suppress(TopmastError):
        me = client.whoami()
        own = me.subject == subject and not me.via.startswith(BREAK_GLASS)
        if me.roles if own else any(role.subject == subject for role in client.roles()):
            return
        remedy = f"topmast roles grant {subject} ROLE TENANT"
        if subject.endswith(f":{BREAK_GLASS}"):
            remedy = "--account NAME makes one for a service account with roles"
        warn(f"{subject} has no role, so this token may do nothing: {remedy}")


def list_tokens(session: Session, limit: Most = 0) -> None:
    """List the own tokens, and those of service accounts that one may see.

    A use is noted once an hour: the last one may be up to an hour later than LAST USED.
    """
    with session.client() as client:
        found = client.tokens(limit=limit)
    columns = [
        Column("ID", whole=True), Column("KIND", spare=3), Column("OF", whole=True),
        Column("LAST 4", spare=4), Column("LABEL", folds=True), Column("UNTIL", whole=True),
        Column("LAST USED", whole=True, spare=1), Column("SCOPES", folds=True, spare=2),
    ]  # fmt: skip
    rows = [
        [
            token.id, token.kind, token.subject, f"...{token.last_four}", token.label,
            moment(token.expires_s), moment(token.used_s) if token.used_s is not None else "never",
            ",".join(token.scopes) if token.scopes is not None else "all",
        ]
        for token in found
    ]  # fmt: skip
    session.show({"tokens": found}, lambda: say_table(columns, rows))


def revoke_token(
    session: Session,
    token: Annotated[str, typer.Argument(metavar="ID", help="Its id.")],
    options: ActOptions = ActOptions(),
) -> None:
    """Make a token good for nothing, at once."""
    with session.client() as client:
        gone = client.revoke_token(token, **options.given)
    options.tell()
    session.show(gone, lambda: say(f"{gone.id} of {gone.subject} {options.passive('revoked')}"))


def list_accounts(session: Session, limit: Most = 0) -> None:
    """List the service accounts of the tenants that one may see."""
    with session.client() as client:
        found = client.accounts(limit=limit)
    columns = [Column("NAME", whole=True), Column("TENANT"), Column("TOKENS", right=True)]
    rows = [[account.name, account.tenant, str(account.tokens)] for account in found]
    session.show({"accounts": found}, lambda: say_table(columns, rows))


def add_account(
    session: Session, name: Name, tenant: Tenant, options: ActOptions = ActOptions()
) -> None:
    """Make a service account, which belongs to a tenant."""
    with session.client() as client:
        made = client.add_account(name, tenant, **options.given)
    options.tell()
    if options.dry_run:
        session.show(made, lambda: say(f"sa:{made.name} would belong to {made.tenant}"))
        return
    session.show(made, lambda: say(f"sa:{made.name} belongs to {made.tenant}; give it a role"))


def remove_account(session: Session, name: Name, options: ActOptions = ActOptions()) -> None:
    """Forget a service account with its tokens and roles."""
    with session.client() as client:
        gone = client.remove_account(name, **options.given)
    options.tell()
    removed = options.passive("removed")
    session.show(gone, lambda: say(f"sa:{gone.name} {removed}, with its tokens and roles"))


def list_roles(session: Session, limit: Most = 0) -> None:
    """List the roles at the tenants that one may see."""
    with session.client() as client:
        found = client.roles(limit=limit)
    columns = [Column("SUBJECT", whole=True), Column("ROLE"), Column("TENANT")]
    rows = [[role.subject, role.role, role.tenant] for role in found]
    session.show({"roles": found}, lambda: say_table(columns, rows))


def grant(
    session: Session,
    subject: Subject,
    role: ItsRole,
    tenant: Tenant,
    options: ActOptions = ActOptions(),
) -> None:
    """Give a role at a tenant and the tenants below it."""
    with session.client() as client:
        found = client.grant(subject, role, tenant, **options.given)
    options.tell()
    becomes = options.passive(found.role)
    session.show(found, lambda: say(f"{found.subject} {becomes} at {found.tenant}"))


def revoke(
    session: Session,
    subject: Subject,
    role: ItsRole,
    tenant: Tenant,
    options: ActOptions = ActOptions(),
) -> None:
    """Take a role away."""
    with session.client() as client:
        gone = client.revoke(subject, role, tenant, **options.given)
    options.tell()
    becomes = options.passive(gone.role)
    session.show(gone, lambda: say(f"{gone.subject} {becomes} at {gone.tenant} no more"))


def audit(
    session: Session,
    actor: Annotated[str | None, typer.Option(metavar="SUBJECT", help="Acts of this one.")] = None,
    verb: Annotated[
        str | None, typer.Option(metavar="VERB", help="Such as cancel; an unknown one tells all.")
    ] = None,
    object: Annotated[
        str | None, typer.Option(metavar="NAME", help="A job, host, dataset or subject.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(metavar="NAME", help="Acts about it.")] = None,
    outcome: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How it begins: done, unchanged, refused.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="T", help="From when on: 24h (ago), 2030-01-31.", callback=values.MOMENT
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="T", help="Until when.", callback=values.MOMENT)
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="The most lines.")] = 50,
) -> None:
    """Show the acts of people and programs, the newest first; refusals and logins, too."""
    with session.client() as client:
        page = client.audit(
            actor=actor, verb=verb, object=object, tenant=tenant, outcome=outcome,
            since_s=values.past_s(since, "--since"), until_s=values.past_s(until, "--until"),
            limit=limit,
        )  # fmt: skip
    columns = [
        Column("WHEN", whole=True), Column("ACTOR", folds=True), Column("VERB"),
        Column("OBJECT", folds=True), Column("TENANT", spare=3), Column("VIA", spare=1),
        Column("FROM", spare=2), Column("OUTCOME"), Column("DETAIL", beneath=True),
    ]  # fmt: skip
    rows = [
        [
            moment(act.at_s), act.actor or "unknown", act.verb, act.object, act.tenant,
            act.via, act.address, outcome,
            "; ".join(part for part in (why, _change(act.before, act.after)) if part),
        ]
        for act in page.acts
        for outcome, _, why in (act.outcome.partition(": "),)
    ]  # fmt: skip
    session.show(page, lambda: say_table(columns, rows))
    if session.json:
        return
    if not rows:
        note("no such acts")
    elif page.next_cursor:
        note(f"these are the newest {len(rows)}; for older ones: --limit N, or --until T")


NOTHING = "nothing"
TIMES = ("from_s", "until_s")
"""What the audit log has as seconds since the epoch."""


def _change(before: Any, after: Any) -> str:
    """What changed, in a few words: what is as it was is left out."""
    if before == after:
        return ""
    if isinstance(before, dict) and isinstance(after, dict):
        same = {name for name, value in after.items() if before.get(name, NOTHING) == value}
        before, after = (
            {name: value for name, value in state.items() if name not in same}
            for state in (before, after)
        )
        gone = {name: NOTHING for name, value in after.items() if not value and before.get(name)}
        after = {**after, **gone}
    was, is_now = _brief(before), _brief(after)
    return f"{was} -> {is_now or NOTHING}" if was else is_now


def _brief(state: Any) -> str:
    if isinstance(state, dict):
        told = (
            (name.removesuffix("_s"), moment(value)) if name in TIMES and value else
            (name, _brief(value))
            for name, value in state.items()
        )  # fmt: skip
        return ", ".join(f"{name}={text}" for name, text in told if text)
    if isinstance(state, list):
        return " ".join(_brief(value) for value in state)
    return "" if state is None else str(state)
