"""Pages over a service in process: filters in the URL, permissions, and text that stays text."""

from __future__ import annotations

import asyncio
import html
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml
from httpx import ASGITransport
from starlette.types import ASGIApp

from tests.support.entrance import FLEET, ROOT, URL, Entrance, entrance, run
from tests.unit.web.support import local
from topmast.api import create_api
from topmast.api.guard import LoopbackGate
from topmast.model.access import Caller, Grant, Principal, Role
from topmast.model.errors import Conflict, InvalidInput
from topmast.model.history_views import FleetHistory, SeriesView
from topmast.model.messages import Progress
from topmast.model.whatif_views import WhatIfAsk, WhatIfView
from topmast.runtime.meter import QUICK_S, Meter
from topmast.service.history import Rings
from topmast.service.jobs_act import JobsAct
from topmast.service.system import quantile, timings
from topmast.service.whatif import WhatIfs
from topmast.web import Standing, routes
from topmast.web.pages.events import ROWS
from topmast.web.pages.whatif import FIGURES
from topmast.web.series import use_by_tenant

HOSTILE = "<script>alert(1)</script>\u202e"
JOB = {"name": "job", "run": "true", "tenant": "vision", "resources": {"accelerators": "H100:1"}}
VIEWER = Caller(Principal("user:ann", (Grant(Role.VIEWER, "speech"),)))


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """A control plane with a job of vision that runs, submitted by a hostile name."""
    with entrance(tmp_path_factory.mktemp("views")) as found:

        async def submit() -> None:
            await found.service.submit(ROOT, JOB, HOSTILE, "", "")

        run(submit)
        yield found


def get(door: Entrance, path: str, app: ASGIApp | None = None) -> httpx.Response:
    """A page, as the one person of a machine without login sees it."""
    pages = routes(door.service)
    found = app or create_api(door.service, gate=LoopbackGate(), pages=pages)
    answers: list[httpx.Response] = []

    async def ask() -> None:
        transport = ASGITransport(found)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:7") as client:
            answers.append(await client.get(path))

    run(ask)
    return answers[0]


@pytest.mark.parametrize(
    ("path", "shown", "hidden"),
    [
        ("/fleet", "east-a-0", "The next hosts"),
        ("/fleet?cluster=east-a&state=healthy", "2 hosts", "0 hosts"),
        ("/fleet?model=A100", "There is no GPU model &#39;A100&#39;", 'data-key="host east-a-0"'),
        ("/fleet?state=heathy", "did you mean &#39;healthy&#39;?", 'data-key="host east-a-0"'),
        ("/fleet?state=down", "0 hosts", "There is no host state"),
        ("/events?kind=PREEMPTIG", "did you mean &#39;PREEMPTING&#39;?", "Something failed"),
        ("/usage?period=99d", "There is no period &#39;99d&#39;: did you mean", "Something failed"),
        ("/data?period=99d", "There is no period &#39;99d&#39;", "Something failed"),
        ("/data?region=est", "did you mean &#39;east&#39;?", "Something failed"),
        ("/fleet?host=east-a-0", "takes work", "is in a state that this page does not know"),
        ("/fleet?job=j1", "j1 has its place in east/east-a", "it needs no place"),
        ("/tenants?model=H100", '"gpu_model":"H100"', "A100"),
        ("/data", "Nothing is copied now", "The next datasets"),
        ("/usage?by=user&period=24h", "GPU-hours by user", "GPU-hours by tenant"),
        ("/usage?by=label.team", "GPU-hours by label team", "GPU-hours by tenant"),
        ("/usage?period=never", "Of the last", "Something failed"),
        ("/events?kind=submitted", "What happened", "Nothing of this happened, ever"),
        ("/events?kind=SUBMITTED", 'href="/events?kind=submitted"', "Nothing of this happened"),
        ("/events?show=audit&verb=submit", "submit", "No act is like this"),
        ("/events?show=audit&verb=hold", "No act is like this", "Earlier acts"),
        ("/system", "This server leads", "out of reach"),
        ("/words", 'id="WaitingForQuota"', "Something failed"),
        ("/", 'href="/words"', "Something failed"),
        ("/whatif?add=east-a&count=3", 'value="east-a" selected', "It failed"),
        ("/whatif?job=j7&change=priority%3Dhigh", 'value="priority=high" selected', "It failed"),
    ],
)
def test_a_page_shows_what_its_address_asks_for(
    door: Entrance, path: str, shown: str, hidden: str
) -> None:
    answer = get(door, path)
    assert answer.status_code == 200, answer.text
    assert shown in answer.text
    assert hidden not in answer.text


