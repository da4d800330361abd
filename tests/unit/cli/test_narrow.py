"""Tables on a terminal of 80 columns: no id and no word is broken, whatever names a site has."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.cli.conftest import Call, Screen
from tests.unit.cli.test_fleet import RESERVATION, host
from tests.unit.client.fake import FakeServer, ended, job, page
from topmast.cli.output import note, say, shortened
from topmast.model import views as v
from topmast.model.account_views import ActPage, ActView
from topmast.model.act_views import JobEffect, JobsActed
from topmast.model.webhooks import Webhook, WebhookView

REGION, CLUSTER, HOST = "eu-central-1", "euc1-a100-shared", "euc1-a100-shared-12"
GPU, TENANT, DATASET = "H100-SXM5-80GB", "speech-recognition", "imagenet-21k-processed"
ACTOR, HOOK = "sa:vision-nightly-ci", "https://hooks.example.com/services/topmast/production"
JOB = "conformer_large_librispeech_960h"
WHY = f"{ACTOR} has no role with the permission jobs.submit for tenant {TENANT}"
ACTS = (
    ActView(2, 2.0, ACTOR, "token ...abcd", "10.0.0.1", "r1", "close-cluster", CLUSTER, "",
            {"closed": ""}, {"closed": "CANCELLING what runs for new switches"}, "done"),
    ActView(1, 1.0, ACTOR, "token ...abcd", "10.0.0.1", "r2", "POST /jobs", "/api/v1/jobs", "",
            None, None, f"refused: {WHY}"),
)  # fmt: skip
CAN = ("exact_slots", "exec", "pairs", "shares", "suspend")
HOSTS = [host(HOST, region=REGION, cluster=CLUSTER, gpu_model=GPU, jobs=("j11", "j12"))]
TABLES: list[tuple[tuple[str, ...], str, Any, tuple[str, ...]]] = [
    (("audit",), "/audit", ActPage(ACTS, None), ("1970-01-01 00:00:02", CLUSTER, "CANCELLING")),
    (("hosts",), "/hosts", {"hosts": HOSTS}, (HOST, CLUSTER, GPU, "j11, j12")),
    (
        ("clusters",), "/clusters",
        {"clusters": [v.ClusterView(
            CLUSTER, REGION, "kubernetes", 24, 24, 192, 48, 117, "open", capabilities=CAN)]},
        (CLUSTER, REGION, "open"),
    ),
    (
        ("tenants",), "/tenants",
        {"tenants": [v.TenantView(TENANT, GPU, None, 16, 8, 0, 24, 1, parent="research")]},
        (TENANT, GPU, "of research"),
    ),
    (
        ("notify", "list"), "/webhooks",
        {"webhooks": [WebhookView(
            Webhook("platform-oncall", HOOK, tenants=(TENANT,)), error="HTTP 500 for a while")]},
        ("platform-oncall", HOOK, TENANT, "HTTP 500 for a while, tried 0 times"),
    ),
    (
        ("reserve",), "/reservations",
        {"reservations": [msgspec.structs.replace(RESERVATION, hosts=(HOST, "h-2"), cluster="")]},
        (HOST,),
    ),
    (
        ("datasets",), "/datasets",
        {"datasets": [v.DatasetView(DATASET, 15 * 10**10, f"data/{DATASET}", (REGION,), 1, (
            v.ReplicaView(REGION, "complete"), v.ReplicaView("us-east-1", "complete")), ())]},
        (DATASET, REGION),
    ),
    (
        ("queue",), "/jobs",
        page(job(id="j123456", name=JOB, submit_s=time.time())),
        ("j123456", "InsufficientCapacity"),
    ),
]  # fmt: skip


def on_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns without colours."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.mark.parametrize(
    ("verb", "path", "answer", "whole"), TABLES, ids=lambda value: str(value)[:20]
)
def test_a_table_at_80_columns_breaks_no_id(
    verb: tuple[str, ...], path: str, answer: Any, whole: tuple[str, ...],
    server: FakeServer, call: Call, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Ids, names of hosts and models, and addresses are in one piece, and no line is longer."""
    on_80_columns(monkeypatch)
    server.on("GET", path, answer)
    out = call(*verb).out
    assert max(map(len, out.splitlines())) <= 80, out
    assert [text for text in whole if text not in out] == [], out


def test_notes_of_an_import_are_broken_between_words(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a line of its own elsewhere, for programs."""
    script = tmp_path / "a.sbatch"
    script.write_text("#!/bin/sh\n#SBATCH -p gpu --gpus=2 --mail-type=ALL\nsrun echo a\n")
    whole = call("import", "sbatch", script).err.splitlines()
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    broken = call("import", "sbatch", script).err.splitlines()
    assert len(broken) > len(whole)
    assert [line for line in broken if len(line) > 80 and " " in line.strip()] == []
    assert " ".join(line.strip() for line in broken) == " ".join(whole)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_sentence_is_broken_wherever_it_is_said(
    stream: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results, hints and warnings. A long word, such as an address, stays whole."""
    address = "https://" + "a" * 90
    text = f"j18 FAILED (task 0 exited with status 7; it was not restarted: it has none); {address}"
    speak = say if stream == "stdout" else note
    speak(text)
    monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    speak(text)
    out = getattr(capsys.readouterr(), stream[3:]).splitlines()
    assert out[0] == text
    assert " ".join(line.strip() for line in out[1:]) == text
    assert [line.strip() for line in out[1:] if len(line) > 80] == [address]


def test_the_last_lines_of_wait_and_of_acts_are_broken_too(
    server: FakeServer, terminal: Callable[..., Screen]
) -> None:
    """Of jobs that failed, and of what a dry run comes to."""
    cause = "task 0 exited with status 7; not restarted: max_restarts is 0"
    server.on("GET", "/jobs/j18", ended("j18", "FAILED", cause=cause, attempts=1))
    acted = JobsActed(
        "requeue", True, (job("j1"),), (JobEffect("j1", "done"),), {"done": 1}, 48, 25.8
    )
    server.on("POST", "/jobs/requeue", acted)
    for arguments, begin in (
        (("wait", "j18"), "topmast: j18 FAILED"),
        (("requeue", "j1", "--dry-run"), "requeue: 1 job would change"),
    ):
        lines = terminal(*arguments, columns=80, NO_COLOR="1").text.splitlines()
        assert max(map(len, lines)) <= 80, lines
        assert any(line.startswith(begin) for line in lines), lines


def test_why_an_act_was_refused_is_beneath_it(
    server: FakeServer, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The column says in a word how it ended; the reason has all the room that there is."""
    on_80_columns(monkeypatch)
    server.on("GET", "/audit", ActPage(ACTS, None))
    out = call("audit").out
    assert f"  DETAIL: {WHY}" in " ".join(out.split("\n")).replace("          ", "")
    assert [line for line in out.splitlines() if line.endswith("  refused")]


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("h1,h2,h3,h4,h5,h6", "h1,h2,h3,h4 ..."),
        (f"{HOST},{HOST}", f"{HOST} ..."),
        (HOST, HOST),
        ("new fans and switches", "new fans and ..."),
    ],
)
def test_a_list_is_cut_between_its_names(text: str, want: str) -> None:
    """Of a name that is too long alone, nothing is cut."""
    assert shortened(text, 16) == want
