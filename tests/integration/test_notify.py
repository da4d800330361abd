"""Webhooks of a server: from a job that ends to a receiver that checks the signature."""

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import json
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.entrance import FLEET, ROOT
from topmast.adapters.webhooks import TIMEOUT_S
from topmast.app.control_plane import ControlPlane
from topmast.app.process import Outside
from topmast.bench.fake_engine import FakeEngine
from topmast.model.errors import InvalidInput
from topmast.model.files.fleetfile import parse_fleet
from topmast.model.webhooks import WebhookView
from topmast.policies.registry import load_profile
from topmast.service import webhooks
from topmast.service.access import Why

NETWORKS = [ipaddress.ip_network("127.0.0.0/8")]
JOB = {"run": "true", "tenant": "vision", "name": "a", "resources": {"accelerators": "H100:8"}}

JOBS = 24
SEEN: list[tuple[dict[str, str], bytes]] = []


class Receiver(BaseHTTPRequestHandler):
    """Keeps what it is told."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        SEEN.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def plane(folder: Path) -> ControlPlane:
    system = ControlPlane(
        folder, load_profile("mast"), parse_fleet(FLEET),
        outside=Outside(engines={"local": FakeEngine}), notify_networks=NETWORKS,
    )  # fmt: skip
    system.open()
    return system


def wait_for(count: int) -> None:
    deadline_s = time.monotonic() + 30
    while len(SEEN) < count:
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


def test_a_webhook_is_told_over_restarts(tmp_path: Path) -> None:
    """Also of what happened while the server was away; the audit log has who added it."""
    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    (tmp_path / "key").write_text("a key\n")
    hook = {
        "url": f"http://127.0.0.1:{server.server_address[1]}/x", "tenants": ["vision"],
        "secret": f"file:{tmp_path}/key", "events": ["submitted", "CANCELLED"],
    }  # fmt: skip

    async def begin(system: ControlPlane) -> str:
        service = system.service
        assert service.webhooks is not None
        with pytest.raises(InvalidInput, match=r"tenants\[1\]: no tenant 'visoin'"):
            await service.webhooks.put(ROOT, "ops", hook | {"tenants": ["vision", "visoin"]})
        assert (await service.webhooks.put(ROOT, "ops", hook)).warnings == ()
        for field, value, why in (
            ("secret", f"file:{tmp_path}/none", f"file:{tmp_path}/none: no such file"),
            ("url", "http://10.1.2.3/", "10.1.2.3 is not in the Internet (topmast up "
             "--notify-network NETWORK allows it)"),
        ):  # fmt: skip
            for dry in (Why(dry_run=True), Why()):
                put = await service.webhooks.put(ROOT, "other", hook | {field: value}, dry)
                assert put.warnings == (f"no message can be sent yet: {why}",)
        await service.webhooks.remove(ROOT, "other")
        fleets = hook | {"tenants": [], "events": ["fleet-changed"]}
        await service.webhooks.put(ROOT, "fleets", fleets)
        await service.webhooks.test(ROOT, "ops")
        receipt = await service.submit(ROOT, JOB, "ada", "", "")
        await service.submit(ROOT, JOB | {"tenant": "speech"}, "bob", "", "")
        return receipt.id

    first = plane(tmp_path / "state")
    job = asyncio.run(begin(first))
    wait_for(2)
    first.close()
    second = plane(tmp_path / "state")
    asyncio.run(second.service.cancel(ROOT, job, "ada"))
    wait_for(3)
    tenants = {"tenants": FLEET["tenants"] | {"new": {}}}
    asyncio.run(second.service.fleet_apply(ROOT, tenants, None, "they came"))
    wait_for(4)
    acts = [act.verb for act in second.journal.acts(_all()) if "webhook" in act.verb]
    second.close()
    server.shutdown()
    server.server_close()
    told = [json.loads(body) for _, body in SEEN]
    events = [message["event"] for message in told]
    assert events == ["test", "submitted", "CANCELLED", "fleet-changed"]
    assert told[3]["text"] == "the fleet is changed by root (tenant new added): they came"
    assert told[2]["job"] == {
        "id": job,
        "name": "a",
        "tenant": "vision",
        "user": "ada",
        "labels": {},
    }
    headers, body = SEEN[2]
    text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    signed = base64.b64encode(hmac.new(b"a key", text, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{signed}"
    assert sorted(acts) == [*["put webhook"] * 4, "remove webhook", "test webhook"]


def test_a_receiver_that_hangs_slows_no_decision(tmp_path: Path) -> None:
    """Submissions are acknowledged and jobs placed while a message waits for its answer."""
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # it takes connections, and says nothing
        system = plane(tmp_path / "state")
        url = f"http://127.0.0.1:{hangs.getsockname()[1]}/x"
        hook = {"url": url, "events": ["submitted", "placed", "STARTING"]}

        async def story() -> tuple[WebhookView, set[str]]:
            service = system.service
            assert service.webhooks is not None
            await service.webhooks.put(ROOT, "hangs", hook)
            one = JOB | {"resources": {"accelerators": "H100:1"}}
            ids = [(await service.submit(ROOT, one, "ada", "", "")).id for _ in range(JOBS)]
            states = {(await service.job(ROOT, job)).state for job in ids[:2]}
            (view,) = await service.webhooks.listed(ROOT)
            return view, states

        begun_s = time.monotonic()
        view, states = asyncio.run(story())
        taken_s = time.monotonic() - begun_s
        system.close()
    assert (view.delivered, view.pending > 0) == (0, True)
    assert states <= {"STARTING", "RUNNING", "SUCCEEDED"}
    assert taken_s < JOBS * TIMEOUT_S / 4, "each would wait for the receiver"


def test_tests_of_webhooks_wait_for_one_another_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many hang, there are threads for what others ask for."""
    system, over = plane(tmp_path / "state"), threading.Event()

    def hang(*_: Any) -> None:
        over.wait()

    monkeypatch.setattr(system.notifier, "send", hang)

    async def story() -> int:
        service = system.service
        assert service.webhooks is not None
        await service.webhooks.put(
            ROOT, "hangs", {"url": "https://example.com/", "events": ["held"]}
        )
        tests = [asyncio.create_task(service.webhooks.test(ROOT, "hangs")) for _ in range(40)]
        try:
            for _ in range(10 * len(tests)):  # all of them have begun, or wait for a thread
                await asyncio.wait_for(asyncio.to_thread(int), 20)
            await asyncio.wait_for(service.webhooks.listed(ROOT), 20)
        finally:
            over.set()
        return len(await asyncio.gather(*tests))

    assert asyncio.run(story()) == 40
    system.close()


def test_what_hangs_keeps_neither_known_troubles_nor_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a name server may: the missing secret is told, and that the address was not looked up."""
    system, over = plane(tmp_path / "state"), threading.Event()
    monkeypatch.setattr(webhooks, "CHECK_S", 0.3)
    monkeypatch.setattr(system.notifier, "_check", lambda url: over.wait())
    hook = {"url": "https://example.com/", "events": ["held"], "secret": f"file:{tmp_path}/none"}

    async def story() -> list[tuple[str, ...]]:
        service = system.service
        assert service.webhooks is not None
        puts = [await service.webhooks.put(ROOT, "hangs", hook) for _ in range(3)]
        return [put.warnings for put in puts]

    unknown = "whether it can be called was not found out in 0.3 s"
    known = f"no message can be sent yet: file:{tmp_path}/none: no such file"
    # The third has no place, as two hang.
    assert asyncio.run(story()) == [(known, unknown), (known, unknown), (unknown,)]
    hanging = [one for one in threading.enumerate() if one.name == "webhook-test"]
    assert [one.daemon for one in hanging] == [True, True]
    over.set()
    system.close()


def _all() -> Any:
    from topmast.ports import ActFilter

    return ActFilter(limit=100)
