"""Each act of the reference in all three ways, against a real server: dry, done, done again."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.acts import ACTS, FLEET, WHY, Act, World
from tests.support.live import eventually, live
from tests.unit.cli.program import ROOT
from tests.unit.docs.test_verbs import ACTS as TABLE
from topmast.api import PREFIX
from topmast.cli import main
from topmast.model.account_views import ActView
from topmast.model.errors import TopmastError

WAYS = ("REST", "Python", "command")
ELSEWHERE = {
    "look where a job would run": "the dry run of `submit one`",
    "compare another with it": "the dry run of `change regions, clusters, hosts, tenants`",
    "upload a work folder": "test_api.py, test_cli.py",
    "run a command beside a task": "test_exec.py",
    "give it input": "test_exec.py",
    "end it": "test_exec.py",
    "compare two futures": "below, tests/unit/web/test_views.py, tests/integration/test_cli.py",
}
"""Acts without an effect of their own, and those that are streams: where these are tried."""
MAKES = {
    "submit", "add-dataset", "put webhook", "test webhook", "create-token", "add-account",
    "reserve", "fleet-apply",
}  # fmt: skip
"""Verbs that change nothing that was there; of a fleet the line has what is another, and how."""


class Receiver(BaseHTTPRequestHandler):
    """Takes what webhooks send."""

    taken: list[bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.taken.append(str(dict(self.headers)).encode() + body)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server for all acts; each finds it as its `ready` makes it."""
    folder, taken = tmp_path_factory.mktemp("acts"), list[bytes]()
    handler = type("Taking", (Receiver,), {"taken": taken})
    hooks = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=hooks.serve_forever, daemon=True).start()
    arguments = ("--notify-network", "127.0.0.0/8")
    try:
        with live(folder, FLEET, arguments=arguments) as (server, client):
            url = f"http://127.0.0.1:{hooks.server_port}/"
            yield World(client, server.url, folder, taken, url)
    finally:
        hooks.shutdown()
        hooks.server_close()


@pytest.fixture
def world(served: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The server, which commands find; no job is left afterwards."""
    monkeypatch.setenv("TOPMAST_SERVER", served.url)
    yield served
    served.client.uncordon_hosts(selector="host=*")
    served.client.cancel_jobs(selector="state=active")


def do(world: World, act: Act, way: str, subject: str, *, dry_run: bool) -> tuple[int, str]:
    """Do it in one way: the status, and what it says. A command's code 0 is 200, and 1 is 404."""
    given: dict[str, Any] = {"reason": WHY} if act.reason else {}
    if act.dry:
        given |= {"dry_run": dry_run}
    if way == "REST":
        method, path = (act.dry_rest if dry_run and act.dry_rest else act.rest).split()
        body = {**act.body(world, subject), **({} if act.dry_rest and dry_run else given)}
        if act.dry_rest:
            body.pop("dry_run", None)
        answer = httpx.request(
            method, world.url + PREFIX + path.format(s=quote(subject)), timeout=60,
            json=body if method != "DELETE" else None, params=given if method == "DELETE" else None,
            headers={"Idempotency-Key": subject} if act.keyed and not dry_run else {},
        )  # fmt: skip
        return answer.status_code, answer.text
    if way == "Python":
        try:
            return 200, str(act.python(world, subject, given))
        except TopmastError as error:
            return 404, str(error)
    words = shlex.split(act.words(world, subject))
    words += ["--reason", WHY] if act.reason else []
    words += ["--dry-run"] if dry_run else []
    return (200 if main(ROOT, words) == 0 else 404), ""


def lines(world: World, act: Act) -> list[ActView]:
    """The lines of the audit log about this verb, the newest first."""
    return list(world.client.audit(verb=act.verb, limit=1000).acts)


# --- the tests ----------------------------------------------------------------------------------


def test_no_act_is_left_out() -> None:
    """Every row of the reference that changes something is tried here, or said to be elsewhere."""
    told = [name for name, route, _, _ in TABLE if not route.startswith("`GET")]
    assert sorted(told) == sorted([act.name for act in ACTS] + list(ELSEWHERE))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("act", ACTS, ids=[act.name for act in ACTS])
def test_each_act_in_each_way(world: World, act: Act, way: str) -> None:
    """A dry run changes nothing; it is done once, with its line; to repeat it changes nothing."""
    subject = act.ready(world)
    before, noted = act.look(world, subject), lines(world, act)
    assert before != act.want, "nothing is to be done"
    if act.dry:
        status, said = do(world, act, way, subject, dry_run=True)
        assert status == 200, said
        assert (act.look(world, subject), lines(world, act)) == (before, noted)
    status, said = do(world, act, way, subject, dry_run=False)
    assert status < 300, said
    eventually(lambda: act.look(world, subject) == act.want, f"{act.name} has its effect")
    line, *older = lines(world, act)
    assert (line.outcome, older) == ("done", noted)
    assert not act.reason or WHY in json.dumps(line.after)
    assert (line.before is None) == (act.verb in MAKES)
    assert line.before is None or line.before != line.after
    if not act.again or (act.keyed and way == "command"):
        return
    status, said = do(world, act, way, subject, dry_run=False)
    refused = min(act.again) >= 400
    assert status in act.again if way == "REST" else status == (404 if refused else 200), said
    assert act.look(world, subject) == act.want


def test_a_program_compares_two_futures(world: World) -> None:
    """Begun and looked at by the client: with a larger quota, a while ahead."""
    begun = world.client.start_whatif(for_s=60.0, quotas={"vision:H100": 24})
    assert (begun.state, begun.asked.quotas) == ("running", {"vision:H100": 24})
    eventually(lambda: world.client.whatif(begun.id).state != "running", "it ends")
    done = world.client.whatif(begun.id)
    assert (done.state, done.why) == ("done", "")
    assert done.result