def test_the_audit_log_is_asked_for_by_time(tmp_path: Path) -> None:
    """As by `topmast audit`: so long ago, or dates, which are in UTC; the link onward keeps them."""
    with entrance(tmp_path) as door:

        async def submit() -> None:
            await door.service.submit(ROOT, JOB, "ann", "", "")

        run(submit)
        none = "No act is like this"
        for query, found in (
            ("since=1h", True), ("since=2020-01-31&until=2100-01-31T12:00%2B01:00", True),
            ("until=1h", False), ("since=2100-01-31", False), ("tenant=vision", True),
            ("tenant=nlp", False),
        ):  # fmt: skip
            text = get(door, f"/events?show=audit&verb=submit&{query}").text
            assert (none not in text) == found, query
        text = get(door, "/events?show=audit&since=2020-01-31").text
        assert re.search(r'name="since" value="2020-01-31"', text)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("since=soon&until=never&actor=ann", {
            "since": "Since: 'soon' is not a time; write 2h (ago), 2030-01-31, 2030-01-31T12:00, "
            "or seconds since the epoch",
            "until": "Until: 'never' is not a time; write 2h (ago), 2030-01-31, "
            "2030-01-31T12:00, or seconds since the epoch",
            "actor": "Account: 'ann' is no subject; user:ann or sa:ann",
        }),
        ("verb=cancle", {"verb": "Act: no verb 'cancle'; did you mean 'cancel'?"}),
        ("since=1h&until=2h", {"until": "Until: '2h' is not after '1h'; write a later time"}),
        ("tenant=speach", {"tenant": "Tenant: unknown tenant 'speach'; did you mean 'speech'?"}),
        ("outcome=x", {"outcome": "Outcome: no outcome begins with 'x'; one of: "
                       "done, unchanged, refused"}),
    ],
)  # fmt: skip
def test_filters_of_the_audit_log_that_cannot_be_read(
    door: Entrance, query: str, told: dict[str, str]
) -> None:
    """Each is named, by the word of the form; what was typed stays, and no act is listed."""
    answer = get(door, f"/events?show=audit&{query}")
    assert answer.status_code == 422
    text = html.unescape(answer.text)
    found = re.findall(r'<li id="trouble-of-(\w+)"><bdi>(.*?)</bdi>', text)
    assert dict(found) == told
    for name in told:
        assert re.search(rf'name="{name}"[^>]*aria-describedby="trouble-of-{name}"', text)
    assert "<tr data-row" not in text


def test_usage_is_chosen_by_the_labels_of_jobs(tmp_path: Path) -> None:
    """Those of the newest jobs are offered; what has no such label is told as none."""
    with entrance(tmp_path) as door:

        async def submit() -> None:
            for labels in ({}, {"stage": "eval"}):
                await door.service.submit(ROOT, JOB | {"labels": labels}, "ann", "", "")

        run(submit)
        every, chosen = get(door, "/usage").text, get(door, "/usage?by=label.stage").text
    assert '<option value="label.stage">label stage</option>' in every
    assert '<option value="label.stage" selected>label stage</option>' in chosen
    assert '<span class="dim">none</span>' in chosen


