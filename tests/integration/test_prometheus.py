"""A real Prometheus scrapes a real server: each rule and each query of the dashboard is asked."""

import json
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import yaml

from tests.support import prometheus
from tests.support.live import Server, eventually, live, until_state
from topmast import Client

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy/prometheus/topmast.rules.yml"
DASHBOARD = ROOT / "deploy/grafana/topmast.json"
FLEET = """
regions:
  east: {clusters: {east-a: {hosts: [{count: 2, gpu: H100, gpus: 2}]}}}
  west: {clusters: {west-a: {hosts: [{count: 1, gpu: A100, gpus: 2}]}}}
tenants: {vision: {quota: {H100: 2, A100: 2}}, speech: {quota: {H100: 2}}}
"""

pytestmark = [
    pytest.mark.always,
    pytest.mark.skipif(
        prometheus.found("prometheus") is None, reason="no Prometheus: run `make prometheus-tools`"
    ),
]


def configuration(target: str) -> str:
    """The one in the guide, for a server of ours, and quicker."""
    guide = (ROOT / "docs/guides/monitoring.md").read_text("utf-8")
    block = re.findall(r"```yml\n(.*?)```", guide, re.DOTALL)[0]
    document = yaml.safe_load(block)
    (job,) = document["scrape_configs"]
    job["scrape_interval"] = "1s"
    job["static_configs"] = [{"targets": [target]}]
    document["rule_files"] = [str(RULES)]
    return yaml.safe_dump(document)


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[prometheus.Prometheus, Server, Client]]:
    """A server with jobs that ended, run and wait; and who watches it."""
    folder = tmp_path_factory.mktemp("watched")
    with live(folder, FLEET) as (server, client):
        config = configuration(server.url.removeprefix("http://"))
        with prometheus.running(folder, config) as watching:
            eventually(lambda: watching.ask('up{job="topmast"} == 1'), "no scrape")
            done = client.submit(
                {"run": "true", "tenant": "vision", "resources": {"accelerators": 1}}
            ).id
            until_state(client, done, "SUCCEEDED")
            client.submit(
                {"run": "sleep 600", "tenant": "vision", "resources": {"accelerators": 2}}
            )
            for _ in range(3):
                client.submit(
                    {"run": "true", "tenant": "vision", "resources": {"accelerators": "H100:4"}}
                )
            eventually(lambda: watching.ask("topmast_finished_jobs_total"), "no finished job")
            eventually(lambda: watching.ask("sum(topmast_pending_jobs) == 3"), "not three wait")
            yield watching, server, client


def test_each_rule_can_be_asked(
    watched: tuple[prometheus.Prometheus, Server, Client],
) -> None:
    """And on a healthy server none that is critical holds."""
    watching, _, _ = watched
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) >= 18
    for rule in rules:
        holds = watching.ask(rule["expr"])
        assert not holds or rule["labels"]["severity"] != "critical", rule["alert"]


def test_each_query_of_the_dashboard_finds_something(
    watched: tuple[prometheus.Prometheus, Server, Client],
) -> None:
    """But for those about what this fleet does not have."""
    watching, _, _ = watched
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    queries = [
        (panel["title"], re.sub(r"\$(tenant|region)", ".*", target["expr"]))
        for panel in panels
        for target in panel.get("targets", ())
    ]
    assert len(queries) >= 25
    expected = {
        "Evictions by cause", "Hosts that take no work", "Links to regions", "Data copied", "Copies",
    }  # fmt: skip
    for title, query in queries:
        if title not in expected:  # a rate needs two scrapes
            eventually(partial(watching.ask, query), f"{title} finds something")


def test_probes_answer_with_a_word(
    watched: tuple[prometheus.Prometheus, Server, Client],
) -> None:
    """They are what an orchestrator asks each second."""
    _, server, _ = watched
    for path in ("/livez", "/readyz", "/startupz"):
        answer = httpx.get(server.url + path, timeout=10)
        assert (answer.status_code, answer.text) == (200, "ok\n")


def test_requests_are_counted_by_route_and_not_by_path(
    watched: tuple[prometheus.Prometheus, Server, Client],
) -> None:
    """Else each job, and each stranger, would add a name."""
    _, server, client = watched
    client.job("j1")
    httpx.get(f"{server.url}/no/such/page", timeout=10)
    httpx.request("PROPFIND", f"{server.url}/api/v1/jobs/j1", timeout=10)
    text = httpx.get(f"{server.url}/metrics", timeout=10).text
    assert 'method="GET",route="/jobs/{job}",status="200"' in text
    assert 'method="GET",route="none",status="404"' in text
    assert 'method="other"' in text
    assert "such/page" not in text
    assert "PROPFIND" not in text


@pytest.mark.parametrize(
    "arguments",
    [["check", "rules", str(RULES)],
     ["test", "rules", str(RULES.with_name("topmast.rules.test.yml"))]],
    ids=["check", "test"],
)  # fmt: skip
def test_the_rules_pass_promtool(arguments: list[str]) -> None:
    """Each fires when it should, and is quiet before."""
    program = prometheus.found("promtool")
    assert program is not None
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
