"""The page of the queue: order, filters, words, groups, pages."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import Iterator

import httpx
import pytest

from tests.support.entrance import URL, Entrance, entrance, run
from tests.unit.web.support import local, submit
from topmast.model.access import Role
from topmast.service import forecast
from topmast.web.pages import queue


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """Four GPUs of two tenants, three jobs that hold them and seven that wait."""
    with entrance(tmp_path_factory.mktemp("queue")) as found:

        async def fill() -> None:
            async with local(found) as client:
                big = {"accelerators": "H100:2"}
                await submit(client, "ann", name="first", resources=big)
                await submit(client, "bob", name="second", tenant="speech", resources=big)
                for n in range(6):
                    await submit(client, "ann", name=f"later-{n}", resources=big)
                await submit(client, "cy", name="odd", resources={"accelerators": "H100:8"})
                await client.post("/api/v1/jobs/hold", json={"jobs": ["j8"], "reason": "a test"})

        run(fill)
        yield found


def rows(text: str) -> list[str]:
    """The jobs of a page, from top to bottom."""
    return re.findall(r'<tr data-row data-key="([^"]*)"', text)


def row(text: str, key: str) -> str:
    """One row as text without tags."""
    found = text.partition(f'data-key="{key}"')[2].partition("</tr>")[0]
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", found))


async def shown(client: httpx.AsyncClient, url: str) -> str:
    """A page that answers."""
    answer = await client.get(url)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_what_holds_gpus_comes_first_and_what_waits_has_a_place_in_line(door: Entrance) -> None:
    """With its reason in words, and its number among those that wait."""

    async def story() -> None:
        async with local(door) as client:
            text = await shown(client, "/")
            found = rows(text)
            assert found[:2] == ["j1", "j2"]
            assert "Running" in row(text, "j1")
            assert "lowest score" in row(text, "j1")
            assert "#" not in row(text, "j1")
            places = [re.search(r"#(\d+)", row(text, job)) for job in found[2:]]
            assert [int(p.group(1)) for p in places if p] == [1, 2, 3, 4, 5, 6, 7]
            assert "Held : the job waits until it is released" in row(text, "j8")
            assert "no host could run 1 task" in row(text, "j9")
            why = [
                (await client.get(f"/api/v1/jobs/{job}/story")).json()["why"]
                for job in ("j1", "j9")
            ]
            assert why[0] == ""
            assert why[1].startswith("no host could run 1 task")

    run(story)


def test_the_list_says_in_which_order_it_is(door: Entrance) -> None:
    """With a link to what a rank is; ended jobs have none."""

    async def story() -> None:
        async with local(door) as client:
            order = 'by <a class="word" href="/words#rank"'
            assert order in (await client.get("/")).text
            ended = (await client.get("/?state=all")).text
            assert order not in ended
            assert ", newest first" in ended
            grouped = (await client.get("/?group=band")).text
            assert ">priority</option>" in grouped
            assert ">band</option>" not in grouped

    run(story)


def test_a_job_that_waits_has_its_expected_start_or_a_way_to_it(door: Entrance) -> None:
    """No time lets a held job start, but its release; nor one that is too large, ever."""

    async def story() -> None:
        async with local(door) as client:
            for _ in range(50):
                text = await shown(client, "/")
                if "ask" not in row(text, "j3"):
                    break
                await asyncio.sleep(0.1)
            for job in ("j3", "j7"):
                assert re.search(r" in \d+[smhd]", row(text, job)), row(text, job)
            assert "not before it is released" in row(text, "j8")
            assert "never, unless the job, the fleet or a limit changes" in row(text, "j9")
            assert "not known" not in text

    run(story)


def test_a_job_of_which_a_forecast_found_no_start_says_so(door: Entrance) -> None:
    """It waits for one that is held: on its row and on its page; it is not "not known yet"."""

    async def story() -> None:
        async with local(door) as client:
            after = await submit(client, "dee", name="after", depends_on=["j8"])
            for _ in range(100):
                text = await shown(client, "/?user=dee")
                if "no start is foreseen" in row(text, after):
                    break
                await asyncio.sleep(0.1)
            assert "no start is foreseen" in row(text, after)
            page = await shown(client, f"/jobs/{after}")
            assert "No start is foreseen: no expected event would let it start" in page
            await client.post("/api/v1/jobs/cancel", json={"jobs": [after]})

    run(story)


def test_a_start_that_is_not_forecast_yet_is_a_link_to_the_page_that_does(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "MOST_LISTED", -1)
    monkeypatch.setattr(door.service.forecasts, "_last", None)

    async def story() -> None:
        async with local(door) as client:
            text = await shown(client, "/")
            assert '<a href="/jobs/j3#start-title"' in text
            assert "never, unless the job, the fleet or a limit changes" in row(text, "j9")

    run(story)


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("/?tenant=speech", ["j2"]),
        ("/?user=bob", ["j2"]),
        ("/?name=later-*&state=PENDING", [f"j{n}" for n in range(3, 9)]),
        ("/?selector=user%3Dcy", ["j9"]),
        ("/?user=cy&selector=tenant%3Dvision", ["j9"]),
        ("/?user=c,y", ["j9"]),
        ("/?band=high", []),
        ("/?state=SUCCEEDED", []),
    ],
)
def test_filters_are_those_of_the_command_line(door: Entrance, url: str, want: list[str]) -> None:
    """In the address; what is typed stands in the form again."""

    async def story() -> None:
        async with local(door) as client:
            assert sorted(rows(await shown(client, url))) == want

    run(story)


@pytest.mark.parametrize(
    ("url", "typed", "words"),
    [
        ("/?selector=nonsense&name=later-*", 'value="nonsense"', "selector"),
        ("/?state=ASLEEP&name=later-*", 'value="ASLEEP"', "state"),
        ("/?group=moon&name=later-*", 'value="later-*"', "moon"),
    ],
)
def test_filters_that_cannot_be_read_stay_in_the_form(
    door: Entrance, url: str, typed: str, words: str
) -> None:
    """With what is wrong beside them; no job is listed, and nothing can be done to all of them."""

    async def story() -> None:
        async with local(door) as client:
            answer = await client.get(url)
            assert answer.status_code == 422
            told = answer.text.partition('role="alert"')[2].partition("</p>")[0]
            assert words in told
            assert typed in answer.text
            assert 'value="later-*"' in answer.text
            assert rows(answer.text) == []
            assert "data-select" not in answer.text

    run(story)


def test_a_job_that_waits_says_which_gpus_it_wants(door: Entrance) -> None:
    """As one that has GPUs says which it has."""

    async def story() -> None:
        async with local(door) as client:
            text = await shown(client, "/")
            assert " 2 H100 " in row(text, "j1")
            assert " 2 H100 " in row(text, "j3")
            assert " 8 H100 " in row(text, "j9")

    run(story)


@pytest.mark.parametrize(
    ("guessed", "page"),
    [
        ("/queue", "/"),
        ("/queue?tenant=speech", "/?tenant=speech"),
        ("/jobs", "/"),
        ("/hosts", "/fleet"),
        ("/hosts/east-a-0", "/fleet?host=east-a-0"),
        ("/clusters/east-a", "/fleet?cluster=east-a"),
        ("/tenants/speech", "/tenants?tenant=speech"),
        ("/hosts/a%26b%3Fc?by=use", "/fleet?by=use&host=a%26b%3Fc"),
    ],
)
def test_addresses_that_people_guess_lead_to_a_page(
    door: Entrance, guessed: str, page: str
) -> None:
    async def story() -> None:
        async with local(door) as client:
            answer = await client.get(guessed, follow_redirects=False)
            assert (answer.status_code, answer.headers["location"]) == (303, page)

    run(story)


def test_pages_go_on_with_the_numbers_of_those_before(
    door: Entrance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job is on two pages, and places go on."""
    monkeypatch.setattr(queue, "ROWS", 4)

    async def story() -> None:
        async with local(door) as client:
            url, found, places = "/", [], []
            while url:
                text = await shown(client, url)
                found += rows(text)
                places += [
                    int(n) for job in rows(text) for n in re.findall(r"#(\d+)", row(text, job))
                ]
                onward = re.search(r'rel="next" href="([^"]*)"', text)
                url = f"/{onward.group(1)}".replace("&amp;", "&") if onward else ""
            assert sorted(found) == sorted(f"j{n}" for n in range(1, 10))
            assert places == [1, 2, 3, 4, 5, 6, 7]

    run(story)