def test_the_fleet_is_told_as_a_file_with_what_changed_it(tmp_path: Path) -> None:
    """As `topmast fleet show` writes it; another version after a change, and who made that."""
    with entrance(tmp_path) as door:
        before = get(door, "/fleet/file")
        kept = get(door, "/fleet/file?as=yaml")
        assert yaml.safe_load(kept.text)["tenants"]["vision"]
        assert kept.headers["content-disposition"] == 'attachment; filename="fleet.yaml"'

        async def change() -> None:
            found = await door.service.fleet(ROOT)
            assert f"--base {found.version} --dry-run" in before.text
            assert kept.text.startswith(f"# version {found.version}: ")
            quota = {"quota": {"H100": 3}}
            wanted = {"tenants": {**found.fleet["tenants"], "later": quota}}
            await door.service.fleet_apply(ROOT, wanted, found.version, "a new team")

        run(change)
        after = get(door, "/fleet/file").text
        assert "Nothing: it is as it was at the start." in before.text
        assert "tenant later added" in after
        assert "a new team" in after
        assert re.findall("--base ([0-9a-f]+)", after) != re.findall(
            "--base ([0-9a-f]+)", before.text
        )
        assert '<a href="/fleet/file">' in get(door, "/fleet").text


def test_earlier_events_are_a_click_away(tmp_path: Path) -> None:
    """Page after page, each event once, with the filters of the first."""
    with entrance(tmp_path) as door:

        async def submit() -> None:
            for _ in range(ROWS + 5):
                await door.service.submit(ROOT, JOB, "ann", "", "")

        run(submit)
        first = get(door, "/events?kind=submitted").text
        onward = re.search(r'rel="next" href="([^"]*)">Earlier events', first)
        assert onward is not None
        assert "kind=submitted" in onward[1]
        second = get(door, f"/events{html.unescape(onward[1])}").text
        told = [re.findall(r'<tr data-row data-key="(\d+)"', text) for text in (first, second)]
    assert [len(keys) for keys in told] == [ROWS, 5]
    assert not set(told[0]) & set(told[1])
    assert "Earlier events" not in second


def test_the_audit_log_says_why(door: Entrance) -> None:
    async def hold() -> None:
        act = JobsAct("hold", ("j1",), "", "ann", "the data is <wrong>")
        await door.service.act_on_jobs(ROOT, act)

    run(hold)
    text = get(door, "/events?show=audit&verb=hold").text
    assert '<td data-label="Reason"><bdi>the data is &lt;wrong&gt;</bdi></td>' in text


def test_a_standby_says_how_far_it_is_behind(door: Entrance) -> None:
    pages = routes(door.service, standing=lambda: Standing("http://127.0.0.1:7", 1.25))
    app = create_api(door.service, gate=LoopbackGate(), pages=pages)
    assert "1.2 s behind the leader" in get(door, "/system", app).text


def test_a_dataset_without_a_replica_is_a_fault(tmp_path: Path) -> None:
    """The fleet file promises one that no store has: jobs that read it wait for ever."""
    lost = {"images": {"size": "1GB", "replicas": ["east"]}}
    with entrance(tmp_path, FLEET | {"datasets": lost}) as door:
        every, one = get(door, "/data").text, get(door, "/data?dataset=images").text
    assert "Without a replica" in every
    assert '<span class="state state-bad">no replica</span>' in every
    assert "topmast datasets add images --region REGION --source FOLDER" in one


@pytest.mark.parametrize(
    ("path", "status", "why"),
    [
        ("/fleet?host=nowhere", 404, "no host"),
        ("/fleet?job=j999", 404, "j999"),
        ("/usage?by=moon", 422, "moon"),
        ("/events?show=audit&before=x", 422, "not a number"),
        ("/fleet?from=-1&region=%3Cscript%3E", 200, "0 hosts"),
    ],
)
def test_a_wrong_address_is_answered_by_a_page(
    door: Entrance, path: str, status: int, why: str
) -> None:
    answer = get(door, path)
    assert (answer.status_code, why in html.unescape(answer.text)) == (status, True), answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert "<script>" not in answer.text


