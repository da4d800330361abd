"""Why a database in PostgreSQL lets no process in: the part of its URL at fault, and what helps."""

from __future__ import annotations

import re

from msgspec import Struct
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

PASSWORDS = "~/.pgpass, the file of ?passfile=FILE, or PGPASSWORD"


class Refusal(Struct, frozen=True):
    """A kind of refusal."""

    said: str
    """What the driver's message has then: a regular expression."""
    part: str
    """The part of the URL: ``user``, ``database``, ``host`` or ``sslmode``."""
    why: str
    remedy: str
    waits: bool = False
    """Whether it may be over by itself: then a standby waits."""


REFUSALS = (
    Refusal(
        "password authentication failed|no password supplied", "user",
        "its password is missing or wrong", f"put the right one into {PASSWORDS}",
    ),
    Refusal(
        "(peer|ident|cert|GSSAPI|SSPI|LDAP|PAM|RADIUS).* authentication failed", "user",
        "the server knows it by other means than a password",
        "name the user that the server expects, or change its pg_hba.conf",
    ),
    Refusal(
        r'role "[^"]*" does not exist', "user", "the server has no such role",
        "name another user, or make it: createuser NAME",
    ),
    Refusal(
        "is not permitted to log in", "user", "it may not log in",
        "name another user, or ALTER ROLE NAME LOGIN",
    ),
    Refusal(
        r'database "[^"]*" does not exist', "database", "the server has no such database",
        "name another one, or make it: createdb NAME",
    ),
    Refusal(
        "permission denied for (database|schema|table|sequence|function)|must be owner of", "user",
        "it lacks rights on the database", "make it the owner: ALTER DATABASE NAME OWNER TO USER",
    ),
    Refusal(
        "no pg_hba.conf entry|pg_hba.conf rejects", "host",
        "the server does not admit this user from this machine",
        "add a line to its pg_hba.conf; where it says 'no encryption', try ?sslmode=require",
    ),
    Refusal(
        "server does not support SSL|SSL (is )?not supported", "sslmode",
        "TLS is asked for, and the server has none",
        "set ssl = on there, or leave out sslmode",
    ),
    Refusal(
        "certificate|SSL error|sslmode", "sslmode", "TLS with the server failed",
        "check its certificate and ?sslrootcert=FILE, and that the URL has the name in it",
    ),
    Refusal(
        "could not translate host name|failed to resolve host|Name or service not known|"
        "nodename nor servname", "host", "no such host is known",
        "check its name and this machine's resolver", waits=True,
    ),
    Refusal(
        "too many clients|connection slots are reserved|too many connections", "host",
        "the server has as many connections as it takes",
        "end some, or raise max_connections (or the limit of the role or database)", waits=True,
    ),
    Refusal(
        "Connection refused|No such file or directory|No route to host|Network is unreachable|"
        "timeout expired|connection timeout", "host", "no server answers there",
        "start it, or name another host and port; is a firewall between?", waits=True,
    ),
    Refusal(
        "in a read-only transaction|is in recovery|hot standby", "host",
        "it is a replica, or the database is set read-only",
        "name the primary, or ALTER DATABASE NAME RESET default_transaction_read_only",
        waits=True,
    ),
    Refusal(
        "starting up|shutting down|not accepting connections", "host",
        "the server starts or stops just now", "try again in a moment", waits=True,
    ),
)  # fmt: skip


def refusal_of(text: str) -> Refusal | None:
    """What the message of a driver means, if it is that of a refusal."""
    return next((one for one in REFUSALS if re.search(one.said, text, re.IGNORECASE)), None)


def told(refusal: Refusal, place: str, text: str) -> str:
    """A refusal in one line: the part of the URL with its value, why, and the remedy."""
    value = _part_of(place, refusal.part)
    named = f"{refusal.part} '{value}'" if value else f"{refusal.part} (not in the URL)"
    return f"{place}: {named}: {refusal.why}: {refusal.remedy} [{text}]"


def _part_of(place: str, part: str) -> str:
    """The value of a part of a URL; empty where it is left to the driver."""
    try:
        url = make_url(place)
    except ArgumentError:
        return ""
    query = {
        name: one if isinstance(one, str) else ",".join(one) for name, one in url.query.items()
    }
    given = {
        "user": url.username or query.get("user"),
        "database": url.database or query.get("dbname"),
        "host": _host(url.host or query.get("host"), url.port or query.get("port")),
    }
    return given.get(part, query.get(part)) or ""


def _host(name: str | None, port: object) -> str:
    return f"{name}:{port}" if name and port else name or ""
