"""The figures for Prometheus, as its own parser reads them."""

import re
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.support.build import cluster, fleet, job, tenant
from tests.support.world import World
from topmast.runtime.meter import Family as Histograms
from topmast.service.gauges import gauges
from topmast.service.metrics import FAMILIES, HTTP_S, Kind, Sources, copied, text

ROOT = Path(__file__).parents[3]
RULES = ROOT / "deploy/prometheus/topmast.rules.yml"
HOSTILE = 'a"b\\c\nd'
NO_LABELS = ("job", "user", "host", "hosts")


def sources(world: World) -> Sources:
    """All that a control plane has."""
    http = Histograms(HTTP_S)
    http.observe(0.02, "/api/v1/jobs", "GET", "200")
    state = gauges(world.queue, world.machines.placers)
    return Sources(world.meter, http, 3, {("west",): 0.0}, 7, state, 2)


def read(world: World) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """What Prometheus would store, by name and labels."""
    written = text(copied(sources(world))).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(written)
        for sample in family.samples
    }


def test_what_waits_and_what_runs() -> None:
    """By tenant, band and the reason that explain gives."""
    world = World(
        fleet(cluster("east-1", hosts=1), tenants=(tenant("a", H100=8), tenant(HOSTILE, H100=0)))
    )
    world.submit(job("runs", tenant="a", gpus=8))
    for _ in range(3):
        world.submit(job("waits", tenant="a", gpus=4))
    found = read(world)
    of_a = (("band", "normal"), ("reason", "WaitingForQuota"), ("tenant", "a"))
    assert found["topmast_pending_jobs", of_a] == 3
    assert found["topmast_pending_gpus", (("model", "H100"), ("tenant", "a"))] == 12
    assert found["topmast_running_jobs", (("band", "normal"), ("tenant", "a"))] == 1
    assert found["topmast_tenant_used_gpus", (("model", "H100"), ("tenant", "a"))] == 8
    assert ("topmast_tenant_share", (("kind", "fair"), ("tenant", HOSTILE))) in found
    where = (("cluster", "east-1"), ("model", "H100"), ("region", "east"))
    assert found["topmast_gpus", tuple(sorted((*where, ("state", "held"))))] == 8
    assert found["topmast_leader_status", ()] == 1
    assert found["topmast_leader_epoch", ()] == 7
    assert found["topmast_link_up", (("region", "west"),)] == 0
    ok = (("method", "GET"), ("route", "/api/v1/jobs"), ("status", "200"))
    assert found["topmast_http_request_seconds_count", ok] == 1


def test_names_and_labels_keep_the_rules() -> None:
    """Counters end in _total, times in _seconds; no label grows with the jobs or the hosts."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES) > 25
    for family in FAMILIES:
        assert re.fullmatch(r"topmast_[a-z_]+", family.name)
        assert family.name.endswith("_total") == (family.kind is Kind.COUNTER), family.name
        assert family.kind is not Kind.HISTOGRAM or family.name.endswith("_seconds"), family.name
        assert not set(family.labels) & set(NO_LABELS), family.name
        assert family.help.endswith("."), family.name


def test_every_family_stands_in_the_reference() -> None:
    """With its labels and its meaning."""
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    for family in FAMILIES:
        labels = ", ".join(family.labels) or "-"
        line = f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"
        assert line in page.splitlines(), line


def test_every_alert_has_a_page_and_asks_for_what_there_is() -> None:
    """A rule about a name that is not there would never fire."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) >= 18
    names = {family.name for family in FAMILIES}
    tests = (RULES.parent / "topmast.rules.test.yml").read_text("utf-8")
    for rule in rules:
        asked = re.findall(r"topmast_[a-z_]+", rule["expr"])
        plain = {re.sub(r"_(bucket|count|sum)$", "", name) for name in asked}
        assert plain <= names, rule["alert"]
        page = rule["annotations"]["runbook"]
        assert page == f"docs/alerts/{rule['alert']}.md"
        assert (ROOT / page).read_text("utf-8").startswith(f"# {rule['alert']}\n")
        assert rule["alert"] in tests, "no test of this rule"
