"""A control plane with login in this process: engines are made up, and requests need no socket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from topmast.api import PREFIX, create_api
from topmast.api.guard import Gate, Guard, LoginGate
from topmast.api.observing import Timed
from topmast.app.control_plane import ControlPlane
from topmast.app.login import OPEN_PATHS
from topmast.app.process import Outside
from topmast.bench.fake_engine import FakeEngine
from topmast.model.access import Role, local_caller
from topmast.model.files.fleetfile import parse_fleet
from topmast.policies.registry import load_profile
from topmast.ports import ActFilter, ActRow, Engine
from topmast.routing import GuardedRoute
from topmast.service.limits import Rate, Rates
from topmast.web import routes as pages

URL = "https://topmast.example.com"
ROOT = local_caller("root")
UNLIMITED = Rates(*(Rate(1e6, 1e6) for _ in Rates.__struct_fields__))
FLEET: dict[str, Any] = {
    "regions": {"east": {"clusters": {"east-a": {"hosts": [{"count": 2, "gpu": "H100", "gpus": 2}]}}}},
    "tenants": {
        "vision": {"quota": {"H100": 2}}, "nlp": {"parent": "vision"}, "speech": {"quota": {"H100": 2}},
        "vision2": {}, "visio": {},
    },
}  # fmt: skip


class Entrance:
    """The application behind its gate, with callers to try it."""

    def __init__(self, system: ControlPlane, gate: Gate | None = None) -> None:
        self.system = system
        self.service = system.service
        self.service.set_limits(UNLIMITED)
        self.gate = gate or LoginGate(self.service.logins, URL, (), (), OPEN_PATHS)
        self.app = create_api(
            self.service, gate=self.gate, metrics=system.metrics, pages=pages(self.service)
        )

    @property
    def guard(self) -> Guard:
        """What lets requests in."""
        found = self.app.app if isinstance(self.app, Timed) else self.app
        assert isinstance(found, Guard)
        return found

    @property
    def inner(self) -> FastAPI:
        """The application behind it."""
        assert isinstance(self.guard.app, FastAPI)
        return self.guard.app

    def routes(self) -> list[GuardedRoute]:
        """Every route of the interface; those of links have tokens of their own."""
        return routes_of(self.inner)

    def others(self) -> set[str]:
        """The paths of routes that declare no permission."""
        found = _routes(self.inner.routes)
        return {route.path for route in found if not isinstance(route, GuardedRoute)}

    def paths(self) -> list[str]:
        """The paths of the OpenAPI document."""
        return list(self.inner.openapi()["paths"])

    async def token(self, name: str, *roles: tuple[Role, str]) -> str:
        """A token of a new service account of vision, with roles."""
        directory = self.service.directory
        if name not in directory.state.accounts:
            await directory.add_account(ROOT, name, "/")
        for role, tenant in roles:
            await directory.grant(ROOT, f"sa:{name}", role, tenant)
        return (await directory.create_token(ROOT, account=name)).token

    @contextmanager
    def limited(self, rates: Rates) -> Iterator[None]:
        """With other limits, until the end of the block."""
        before = self.service.limits.rates
        self.service.set_limits(rates)
        try:
            yield
        finally:
            self.service.set_limits(before)

    def acts(self, **wanted: Any) -> list[ActRow]:
        """Lines of the audit log, newest first."""
        return self.system.journal.acts(ActFilter(**wanted, limit=1000))

    def client(self, token: str = "", **headers: str) -> httpx.AsyncClient:
        """A client that shows a token."""
        shown = {"Authorization": f"Bearer {token}"} if token else {}
        transport = httpx.ASGITransport(self.app, client=("10.0.0.5", 1234))
        return httpx.AsyncClient(
            transport=transport, base_url=f"{URL}{PREFIX}", headers={**shown, **headers}
        )


def routes_of(app: FastAPI) -> list[GuardedRoute]:
    """The routes of an application that declare a permission."""
    return [route for route in _routes(app.routes) if isinstance(route, GuardedRoute)]


def _routes(routes: Any) -> Iterator[Any]:
    for route in routes:
        inner = getattr(route, "original_router", None) or getattr(route, "router", None)
        if inner is not None:
            yield from _routes(inner.routes)
        else:
            yield route


@contextmanager
def entrance(
    folder: Path, fleet: Mapping[str, Any] = FLEET, *, engine: type[Engine] = FakeEngine
) -> Iterator[Entrance]:
    """A control plane on a folder, with login."""
    outside = Outside(engines={"local": engine})
    system = ControlPlane(folder, load_profile("mast"), parse_fleet(fleet), outside=outside)
    system.open()
    try:
        yield Entrance(system)
    finally:
        system.close()


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Run a test that awaits."""

    async def limited() -> None:
        await asyncio.wait_for(story(), 300)

    asyncio.run(limited())