def test_names_of_users_stay_text_on_each_page(door: Entrance) -> None:
    for path in ("/usage?by=user", "/events", "/events?show=audit", "/fleet", "/tenants"):
        assert HOSTILE not in get(door, path).text
    assert html.escape(HOSTILE.replace("\u202e", "\ufffd")) in get(door, "/usage?by=user").text


def test_a_map_hides_the_jobs_of_other_tenants(door: Entrance) -> None:
    """They are GPUs and a band; neither name nor id is told."""

    async def story() -> None:
        whole = await door.service.fleet_map(ROOT)
        part = await door.service.fleet_map(VIEWER)
        assert {job.tenant for job in whole.jobs.values()} == {"vision"}
        assert [(j.name, j.tenant) for j in part.jobs.values()] == [("", "(another tenant)")]
        (held,) = [h.held for r in part.regions for c in r.clusters for h in c.hosts if h.held]
        assert list(held.values()) == [1.0]
        assert set(held) == set(part.jobs)
        assert not set(held) & set(whole.jobs)

    run(story)


def test_readers_share_a_map_for_a_while(door: Entrance) -> None:
    async def story() -> None:
        assert await door.service.fleet_map(ROOT) is await door.service.fleet_map(ROOT)

    run(story)


def test_the_audit_log_is_for_those_that_may_read_it(door: Entrance) -> None:
    """A viewer sees events instead, and no way to the log."""

    async def story() -> None:
        token = await door.token("watcher", (Role.VIEWER, "/"))
        async with door.client(token) as client:
            answer = await client.get(f"{URL}/events?show=audit")
        assert answer.status_code == 200
        assert "which account did what" not in answer.text
        assert "The newest" in answer.text

    run(story)


def test_the_map_does_not_wait_for_the_modules_of_all_pages(door: Entrance) -> None:
    """Modules run in the order of the page, each after all that it imports."""

    async def story() -> None:
        async with local(door) as client:
            modules = re.findall(
                r'<script type="module" src="[^"]*/([^"/]+)"', (await client.get("/fleet")).text
            )
        assert modules == ["gpu-map.js", "app.js"]

    run(story)


FUTURE = '{"base": {}, "changed": {}}'
FIGURES_LINE = '{"jobs_over": 3, "jobs": 8, "text": "3 of 8, about 4s left"}'


@pytest.mark.parametrize(
    ("program", "state", "why"),
    [
        (f"import sys; print('1 of 2', file=sys.stderr); print('{FUTURE}')", "done", ""),
        (f"import sys; sys.exit('{FIGURES_LINE}')", "failed", "its process died"),
        ("import sys; sys.exit('error: no such cluster')", "failed", "error: no such cluster"),
    ],
)
def test_a_whatif_runs_in_a_process_of_its_own(
    door: Entrance, program: str, state: str, why: str
) -> None:
    """One at a time; its result, or the last line of its trouble, is kept."""

    async def story() -> None:
        whatifs = WhatIfs((sys.executable, "-c", program), ("mast",), door.service.clock)
        begun = whatifs.start(WhatIfAsk(add_hosts={"east-a": 2}), "user:ann")
        with pytest.raises(Conflict, match="what-if w1 of user:ann runs: wait until it is done"):
            whatifs.start(WhatIfAsk(), "user:bob")
        while whatifs.view(begun.id).state == "running":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        ended = whatifs.view(begun.id)
        assert (ended.state, ended.why, bool(ended.result)) == (state, why, state == "done")
        assert whatifs.latest() == (ended,)

    run(story)


