"""What hides other tenants' names in a view, by where they stand."""

from __future__ import annotations

import re
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
            "tenant vision would exceed the quota of nlp and the quota of speech",
            "tenant vision would exceed the quota of (another tenant) and the quota of "
            "(another tenant)",
        ),
        ("the quota of tenant speech is 2", "the quota of tenant (another tenant) is 2"),
    ],
)
def test_who_acted_on_another_tenant_and_why_is_hidden_with_its_name(text: str, shown: str) -> None:
    assert hiding().text(text) == shown


@pytest.mark.parametrize(
    ("tenants", "reason"), [(["speech"], ""), (["vision", "speech"], "demo"), ([], "demo")]
)
def test_what_a_reservation_is_for_is_told_to_its_tenants(tenants: list[str], reason: str) -> None:
    given = {"tenants": tenants, "reason": "demo", "by": "ann"}
    shown = hiding().of(given)
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
        assert hiding().of(event).text == told


def test_the_id_of_a_shown_job_that_left_the_memory_is_not_looked_up() -> None:
    """A page of such jobs, or a large act on them, would ask the database once for each."""
    asked: list[str] = []
    queue = cast(GlobalQueue, SimpleNamespace(jobs=SimpleNamespace(records={})))
    redaction = Redaction(queue, frozenset({"vision"}), asked.append)
    own = {"id": "j7", "tenant": "vision", "cause": ""}
    assert redaction.of(own) == own
    assert asked == []
    other = redaction.of({"id": "j8", "tenant": "speech", "cause": "preempted by j9"})
    assert other["id"] == "a job of another tenant"
    assert asked == ["j8", "j9"]


PLANTED = "tenant speech, the quota of speech, tenant nosuch is paused; j1 j5 j77"
SAID = (
    "held by {}",
    "the job waits until it is released: held by {}",
    "cancelling: cancelled by {}",
    "attempt 1 ended (preempted): preempted by {}",
    "requeued by {}",
    "changed by {}",
    "released by {}",
    "tenant vision is paused by {}",
    "2 H100 for tenant vision for a while, by {}",
    "tenant vision has the quota of the fleet again, by {}",
    "host a-1 is reserved by {}",
    "reservation w1 is over, ended by {}",
    "a-1 is drained by {}",
    "cluster a is opened by {}",
    "cluster a gets no new work: {}",
    "the next leader is to decide by fifo, {}",
)


@pytest.mark.parametrize("said", SAID)
def test_what_people_said_is_shown_as_they_wrote_it(said: str) -> None:
    """Or else they would read out of their own words which jobs and tenants there are."""
    who = "sa:j5"
    if said.startswith("cluster a gets"):
        who += " closed the cluster"
    elif said.startswith("the next leader"):
        who = f"as {who} wants"
    text = said.format(f"{who}: {PLANTED}")
    assert hiding().text(text) == text


@pytest.mark.parametrize(
    "sentence",
    [
        "preempted by {job}",
        "cancelling: migrated for {job}",
        "room in east is kept for {job}",
        "no place is free for it, so it stops {job} and {job} (score 3)",
        "submitted by sa:j5 for tenant vision, band normal; to start when {job} has ended",
        "no job of tenant {tenant} may hold 2 GPUs",
        "2 more H100 of quota for tenant {tenant} and 1 more A100 of quota for tenant {tenant}",
        "tenant {tenant} holds 2, tenant {tenant} has 3 of its own (1 in use)",
        "the budget of tenant {tenant} for 2030-01: 90% are spent",
    ],
)
def test_in_a_sentence_what_is_hidden_reads_as_what_is_absent(sentence: str) -> None:
    shown = [
        hiding().text(sentence.format(job=job, tenant=tenant))
        for job, tenant in (("j5", "speech"), ("j77", "nosuch"))
    ]
    hidden = {"job": "a job of another tenant", "tenant": "(another tenant)"}
    assert shown == [sentence.format(**hidden)] * 2


def test_what_people_wrote_on_their_jobs_comes_back_and_ids_of_others_are_described() -> None:
    written = {
        "name": "j5", "user": "j5", "group": "tenant speech is paused", "labels": {"j5": "j77"},
        "datasets": ["j5", "j77"], "metrics": {"j5": 1.0}, "reason": PLANTED,
    }  # fmt: skip
    assert hiding().of(written) == written
    other = "a job of another tenant (16 GPUs, critical)"
    gone = "a job of another tenant"
    given = {"jobs": ["j1", "j5", "j77"], "stays": {"j5": "it may not"}, "depends_on": {"j1": "ok"}}
    assert hiding().of(given) == {
        "jobs": ["j1", other, gone], "stays": {other: "it may not"}, "depends_on": {"j1": "ok"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        (("tenant speech added", "host a-1 removed"), "the fleet is changed"),
        (("tenant nosuch removed",), "the fleet is changed"),
        (("tenant vision changed",), "the fleet is changed by ann (tenant vision changed): merger"),
    ],
)
def test_a_change_of_hidden_tenants_is_told_without_names(
    changed: tuple[str, ...], shown: str
) -> None:
    text = f"the fleet is changed by ann ({', '.join(changed)}): merger"
    event = EventView(1, 0.0, "fleet-changed", "", text, {"changed": changed, "by": "ann"})
    found = hiding().of(event)
    assert found.text == shown
    assert ("ann" in str(found)) == ("ann" in shown)
    assert not {"speech", "nosuch"} & set(re.findall(r"\w+", str(found)))


def hiding() -> Redaction:
    """What vision is shown, with a job of its own, j1, and one of speech, j5."""
    specs = {
        "j1": SimpleNamespace(tenant="vision"),
        "j5": SimpleNamespace(
            tenant="speech", gpus_milli=lambda: 16_000, band=SimpleNamespace(name="CRITICAL")
        ),
    }
    records = {job: SimpleNamespace(spec=spec) for job, spec in specs.items()}
    queue = SimpleNamespace(jobs=SimpleNamespace(records=records))
    return Redaction(cast(GlobalQueue, queue), frozenset({"vision"}))
