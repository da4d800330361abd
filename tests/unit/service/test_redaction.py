"""What hides other tenants' names in a view, by where they stand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from topmast.fast.queue import GlobalQueue
from topmast.model.views import EventView
from topmast.service.redaction import Redaction


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (["vision", "speech", "nlp"], ["vision", "(another tenant)"]),
        ([], []),
        (None, None),
        ({"vision": 3}, {"vision": 3}),
        ([{"name": "vision"}], [{"name": "vision"}]),
    ],
)
def test_names_in_a_list_of_tenants_are_hidden_and_nothing_else_changes(
    given: Any, shown: Any
) -> None:
    redaction = Redaction(cast(GlobalQueue, None), frozenset({"vision"}))
    assert redaction.of({"tenants": given}) == {"tenants": shown}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("tenant speech is paused by sa:tad: a secret", "tenant (another tenant) is paused"),
        ("tenant speech is resumed by sa:tad: a\nsecret", "tenant (another tenant) is resumed"),
        ("the fleet is changed by ann (tenant speech added): merger", "the fleet is changed"),
        ("tenant vision is paused by ann: budget", "tenant vision is paused by ann: budget"),
        (
            "4 H100 for tenant speech for a while, by ann: a secret",
            "4 H100 for tenant (another tenant) for a while",
        ),
        (
            "tenant speech has the quota of the fleet again, by ann: a secret",
            "tenant (another tenant) has the quota of the fleet again",
        ),
        (
            "4 H100 for tenant vision for a while, by ann: demo",
            "4 H100 for tenant vision for a while, by ann: demo",
        ),
        (
            "tenant vision would exceed the quota of speech",
            "tenant vision would exceed the quota of (another tenant)",
        ),
        ("the quota of tenant speech is 2", "the quota of tenant (another tenant) is 2"),
        ("2 GPUs are held by tenant speech", "2 GPUs are held by tenant (another tenant)"),
    ],
)
def test_who_acted_on_another_tenant_and_why_is_hidden_with_its_name(text: str, shown: str) -> None:
    assert hiding("speech").text(text) == shown


@pytest.mark.parametrize(
    ("tenants", "reason"), [(["speech"], ""), (["vision", "speech"], "demo"), ([], "demo")]
)
def test_what_a_reservation_is_for_is_told_to_its_tenants(tenants: list[str], reason: str) -> None:
    given = {"tenants": tenants, "reason": "demo", "by": "ann"}
    shown = hiding("speech").of(given)
    assert (shown["reason"], shown["by"]) == (reason, "ann" if reason else "")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("host a-1 is reserved by ann (w1): a\nsecret", "host a-1 is reserved"),
        ("reservation w1 is over, ended by ann: a secret", "reservation w1 is over"),
    ],
)
def test_who_reserved_and_why_is_told_to_the_tenants_that_it_is_for(text: str, shown: str) -> None:
    for tenants, told in ((["speech"], shown), (["vision", "speech"], text), ([], text)):
        event = EventView(1, 0.0, "hosts-reserved", "", text, {"tenants": tenants})
        assert hiding("speech").of(event).text == told


def hiding(*known: str) -> Redaction:
    """What vision is shown, where there are tenants of these names besides."""
    tenants = dict.fromkeys(("vision", *known))
    queue = SimpleNamespace(tenancy=SimpleNamespace(ledger=SimpleNamespace(tenants=tenants)))
    return Redaction(cast(GlobalQueue, queue), frozenset({"vision"}))
