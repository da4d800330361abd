"""The file of `topmast up --accounts`: the provider that people log in with, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from topmast.model.files.documents import from_document
from topmast.model.files.every import every_error
from topmast.model.files.fields import Value
from topmast.model.files.source import JOB_LIMITS, parse_text, read_bytes
from topmast.model.units import parse_duration_s

LIMITED = ("submit", "explain", "list")
DEFAULT_SCOPES = ("openid", "profile", "email", "groups")
LEAST_LOGIN_S = 60.0
MOST_PER_S = 1e6


class Provider(Struct, frozen=True):
    """An OpenID provider."""

    issuer: str
    """Its URL, as its tokens name it."""
    client_id: str
    client_secret_file: str = ""
    """A file with the secret that the provider knows this server by; empty: a public client."""
    name_claim: str = "email"
    """The claim with the name of a person."""
    groups_claim: str = "groups"
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    """What is asked of the provider."""
    login_s: float = 12 * 3600.0
    """How long a login lasts."""


class RateLimit(Struct, frozen=True):
    """So many requests at once, and then so many each second."""

    per_s: float
    burst: float


class AccountsFile(Struct, frozen=True):
    """The whole file."""

    oidc: Provider | None = None
    """None: people log in with tokens alone."""
    limits: dict[str, RateLimit] = {}
    """By kind of request: submit, explain, list."""


def parse_accounts(document: Mapping[str, Any], *, where: str = "request") -> AccountsFile:
    """What a document says. Raises InvalidInput."""
    node = from_document(document, where, JOB_LIMITS)
    return every_error(lambda n: _accounts(Value(n, "", where)), node)


def read_accounts(path: Path) -> AccountsFile:
    """Read and check the file; an empty one names no provider. Raises InvalidInput."""
    where = str(path)
    text = read_bytes(path, where, JOB_LIMITS)
    if not text.strip():
        return AccountsFile()
    node = parse_text(text, where, JOB_LIMITS)
    return every_error(lambda n: _accounts(Value(n, "", where)), node)


def _accounts(root: Value) -> AccountsFile:
    if root.is_nothing():
        return AccountsFile()
    fields = root.record(("oidc", "limits"))
    oidc, limits = fields.get("oidc"), fields.get("limits")
    kinds = limits.record(LIMITED) if limits else None
    found = {kind: kinds.get(kind) for kind in LIMITED} if kinds else {}
    return AccountsFile(
        _provider(oidc) if oidc else None,
        {kind: _rate(value) for kind, value in found.items() if value is not None},
    )


def _provider(value: Value) -> Provider:
    fields = value.record(
        (
            "issuer", "client_id", "client_secret_file", "name_claim", "groups_claim", "scopes",
            "login",
        )
    )  # fmt: skip
    issuer = fields.need("issuer", "https://id.example.com")
    url = issuer.text().rstrip("/")
    local = url.startswith(("http://127.0.0.1:", "http://localhost:"))
    if not url.startswith("https://") and not local:
        raise issuer.error("must begin with https://", "providers are asked over TLS")
    secret, name = fields.get("client_secret_file"), fields.get("name_claim")
    groups, scopes, login = fields.get("groups_claim"), fields.get("scopes"), fields.get("login")
    asked = tuple(item.text() for item in scopes.items(limit=50)) if scopes else DEFAULT_SCOPES
    return Provider(
        issuer=url,
        client_id=fields.need("client_id", "topmast").text(),
        client_secret_file=secret.absolute_path(secret.text()) if secret else "",
        name_claim=name.text() if name else "email",
        groups_claim=groups.text() if groups else "groups",
        scopes=tuple(dict.fromkeys(("openid", *asked))),
        login_s=_login_s(login) if login else 12 * 3600.0,
    )


def _login_s(value: Value) -> float:
    """How long a login lasts; hours are easily typed as a bare number, which is seconds."""
    found_s = value.quantity(parse_duration_s, "a time such as 12h")
    if found_s < LEAST_LOGIN_S:
        message = f"{value.node.text} is {found_s:g}s, and a login lasts a minute at least"
        raise value.error(message, "write a time such as 12h")
    return found_s


def _rate(value: Value) -> RateLimit:
    fields = value.record(("per_s", "burst"))
    return RateLimit(
        fields.need("per_s", "1").number(high=MOST_PER_S, above=True),
        fields.need("burst", "10").number(low=1.0, high=MOST_PER_S),
    )
