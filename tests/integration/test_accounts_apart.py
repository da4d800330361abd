"""Accounts and roles of tenants that know nothing of each other, and of tenants that leave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.entrance import ROOT, Entrance, entrance, run
from topmast.model.access import Role


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    """The control plane of this file."""
    with entrance(tmp_path_factory.mktemp("apart")) as found:
        yield found


async def change(
    client: httpx.AsyncClient, verb: str, subject: str, tenant: str, role: str = "viewer"
) -> tuple[int, dict[str, Any]]:
    """How a change of a role is answered."""
    body = {"subject": subject, "role": role, "tenant": tenant}
    answer = await client.post(f"/roles/{verb}", json=body)
    return answer.status_code, answer.json()


def test_no_role_is_given_to_an_account_of_another_tenant(door: Entrance) -> None:
    """It would keep its administrator from making tokens; and it is as if there were no such account."""

    async def story() -> None:
        directory = door.service.directory
        await directory.add_account(ROOT, "theirs", "speech")
        one = await door.token("one", (Role.TENANT_ADMIN, "vision"))
        other = await door.token("other", (Role.TENANT_ADMIN, "speech"))
        async with door.client(one) as client:
            for name in ("theirs", "nothing"):
                status, problem = await change(client, "grant", f"sa:{name}", "vision")
                assert (status, problem["detail"]) == (404, f"no service account '{name}'")
        await directory.grant(ROOT, "sa:theirs", "tenant-admin", "nlp")
        async with door.client(other) as client:
            answer = await client.post("/tokens", json={"account": "theirs"})
            assert answer.status_code == 403
            assert answer.json()["detail"] == "sa:theirs is tenant-admin, above the own role"
        async with door.client(one) as client:
            assert (await change(client, "revoke", "sa:theirs", "nlp", "tenant-admin"))[0] == 200
        async with door.client(other) as client:
            assert (await client.post("/tokens", json={"account": "theirs"})).status_code == 201

    run(story)


@pytest.mark.parametrize(
    "subject",
    ["user:a\u200bnn", "user:\u202enna", "user:ann\u2066", "sa:a\ufeffb", "group:a\u200b", "user:sa:sb",
     "user:a b", "user:", "user:\x1b"],
)  # fmt: skip
def test_a_subject_that_no_provider_could_name_is_refused(door: Entrance, subject: str) -> None:
    """It would look like another, or be one by another way."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            status, problem = await change(client, "grant", subject, "vision")
            assert (status, problem["field"]) == (422, "subject")
            assert (await change(client, "grant", "group:urn:a:b", "vision"))[0] == 201

    run(story)


def test_roles_at_a_tenant_that_left_are_told_of_and_can_be_taken_away(door: Entrance) -> None:
    """Else they would come back with a tenant of the same name."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        below = await door.token("below", (Role.TENANT_ADMIN, "vision"))
        async with door.client(token) as client, door.client(below) as lesser:
            await client.post("/accounts", json={"name": "bot", "tenant": "visio"})
            assert (await change(client, "grant", "user:eve", "visio"))[0] == 201
            document = (await client.get("/fleet")).json()["fleet"]
            visio = document["tenants"].pop("visio")
            for verb in ("diff", "apply"):
                told = (await client.post(f"/fleet/{verb}", json={"fleet": document})).json()
                assert told["warnings"] == [
                    "tenant visio leaves roles or accounts behind, which are good again if it "
                    "comes back: account bot, viewer of user:eve"
                ], verb
            assert (await change(lesser, "revoke", "user:eve", "visio"))[0] == 422
            assert (await change(client, "grant", "user:eve", "visio"))[0] == 422
            assert (await change(client, "revoke", "user:eve", "visio"))[0] == 200
            assert (await change(client, "revoke", "user:eve", "visio"))[0] == 422
            document["tenants"]["visio"] = visio
            await client.post("/fleet/apply", json={"fleet": document})
            held = [(role["subject"], role["tenant"])
                    for role in (await client.get("/roles")).json()["roles"]]  # fmt: skip
            assert ("user:eve", "visio") not in held

    run(story)


@pytest.mark.parametrize("query", ["since=nan", "since=inf", "until=-inf"])
def test_what_is_no_time_is_refused(door: Entrance, query: str) -> None:
    """422, not an empty page."""

    async def story() -> None:
        token = await door.token("chief", (Role.ADMIN, "/"))
        async with door.client(token) as client:
            answer = await client.get(f"/audit?{query}")
            assert (answer.status_code, answer.json()["field"]) == (422, query.split("=")[0])

    run(story)
