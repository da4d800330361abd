"""The application as a browser of its own machine has it, without login."""

import httpx
from httpx import ASGITransport

from tests.support.entrance import Entrance
from topmast.api import create_api
from topmast.api.guard import LoopbackGate
from topmast.web import routes

JOB = {"run": "true", "tenant": "vision", "resources": {"accelerators": "H100:1"}}


def local(door: Entrance) -> httpx.AsyncClient:
    """A client of the control plane of a test."""
    app = create_api(door.service, gate=LoopbackGate(), pages=routes(door.service))
    return httpx.AsyncClient(transport=ASGITransport(app), base_url="http://127.0.0.1:7000")


async def submit(client: httpx.AsyncClient, user: str = "ann", **changes: object) -> str:
    """A job of a user; its id."""
    made = await client.post("/api/v1/jobs", json={"job": JOB | changes, "user": user})
    assert made.status_code == 201, made.text
    return str(made.json()["id"])