def test_groups_add_up(door: Entrance) -> None:
    """What each tenant holds and asks for, and the job that has waited longest."""

    async def story() -> None:
        async with local(door) as client:
            text = await shown(client, "/?group=tenant")
            assert rows(text) == ["vision", "speech"]
            numbers = re.findall(r"\d+", row(text, "vision").partition("j3")[0])
            assert numbers == ["8", "2", "7", "20"]
            assert "j3" in row(text, "vision")
            assert rows(await shown(client, "/?group=user&tenant=vision")) == ["ann", "cy"]
            assert (await client.get("/?group=shoe")).status_code == 422
            assert (await client.get("/?group=label.")).status_code == 422

    run(story)


def test_the_search_finds_a_job_by_its_id_or_by_a_part_of_its_name(door: Entrance) -> None:
    """The id leads to the job, all else to a filter."""

    async def story() -> None:
        async with local(door) as client:
            to = [
                (await client.get("/", params={"q": q})).headers["location"] for q in ("j7", "ater")
            ]
            assert to == ["/jobs/j7", "/?name=%2Aater%2A&state=all"]
            assert len(rows(await shown(client, to[1]))) == 6

    run(story)


def test_a_tenant_sees_its_own_and_no_more_acts_than_it_may(door: Entrance) -> None:
    """Neither other jobs, nor their names in sentences; a viewer has no buttons."""

    async def story() -> None:
        token = await door.token("reader", (Role.VIEWER, "speech"))
        async with door.client(token) as client:
            text = await shown(client, f"{URL}/")
            assert rows(text) == ["j2"]
            assert "data-act" not in text
            assert "first" not in text
            assert rows(await shown(client, f"{URL}/?group=user")) == ["bob"]
        async with local(door) as client:
            assert "/api/v1/jobs/cancel" in await shown(client, "/")

    run(story)