@pytest.mark.parametrize(
    ("line", "bar", "words"),
    [
        (
            FIGURES_LINE,
            'max="1" value="0.375"',
            "3 of 8, about 4s left",
        ),
        ("3 of 8 jobs over", "", "3 of 8 jobs over"),
        ("compiling the search kernels for the first time", "", "compiling the search kernels"),
        ("", "", "It reads the state"),
    ],
)
def test_a_whatif_that_runs_says_how_far_it_is(
    door: Entrance, line: str, bar: str, words: str
) -> None:
    """With a bar as long as the share of jobs that are over, once that is known."""
    program = f"import sys, time; {line!r} and print({line!r}, file=sys.stderr); time.sleep(120)"

    async def story() -> None:
        async with local(door) as client:
            whatifs = WhatIfs((sys.executable, "-c", program), (), door.service.clock)
            door.service.whatifs = whatifs
            begun = whatifs.start(WhatIfAsk(), "user:ann")
            while bool(whatifs.view(begun.id).progress) != bool(line):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            text = (await client.get(f"/whatif?id={begun.id}")).text
            door.service.whatifs = None
            whatifs.close()
            while whatifs.view(begun.id).state == "running":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        drawn = re.search(r"<progress([^>]*)>", text)
        assert drawn is not None
        assert drawn.group(1).partition("over")[2].strip('" ') == bar.strip('" ')
        assert words in text

    run(story)


def test_a_difference_that_rounds_to_nothing_is_not_shown(door: Entrance) -> None:
    """Neither as more nor as less than nothing."""
    base: dict[str, object] = {key: 1.0 for key, *_ in FIGURES if "." not in key}
    base |= {"wait_s": {"mean": 60, "p50": 60, "p90": 90}, "jct_s": {"mean": 600}, "tenants": {}}
    base["changed_jobs"] = {"j7": {"start_s": 600.0, "finish_s": None}}
    changed = base | {"allocation_rate": 0.9999, "started": 3.0, "finished": 0.0}
    changed["changed_jobs"] = {"j7": {"start_s": 0.0, "finish_s": 90.0}}
    one = {"job": "j8", "base_start_s": None, "changed_start_s": 30.0}
    moved = {"sooner": 12, "later": 0, "gain_most": [one], "lose_most": []}
    about = {"changes": ["one"], "warnings": [], "for_s": 60, "at_s": 0, "moved": moved}
    document = json.dumps({"base": base, "changed": changed} | about)

    async def story() -> None:
        async with local(door) as client:
            whatifs = WhatIfs(
                (sys.executable, "-c", f"print({document!r})"), (), door.service.clock
            )
            door.service.whatifs = whatifs
            begun = whatifs.start(WhatIfAsk(), "user:ann")
            while whatifs.view(begun.id).state == "running":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            text = (await client.get(f"/whatif?id={begun.id}")).text
            door.service.whatifs = None
        shown = re.findall(r'data-label="Difference" class="right">([^<]*)<', text)
        assert [one for one in shown if one] == ["+2", "−1"]
        of_job = re.findall(r'data-label="(?:As it is|Changed)" class="right">([a-z][^<]*)<', text)
        never = "not within 1m"
        waits = ["at least 1m", "at least 1m", never, never, never, never]
        job = ["after 10m", "at once", never, "after 1m30s"]
        assert of_job == [*waits, *job, never, "after 30s"]
        assert "Jobs that gain most: 1 of 12" in text
        assert '<a href="/jobs/j8">j8</a>' in text
        assert "Jobs that lose most" not in text

    run(story)


