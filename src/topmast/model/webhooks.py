"""Webhooks: where the server tells of events, and of which."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec import Struct

from topmast.model.errors import Faults, InvalidInput
from topmast.model.states import JobState

if TYPE_CHECKING:
    from collections.abc import Callable

    from topmast.model.files.fields import Value

MAX_WEBHOOKS = 50
MAX_FILTERS = 100
TEMPLATES = ("json", "slack")
DEFAULT_EVENTS = ("SUCCEEDED", "FAILED", "CANCELLED")
EVENTS = (
    *(state.value for state in JobState), "submitted", "placed", "refused", "held", "released",
    "requeued", "edited", "checkpointed", "resumed", "copy-begun", "copy-done", "copy-failed",
    "replica-dropped", "dataset-removed", "host-up", "host-down", "host-closed", "host-opened",
    "host-suspect", "host-trusted", "host-cordoned", "host-uncordoned", "host-drained",
    "cluster-closed", "cluster-opened", "hosts-reserved", "reservation-over", "tenant-paused",
    "tenant-resumed", "fleet-changed", "quota-set", "quota-over", "budget",
    "profile-set",
)  # fmt: skip
"""What there is to tell: states that jobs come into, and what else the histories name."""

_ONCE = {name: f"host-{name}" for name in ("cordoned", "uncordoned", "drained")}
"""Events by the names that they once had here."""
_REFERENCE = re.compile(r"file:/(?!/)[^\x00-\x1f\x7f]+|env:[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"https?://[^\s\x00-\x1f\x7f@]+", re.IGNORECASE)
_FIELDS = ("url", "secret", "events", "tenants", "labels", "template")


class Webhook(Struct, frozen=True):
    """Where events are sent, and which."""

    name: str
    url: str
    """A URL, or where the server finds it: ``file:/PATH`` or ``env:NAME``."""
    secret: str = ""
    """Where the server finds the key of signatures: ``file:/PATH`` or ``env:NAME``; empty: nothing
    is signed."""
    events: tuple[str, ...] = DEFAULT_EVENTS
    """Only these."""
    tenants: tuple[str, ...] = ()
    """Only about jobs of these tenants and of those below them; empty: of all."""
    labels: dict[str, str] = {}
    """Only about jobs with all of these labels."""
    template: str = "json"
    """``json``, or ``slack``: a message as Slack takes it."""


class WebhookView(Struct, frozen=True):
    """A webhook, and how it goes."""

    webhook: Webhook
    delivered: int = 0
    """Messages that the receiver has taken since the webhook was added or changed."""
    given_up: int = 0
    """Messages that it did not take for three days."""
    pending: int = 0
    """Lines of history that were not looked at yet."""
    delivered_s: float | None = None
    """When it took the last one."""
    error: str = ""
    """Why it did not take the message that is tried now."""
    tries: int = 0
    """How often that message was sent."""
    warnings: tuple[str, ...] = ()
    """When it is added or changed: why no message could be sent, as things are."""


def read_webhook(
    name: str, document: dict[str, Any], tenant: Callable[[Value], str] | None = None
) -> Webhook:
    """A webhook from the body of a request. Raises InvalidInput, with all that is wrong.

    ``tenant`` reads the name of one, and raises InvalidInput if there is none.
    """
    # Clients need names of this module, and not what reads files.
    from topmast.model.files.documents import from_document
    from topmast.model.files.every import every_error
    from topmast.model.files.fields import Value
    from topmast.model.files.source import JOB_LIMITS

    faults = Faults()
    node = from_document(document, "request", JOB_LIMITS)
    faults.of(lambda: Value(node, "name", "request").check_name(name))
    webhook = faults.of(
        lambda: every_error(
            lambda known: _webhook(name, Value(known, "", "request"), tenant or Value.name), node
        )
    )
    faults.refuse()
    return webhook


def _webhook(name: str, root: Value, tenant: Callable[[Value], str]) -> Webhook:
    fields = root.record(_FIELDS)
    url, secret = fields.need("url", "https://example.com/hook"), fields.get("secret")
    template, labels = fields.get("template"), fields.get("labels")
    address = url.text(limit_bytes=2000)
    if not (_URL.fullmatch(address) or _REFERENCE.fullmatch(address)):
        # It may have a password in it: it is not repeated.
        remedy = "https://HOST/PATH without user and password, file:/PATH or env:NAME"
        raise url.error("is not a URL that can be called", remedy)
    if _URL.fullmatch(address) and not has_place(address):
        raise url.error("has no host, or a port that there is not", "a port from 1 to 65535")
    if secret is not None and not _REFERENCE.fullmatch(secret.text()):
        raise secret.error("is not a reference to a secret", "file:/PATH or env:NAME of the server")
    words = {word: word for word in TEMPLATES}
    pairs = labels.entries(limit=MAX_FILTERS).items() if labels else ()
    return Webhook(
        name,
        address,
        secret.text() if secret else "",
        tuple(_event(item) for item in _items(fields.get("events"))) or DEFAULT_EVENTS,
        tuple(tenant(item) for item in _items(fields.get("tenants"))),
        {key: value.raw(limit_bytes=200) for key, value in pairs},
        template.choice(words, "a template") if template else TEMPLATES[0],
    )


def has_place(address: str) -> bool:
    """Whether a URL of HTTP has a host, and a port that there is if it names one."""
    try:
        parts = urlsplit(address)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _items(value: Value | None) -> list[Value]:
    return value.items(limit=MAX_FILTERS) if value else []


def _event(item: Value) -> str:
    """The name of an event; those of states may be in small letters."""
    text = item.text(limit_bytes=100)
    if text in _ONCE:
        return _ONCE[text]
    if text.upper() in EVENTS:
        return text.upper()
    return item.choice({event: event for event in EVENTS}, "an event")


def refuse_another(count: int) -> None:
    """Raises InvalidInput if there are as many webhooks as there may be."""
    if count >= MAX_WEBHOOKS:
        raise InvalidInput(f"there are {MAX_WEBHOOKS} webhooks already", remedy="remove one")
