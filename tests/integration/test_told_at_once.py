"""Faults of type and faults of meaning in one answer, each by its own field and with the nearest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.support.entrance import Entrance, entrance, run
from topmast.model.access import Role


@pytest.fixture(name="door", scope="module")
def door_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Entrance]:
    with entrance(tmp_path_factory.mktemp("at-once")) as door:
        yield door


async def faults(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], status: int = 422
) -> dict[str, str]:
    """What a request is refused for, by field."""
    answer = await client.post(path, json=body)
    told = answer.json()
    assert answer.status_code == status, answer.text
    every = told.get("errors", [told])
    found = {one["field"]: f"{one['detail']} ({one['remedy']})" for one in every}
    assert len(found) == len(every), "one fault for each field"
    return found


def test_roles_and_accounts_tell_faults_of_type_and_of_meaning(door: Entrance) -> None:
    """A role, tenant, time or account that there is not, though another field is of a wrong type."""

    async def story() -> None:
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            grant = {"subject": "sa:cheif", "role": "sumbitter", "tenant": "visoin", "reason": 2}
            for path in ("/roles/grant", "/roles/revoke"):
                found = await faults(client, path, grant)
                assert set(found) - {"subject"} == {"reason", "role", "tenant"}
                assert "did you mean 'submitter'?" in found["role"]
                assert "did you mean 'vision'?" in found["tenant"]
                assert ("subject" in found) == path.endswith("grant"), "one may leave what is gone"
            assert (
                "did you mean 'chief'?" in (await faults(client, "/roles/grant", grant))["subject"]
            )
            found = await faults(
                client, "/accounts", {"name": "-", "tenant": "visoin", "reason": 1}
            )
            assert set(found) == {"reason", "name", "tenant"}
            found = await faults(client, "/accounts", {"tenant": "visoin", "dry_run": 3})
            assert set(found) == {"dry_run", "name", "tenant"}
            assert found["name"].startswith("missing")
            body = {"label": 1, "account": "cheif", "ttl_s": 3, "scopes": ["jobs.veiw"]}
            found = await faults(client, "/tokens", body)
            assert set(found) == {"label", "account", "ttl_s", "scopes[0]"}
            assert "did you mean 'chief'?" in found["account"]

    run(story)


def test_an_account_that_there_is_not_is_told_with_the_faults_of_its_token(door: Entrance) -> None:
    """Alone it is no such account; one that is hidden reads the same."""

    async def story() -> None:
        await door.token("hidden")
        async with door.client(await door.token("boss", (Role.TENANT_ADMIN, "vision"))) as client:
            for name in ("hidden", "hiddem"):
                body = {"account": name, "scopes": ["jobs.veiw"], "ttl_s": 1e9}
                found = await faults(client, "/tokens", body)
                assert set(found) == {"account", "scopes[0]", "ttl_s"}
                assert found["account"] == f"no service account '{name}' ()"
                (alone,) = (await faults(client, "/tokens", {"account": name}, 404)).items()
                assert alone == ("account", f"no service account '{name}' ()")

    run(story)


def test_the_audit_log_tells_a_wrong_verb_and_a_wrong_tenant_at_once(door: Entrance) -> None:
    """And a period that ends before it begins; a hidden tenant reads as one that there is not."""

    async def story() -> None:
        async with door.client(
            await door.token("auditor", (Role.TENANT_ADMIN, "vision"))
        ) as client:
            said = []
            for tenant in ("speech", "speach"):
                wrong = {"verb": "cancle", "tenant": tenant, "since": "2e9", "until": "1e9"}
                answer = await client.get("/audit", params=wrong)
                assert answer.status_code == 422
                told = {one["field"]: one for one in answer.json()["errors"]}
                assert set(told) == {"verb", "tenant", "until"}
                assert told["verb"]["remedy"] == "did you mean 'cancel'?"
                said.append(answer.text.replace(tenant, "T"))
            assert said[0] == said[1]
            good = await client.get("/audit", params={"verb": "cancle", "tenant": "vision"})
            assert good.json()["field"] == "verb"
            assert "errors" not in good.json()

    run(story)


def test_a_reservation_tells_each_name_that_there_is_not(door: Entrance) -> None:
    """With all else that is wrong; if nothing else is, they are not there."""

    async def story() -> None:
        async with door.client(await door.token("chief", (Role.ADMIN, "/"))) as client:
            names = {"hosts": ["east-a-O", "east-a-0", "x"], "tenants": ["visoin"]}
            until_s = door.service.clock.now() + 3600.0
            answer = await client.post("/reservations", json={**names, "until_s": until_s})
            assert answer.status_code == 404
            told = [(one["field"], one["detail"]) for one in answer.json()["errors"]]
            assert told == [
                ("tenants", "no tenant 'visoin' (did you mean 'vision'?)"),
                ("hosts", "no host 'east-a-O' (did you mean 'east-a-0'?)"),
                ("hosts", "no host 'x'"),
            ]
            answer = await client.post("/reservations", json={**names, "until_s": 1.0})
            assert answer.status_code == 422
            fields = [one["field"] for one in answer.json()["errors"]]
            assert fields == ["until_s", "tenants", "hosts", "hosts"]
            answer = await client.post("/hosts/cordon", json={"hosts": ["x", "east-a-0", "y"]})
            assert answer.status_code == 404
            assert [one["detail"] for one in answer.json()["errors"]] == [
                "no host 'x'", "no host 'y'",
            ]  # fmt: skip

    run(story)


def test_a_webhook_tells_its_faults_and_the_tenants_that_there_are_not(door: Entrance) -> None:
    """None hides another."""

    async def story() -> None:
        wrong = {"url": "x", "events": ["NOPE"], "tenants": ["vision", "visoin"], "reason": 1}
        async with door.client(await door.token("ops", (Role.OPERATOR, "/"))) as client:
            answer = await client.put("/webhooks/ops", json=wrong)
            assert answer.status_code == 422
            told = {one["field"]: one for one in answer.json()["errors"]}
            assert set(told) == {"reason", "url", "events[0]", "tenants[1]"}
            assert told["tenants[1]"]["detail"] == "no tenant 'visoin'"
            assert "did you mean 'vision'?" in told["tenants[1]"]["remedy"]

    run(story)