def test_the_form_of_a_whatif_keeps_what_was_given(door: Entrance) -> None:
    """On the page of its result, so that one field can be changed and compared again."""
    asked = WhatIfAsk(
        for_s=3_600.0, add_hosts={"east-a": 3}, quotas={"vision:H100": 0}, profile="mast",
        lose_regions=("east",), jobs={"j7": {"preemptible": False}},
    )  # fmt: skip

    async def story() -> None:
        async with local(door) as client:
            whatifs = WhatIfs((sys.executable, "-c", "raise SystemExit(1)"), ("mast",),
                              door.service.clock)  # fmt: skip
            door.service.whatifs = whatifs
            begun = whatifs.start(asked, "user:ann")
            text = (await client.get(f"/whatif?id={begun.id}")).text
            while whatifs.view(begun.id).state == "running":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            door.service.whatifs = None
        chosen = re.findall(r'<option value="([^"]*)" selected>', text)
        assert chosen == ["east-a", "preemptible=false", "east", "mast", "3600"]
        for name, value in (("count", "3"), ("quota", "vision:H100"), ("gpus", "0"), ("job", "j7")):
            assert re.search(rf'name="{name}"[^>]* value="{value}"', text), name

    run(story)


def test_the_form_of_a_whatif_has_a_row_for_each_change(door: Entrance) -> None:
    """From the address, where names are repeated, and from what a what-if was asked."""
    query = (
        "add=east-a&count=3&add=east-b:T4&count=2&quota=vision:H100&gpus=8&quota=vision:A100"
        "&job=j7&change=priority%3Dhigh&job=j7&change=time_limit_s%3D60&lose=east&lose=west&for=6h"
    )
    rows = r'name="(add|change|lose)">(.*?)</select>'
    typed = r'name="(quota)"[^>]* value="([^"]*)"'
    chosen = r'<option value="([^"]*)" selected>'

    def shown(text: str) -> list[tuple[str, ...]]:
        plain = re.sub(r"<template>.*?</template>", "", text, flags=re.DOTALL)
        found = re.findall(rows, plain, re.DOTALL)
        picked = [(name, *re.findall(chosen, options)) for name, options in found]
        return [*picked, *re.findall(typed, plain)]

    text = get(door, f"/whatif?{query}").text
    want = [
        ("add", "east-a"), ("add", "east-b:T4"), ("change", "priority=high"),
        ("change", "time_limit_s=60"), ("lose", "east"), ("lose", "west"),
        ("quota", "vision:H100"), ("quota", "vision:A100"),
    ]  # fmt: skip
    assert shown(text) == want
    assert re.findall(r'name="(?:count|gpus)"[^>]* value="(\d+)"', text) == [
        "3", "2", "1", "8", "16", "16",
    ]  # fmt: skip
    assert '<option value="21600" selected>6h</option>' in text
    asked = WhatIfAsk(
        add_hosts={"east-a": 3, "east-b:T4": 2}, quotas={"vision:H100": 8, "vision:A100": 16},
        jobs={"j7": {"priority": "high", "time_limit_s": 60}}, lose_regions=("east", "west"),
    )  # fmt: skip
    whatifs = WhatIfs(("false",), (), door.service.clock)
    whatifs._views["w1"] = WhatIfView("w1", asked, "failed", 0.0)
    door.service.whatifs = whatifs
    assert shown(get(door, "/whatif?id=w1").text) == want
    door.service.whatifs = None


def test_a_whatif_of_a_job_says_what_it_asks_for(door: Entrance) -> None:
    """As values of JSON, which the command line reads."""
    whatifs = WhatIfs(("false",), (), door.service.clock)
    asked = WhatIfAsk(jobs={"j7": {"priority": "high", "preemptible": False}})
    told = ['--job=j7:priority="high"', "--job=j7:preemptible=false"]
    assert whatifs._arguments(asked)[1:] == told


@pytest.mark.parametrize(
    "asked",
    [WhatIfAsk(for_s=1.0), WhatIfAsk(profile="/etc/passwd"),
     WhatIfAsk(add_hosts={f"c{i}": 1 for i in range(21)}),
     WhatIfAsk(jobs={"j7": {"priority": "urgent"}}), WhatIfAsk(jobs={"j7:x=1": {"priority": "low"}}),
     WhatIfAsk(jobs={"--state": {"priority": "low"}}), WhatIfAsk(jobs={"j7": {}})],
)  # fmt: skip
def test_a_whatif_that_cannot_be_is_refused(door: Entrance, asked: WhatIfAsk) -> None:
    with pytest.raises(InvalidInput):
        WhatIfs(("false",), ("mast",), door.service.clock).start(asked, "user:ann")


