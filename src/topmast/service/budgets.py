"""Budgets: what tenants have used this month, and what happens when that is too much."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import structlog
from msgspec import UNSET
from msgspec.structs import replace

from topmast.adapters.clock import elapsed_s
from topmast.model import ids
from topmast.model import messages as m
from topmast.model.access import local_caller
from topmast.model.budget import FULL, NEAR, AtLimit, Budget, BudgetView, month_of, month_s
from topmast.model.errors import TopmastError
from topmast.model.fleet import Fleet
from topmast.model.prices import price_of
from topmast.ports import Clock, Journal
from topmast.runtime.loop import Runtime
from topmast.service.access import act
from topmast.service.usage import running_rows, usage

LOOK_S = 30.0
"""How often it is seen what is used."""
REST = 50.0
"""A look is followed by a rest of so many times as long."""
CLOSE_S = 5.0
BY = "its budget"
"""What pauses a tenant."""

log = structlog.get_logger(__name__)


class Budgets:
    """A thread that looks what tenants use, tells of it, and pauses those that are over budget."""

    def __init__(self, runtime: Runtime, journal: Journal, clock: Clock) -> None:
        self._runtime, self._journal, self._clock = runtime, journal, clock
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="budgets", daemon=True)

    def open(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End; the runtime still turns."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)

    def views(self) -> tuple[BudgetView, ...]:
        """Every budget, and what is used of it. O(attempts of the month). Blocks."""
        queue, now = self._runtime.machines.queue, self._clock.now()
        fleet: Fleet = self._runtime.ask(lambda: queue.fleet).result()
        budgets = {spec.name: spec.budget for spec in fleet.tenants if spec.budget}
        if not budgets:
            return ()
        since_s, until_s = month_s(now)
        records = queue.jobs.placed
        running = self._runtime.ask(lambda: running_rows(records.values(), now)).result()
        rows = usage(
            (*self._journal.attempts(since_s, now), *running), "tenant", since_s, now,
            self._journal.usage_days(since_s, now), price_of(fleet),
        )  # fmt: skip
        above = _above(fleet)
        sums = {name: [0.0, 0.0, 0.0] for name in budgets}
        for row in rows:
            for name in above(row.key):
                if name in sums:
                    more = (row.held_gpu_h, row.cost_usd, row.unpriced_gpu_h)
                    sums[name] = [was + one for was, one in zip(sums[name], more, strict=True)]
        return tuple(
            _view(name, budget, sums[name], month_of(now), until_s)
            for name, budget in budgets.items()
        )

    def look(self) -> None:
        """Tell of budgets that are nearly or quite used up; pause and resume tenants. Blocks."""
        over: dict[str, BudgetView] = {}
        for view in self.views():
            percent = next((p for p in (FULL, NEAR) if view.used_percent >= p), 0)
            if percent:
                self._tell(m.NoteBudget(view.tenant, view.month, percent, _text(view)))
            if percent == FULL and view.at_limit != AtLimit.WARN:
                over[view.tenant] = view
        tenancy = self._runtime.machines.queue.tenancy
        paused: Mapping[str, str] = self._runtime.ask(lambda: dict(tenancy.paused)).result()
        for tenant, view in over.items():
            if tenant not in paused:
                reason, drain = _text(view), view.at_limit == AtLimit.DRAIN
                self._act("pause-tenant", m.PauseTenant(tenant, BY, reason, drain))
        for tenant, why in paused.items():
            if tenant not in over and why.startswith(f"tenant {tenant} is paused by {BY}: "):
                self._act("resume-tenant", m.ResumeTenant(tenant, BY, UNSET))

    def _act(self, verb: str, order: m.PauseTenant | m.ResumeTenant) -> None:
        done = act(local_caller("budget"), verb, order.tenant, order.tenant)
        row = replace(done.row, actor="budget", via="server")
        self._runtime.call(ids.QUEUE, order, replace(done, row=row)).result()

    def _tell(self, order: m.NoteBudget) -> None:
        self._runtime.call(ids.QUEUE, order).result()

    def _run(self) -> None:
        rest_s = 0.0
        while not self._closing.wait(rest_s):
            begun_s = elapsed_s()
            try:
                self.look()
            except TopmastError as error:
                log.warning("budgets could not be looked at", why=str(error))
            rest_s = max(LOOK_S, REST * (elapsed_s() - begun_s))


def _view(tenant: str, budget: Budget, used: list[float], month: str, until_s: float) -> BudgetView:
    gpu_hours, usd, unpriced = used
    return BudgetView(
        tenant, month, budget.at_limit.value, gpu_hours, usd,
        budget.used_percent(gpu_hours, usd), until_s, budget.gpu_hours, budget.usd, unpriced,
    )  # fmt: skip


def _text(view: BudgetView) -> str:
    limit = Budget(view.gpu_hours, view.usd).text()
    budget = f"the budget of tenant {view.tenant} for {view.month}"
    if view.used_percent >= FULL:
        return f"{budget} is used up: {limit}"
    return f"{NEAR}% of {budget} is used: {limit}"


def _above(fleet: Fleet) -> Callable[[str], list[str]]:
    """A tenant and those above it."""
    parents = {spec.name: spec.parent for spec in fleet.tenants}

    def path(tenant: str) -> list[str]:
        found, name = list[str](), tenant if tenant in parents else None
        while name is not None and name not in found:
            found.append(name)
            name = parents.get(name)
        return found

    return path
