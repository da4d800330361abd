"""The methods of a client about webhooks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from topmast.client.transport import Transport, path_of, why
from topmast.model.webhooks import DEFAULT_EVENTS, WebhookView

_JSON = {"Content-Type": "application/json"}


class WebhooksCalls:
    """A method for each route of webhooks."""

    _transport: Transport

    def webhooks(self) -> list[WebhookView]:
        """All webhooks, and how they go."""
        return self._transport.get(dict[str, list[WebhookView]], "/webhooks")["webhooks"]

    def put_webhook(
        self,
        name: str,
        url: str,
        *,
        secret: str = "",
        events: Iterable[str] = DEFAULT_EVENTS,
        tenants: Iterable[str] = (),
        labels: Mapping[str, str] | None = None,
        template: str = "json",
        reason: str = "",
        dry_run: bool = False,
    ) -> WebhookView:
        """Tell ``url`` of events from now on; or change the webhook of this name.

        ``secret`` names the key of signatures, as the server finds it: ``file:/PATH`` or
        ``env:NAME``. ``url`` may be such a reference, too.
        """
        body: dict[str, object] = {"url": url, "events": list(events), "template": template}
        body |= {"secret": secret} if secret else {}
        body |= {"tenants": list(tenants), "labels": dict(labels or {})}
        body |= why(reason, dry_run)
        answer = self._transport.send(
            "PUT", path_of("webhooks", name), content=msgspec.json.encode(body), headers=_JSON
        )
        return self._transport.decoded(WebhookView, answer)

    def remove_webhook(self, name: str, *, reason: str = "", dry_run: bool = False) -> WebhookView:
        """Remove a webhook; what it was not told yet, it never is."""
        return self._transport.delete(WebhookView, path_of("webhooks", name), reason, dry_run)

    def test_webhook(self, name: str) -> WebhookView:
        """Send a message at once. Raises Unavailable if it is not taken."""
        return self._transport.post(
            WebhookView, path_of("webhooks", name, "test"), {}, repeatable=False
        )
