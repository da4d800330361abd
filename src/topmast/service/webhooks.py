"""What operators do with webhooks."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from topmast.adapters.handing import handed, in_own_thread
from topmast.adapters.webhooks import Undelivered
from topmast.model.access import ROOT, Caller, Permission
from topmast.model.errors import Unavailable
from topmast.model.files.fields import Value, no_such, one_of
from topmast.model.webhooks import Webhook, WebhookView, read_webhook, refuse_another
from topmast.ports import ActRow, Clock
from topmast.runtime.loop import Runtime
from topmast.service.access import NO_REASON, Access, Why, json_text, row
from topmast.service.limits import Limits
from topmast.service.notifier import Keep, Message, Notifier

CHECK_S = 3.0
"""So long a webhook that is put waits at most for what would keep it from being called."""
TESTS = 2
"""So many tests run at the same time, and so many looks for troubles; others wait. Each has its own
thread: one that hangs takes none of those that all requests share, and holds no stop."""


class Webhooks:
    """List, put, remove and try webhooks; each change is a line of the audit log."""

    def __init__(
        self, runtime: Runtime, access: Access, clock: Clock, notifier: Notifier, limits: Limits
    ) -> None:
        self._runtime, self._access, self._clock = runtime, access, clock
        self._limits = limits
        self._notifier = notifier
        self._tests, self._checks = asyncio.Semaphore(TESTS), asyncio.Semaphore(TESTS)

    async def listed(self, caller: Caller) -> tuple[WebhookView, ...]:
        """All of them, and how they go."""
        self._access.require(caller, Permission.NOTIFY_EDIT, ROOT)
        return await asyncio.to_thread(self._notifier.views)

    async def put(
        self, caller: Caller, name: str, document: dict[str, Any], why: Why = NO_REASON
    ) -> WebhookView:
        """Add one, or change it."""
        self._limits.take(caller, "submit")
        self._access.require(caller, Permission.NOTIFY_EDIT, ROOT)
        webhook = self.read(name, document)
        known = {view.webhook.name: view for view in await self.listed(caller)}
        if name not in known:
            refuse_another(len(known))
        warnings = await self._warnings(webhook)
        if why.dry_run:
            return WebhookView(webhook, warnings=warnings)
        before = _told(known[name].webhook) if name in known else ""
        line = row(caller, "put webhook", name)
        line = replace(line, before=before, after=_told(webhook, why.reason))
        await asyncio.to_thread(self._notifier.put, webhook, self._keep(line))
        return replace(await self._view(caller, name), warnings=warnings)

    async def _warnings(self, webhook: Webhook) -> tuple[str, ...]:
        """Why no message could be sent now, as far as that is found out soon."""
        found: list[str] = []

        def tell(why: str) -> None:
            found.append(f"no message can be sent yet: {why}")

        look = partial(self._notifier.look_for_troubles, webhook, tell)
        try:
            await asyncio.wait_for(self._aside(self._checks, look), CHECK_S)
        except TimeoutError:
            found.append(f"whether it can be called was not found out in {CHECK_S:g} s")
        return tuple(found)

    async def _aside(self, places: asyncio.Semaphore, work: Callable[[], None]) -> None:
        """Work that may hang, in a place that it keeps until its end."""
        await places.acquire()
        ends = in_own_thread(work, "webhook-test")
        ends.add_done_callback(lambda _: places.release())
        await asyncio.shield(ends)

    def read(self, name: str, document: dict[str, Any]) -> Webhook:
        """A webhook from a request. Raises InvalidInput, with all that is wrong."""
        return read_webhook(name, document, self._tenant)

    def _tenant(self, item: Value) -> str:
        tenant = item.name()
        if not self._access.has_tenant(tenant):
            raise item.error(f"no tenant '{tenant}'", one_of(tenant, self._access.names()))
        return tenant

    async def remove(self, caller: Caller, name: str, why: Why = NO_REASON) -> WebhookView:
        """Remove one; what it was not told yet, it never is."""
        self._limits.take(caller, "submit")
        found = await self._view(caller, name)
        if why.dry_run:
            return found
        line = row(caller, "remove webhook", name)
        line = replace(line, before=_told(found.webhook), after=why.note)
        await asyncio.to_thread(self._notifier.remove, name, self._keep(line))
        return found

    async def test(self, caller: Caller, name: str) -> WebhookView:
        """Send a message at once. Raises Unavailable if it is not taken."""
        self._limits.take(caller, "submit")
        webhook: Webhook = (await self._view(caller, name)).webhook
        message = Message(
            f"{name}_test_{uuid.uuid4().hex}", "test", self._clock.now(), "a test", None, {}
        )
        try:
            send = partial(self._notifier.send_now, webhook, message)
            await self._aside(self._tests, send)
        except Undelivered as error:
            await self._note(caller, "test webhook", name, f"refused: {error}")
            raise Unavailable(str(error)) from None
        await self._note(caller, "test webhook", name)
        return await self._view(caller, name)

    async def _view(self, caller: Caller, name: str) -> WebhookView:
        views = {view.webhook.name: view for view in await self.listed(caller)}
        if name not in views:
            raise no_such("webhook", name, views)
        return views[name]

    def _keep(self, line: ActRow) -> Keep:
        """Keeps a change in the transaction that brings its line into the audit log. Blocks."""

        def keep(options: Mapping[str, str]) -> None:
            self._runtime.note(line, options).result()

        return keep

    async def _note(self, caller: Caller, verb: str, name: str, outcome: str = "done") -> None:
        line = row(caller, verb, name, outcome=outcome)
        await handed(self._runtime.note(line))


def _told(webhook: Webhook, reason: str = "") -> str:
    """A webhook as the audit log holds it: what may be a secret in itself is not there."""
    more = {"reason": reason} if reason else {}
    return json_text(
        events=webhook.events, tenants=webhook.tenants, labels=webhook.labels,
        template=webhook.template, signed=bool(webhook.secret), **more,
    )  # fmt: skip