def test_jobs_are_grouped_by_a_label(door: Entrance) -> None:
    """The form offers the labels of the page's jobs; a group leads to its jobs."""

    async def story() -> None:
        async with local(door) as client:
            for team in ("red", "red", "blue"):
                await submit(client, labels={"team": team})
            assert "<option>label.team</option>" in await shown(client, "/")
            text = await shown(client, "/?group=label.team&tenant=vision")
            assert set(rows(text)) == {"red", "blue", "(none)"}
            assert "<caption>3 values of label.team," in text
            assert "<option selected>label.team</option>" in text
            links = [html.unescape(link) for link in re.findall(r'<td><a href="([^"]*)', text)]
            found = [len(rows(await shown(client, f"/{link}"))) for link in links]
            assert sorted(found) == [1, 2]

    run(story)


def test_the_buttons_of_states_count_what_the_filters_leave(door: Entrance) -> None:
    """By tenant; where each job would have to be looked at, they have no numbers."""

    async def story() -> None:
        async with local(door) as client:
            everyone = buttons(await shown(client, "/"))
            of_vision = buttons(await shown(client, "/?tenant=vision"))
            assert {"Pending", "Running"} <= set(of_vision)
            for state, count in of_vision.items():
                listed = rows(await shown(client, f"/?tenant=vision&state={state.upper()}"))
                assert count == len(listed) > 0
            assert (of_vision["Running"], everyone["Running"]) == (1, 2)
            none = await shown(client, "/?tenant=speech&state=SUSPENDED")
            assert buttons(none)["Suspended"] == 0, "what is shown stays chosen"
            by_name = buttons(await shown(client, "/?name=later-*"))
            assert set(by_name.values()) == {None}

    run(story)


def buttons(text: str) -> dict[str, int | None]:
    """The states that can be chosen, each with its number if it has one."""
    found = re.findall(r'class="state state-[A-Z]+">([A-Za-z]+)</span>(?: <b>(\d+)</b>)?</a>', text)
    return {state: int(count) if count else None for state, count in found}