@pytest.mark.parametrize(
    ("counts", "part", "want"),
    [((0, 0, 0), 0.5, 0.0), ((3, 0, 0), 0.99, 1.0), ((1, 99, 0), 0.5, 2.0), ((0, 0, 5), 0.5, 2.0)],
)
def test_a_quantile_is_an_upper_bound(counts: tuple[int, ...], part: float, want: float) -> None:
    assert quantile((1.0, 2.0), counts, part) == want


def test_times_are_told_by_step(door: Entrance) -> None:
    meter = Meter(door.system.machines.queue, lambda: 0.0)
    meter.handle_s.observe(0.002, "queue")
    meter.commit_s.observe(0.004)
    told = timings(meter)
    assert [(one.step, one.count, one.mean_s) for one in told] == [
        ("commit", 1, 0.004), ("queue", 1, 0.002),
    ]  # fmt: skip
    assert all(one.median_s in QUICK_S for one in told)


def test_charts_are_told_as_tables_too(door: Entrance) -> None:
    """Supply and demand, use by tenant, metrics of a job; without samples they say so."""
    samples = door.system.samples
    samples._over.set()
    samples._rings = Rings()
    assert "There are no samples" in get(door, "/data").text
    for at_s in (0.0, 60.0):
        samples._rings.add(door.service.clock.now() - 120.0 + at_s, samples._read())  # type: ignore[misc]
    for path, title, labels in (
        ("/data", "H100", ["present", "held", "held or waited for"]),
        ("/data?within=east", "H100 in east", ["present", "held"]),
        ("/data?within=moon&period=7d", "Demand over supply by region", ["east"]),
        ("/usage?period=1h", "GPUs held by tenant", ["vision", "speech", "visio", "vision2"]),
    ):
        text = get(door, path).text
        found = charts(text)
        assert found[title] == labels, path
        assert ("H100 in moon" in found) is False
        assert f'aria-label="{title} as a table"' in text
    door.service.live_progress.note(Progress("j1", 1, 0, 7, {HOSTILE: 0.5}, 0.0))
    shown = HOSTILE.replace("\u202e", "\ufffd")
    assert charts(get(door, "/jobs/j1").text) == {shown: [shown]}


def charts(text: str) -> dict[str, list[str]]:
    """The labels of the lines by the title of the chart."""
    scripts = re.findall(r'<time-series><script type="application/json">(.*?)</script>', text)
    read = [json.loads(script) for script in scripts]
    return {one["label"]: [series["label"] for series in one["series"]] for one in read}


@pytest.mark.parametrize(
    ("values", "drawn"),
    [((0.0, 0.0, None), False), ((None, None, None), False), ((0.0, 0.0, 2.0), True)],
)
def test_a_chart_of_usage_is_drawn_as_soon_as_a_gpu_was_held(
    values: tuple[float | None, ...], drawn: bool
) -> None:
    """A new server has no lines of nothing."""
    lines = tuple(SeriesView(("tenant", name), values) for name in ("vision", "speech"))
    over = FleetHistory(0.0, 600.0, 10.0, 0.0, (570.0, 580.0, 590.0), lines)
    assert (use_by_tenant(over) is not None) == drawn


def test_usage_of_a_new_server_says_that_there_is_nothing_yet(tmp_path: Path) -> None:
    with entrance(tmp_path) as new:
        new.service.history = lambda *_: FleetHistory(  # type: ignore[method-assign]
            0.0, 20.0, 10.0, 0.0, (10.0,), (SeriesView(("tenant", "vision"), (0.0,)),)
        )
        text = get(new, "/usage").text
    assert "There is nothing yet: no GPU was held in the last week." in text
    assert "<time-series>" not in text
