"""`login` and `logout`: a token of one's own for a server, kept in a file that only one reads."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from topmast.cli.command import Session, command
from topmast.cli.output import note, say
from topmast.cli.text import moment

if TYPE_CHECKING:
    from topmast.client import Client
    from topmast.model.account_views import DeviceLogin, NewToken


def add(app: typer.Typer) -> None:
    """Add the commands."""
    command(
        app, "login", example="topmast login --server https://topmast.example.com\n"
        "topmast login --token-stdin < token",
    )(login)  # fmt: skip
    command(app, "logout", example="topmast logout")(logout)


def login(
    session: Session,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Keep the token that standard input has.")
    ] = False,
) -> None:
    """Log in at the provider of the server, with a browser on any device.

    The token is kept in a file that only its owner can read; other commands show it to this server.
    """
    from topmast.client.credentials import keep_token

    with session.client() as client:
        if token_stdin:
            keep_token(client.url, _read_token())
            _leave_variable()
            found = client.whoami()
            session.show(found, lambda: say(f"{found.subject} is logged in"))
            return
        begun = client.begin_login()
        note(f"Open {begun.whole_url or begun.url} and enter {begun.user_code}")
        made = _confirmed(client, begun)
        keep_token(client.url, made.token)
    _leave_variable()
    text = f"{made.view.subject} is logged in until {moment(made.view.expires_s)}"
    session.show(made.view, partial(say, text))


def _leave_variable() -> None:
    """Go by the kept token from here on, and say that later commands will not."""
    from topmast.client.credentials import VARIABLE

    if os.environ.pop(VARIABLE, ""):
        note(f"${VARIABLE} goes before the token that is kept now: unset it to use this one")


def _confirmed(client: Client, begun: DeviceLogin) -> NewToken:
    """The token, once a person has confirmed the login. Raises Unavailable.

    A provider or a server that is away may be back before the code ends (RFC 8628, 3.5).
    """
    from topmast.model.errors import Unavailable

    told, deadline_s = "", time.monotonic() + begun.life_s
    while time.monotonic() < deadline_s:
        time.sleep(begun.interval_s)
        try:
            made = client.finish_login(begun)
        except Unavailable as error:
            if str(error) != told:
                told = str(error)
                note(f"{told}; the login goes on")
            continue
        if made is not None:
            return made
    raise Unavailable(
        f"nothing confirmed the login within {begun.life_s:g} s; begin again with 'topmast login'"
    )


def logout(session: Session) -> None:
    """Revoke the token that is kept for the server, and forget it."""
    from topmast.client.credentials import keep_token
    from topmast.model.errors import Forbidden

    with session.client() as client:
        try:
            client.logout()
        except Forbidden:
            note("the token was good for nothing already")
        keep_token(client.url, "")
        url = client.url
    session.show({"server": url}, lambda: say(f"logged out of {url}"))


def _read_token() -> str:
    from topmast.accounts import is_token
    from topmast.model.errors import InvalidInput

    token = sys.stdin.readline().strip()
    if not is_token(token):
        raise InvalidInput(
            "standard input has no token, or a mistyped one", field="--token-stdin",
            remedy="topmast login --token-stdin < FILE",
        )  # fmt: skip
    return token
