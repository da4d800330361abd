"""Experiments: the same files for every contender, figures with intervals, pages that say what is missing."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.build import cluster, dataset, fleet
from tests.support.simulated import mixed_trace, run
from topmast.cli.reproduce import say_experiments
from topmast.experiments.config import (
    Experiment,
    Measure,
    Scale,
    all_figures,
    read_experiment,
    read_experiments,
)
from topmast.experiments.kept import Kept
from topmast.experiments.names import experiment_names
from topmast.experiments.page import write_page
from topmast.experiments.placement import PlacementOptions, overhead_of, place
from topmast.experiments.points import run_point
from topmast.experiments.reproduce import (
    ReproduceOptions,
    points_of,
    reproduce,
    run_experiment,
)
from topmast.experiments.revision import revision
from topmast.experiments.sums import interval
from topmast.model.errors import InvalidInput
from topmast.policies.registry import load_profile
from topmast.sim.settings import read_settings
from topmast.traces.generate import generate
from topmast.traces.trace import trace_of

TINY = {"tiny": Scale(jobs=2_000, days=1.0, seeds=2, limit=40, loads=(1.0,), signals_s=(300.0,))}


PLANNED_S = 5.0
"""CPU time of a plan of data here: a minute of it is five on a busy machine."""


def _tiny(name: str) -> Experiment:
    replace, experiment = msgspec.structs.replace, read_experiment(name)
    cases = tuple(
        replace(case, plan=replace(case.plan, time_limit_s=PLANNED_S)) if case.plan else case
        for case in experiment.cases
    )
    return replace(experiment, scales=TINY, cases=cases)


def test_a_tiny_run_of_an_experiment_writes_all_its_files(tmp_path: Path) -> None:
    """Every contender once for a seed, its figures in tables, and a page that shows the command."""
    experiment = _tiny("mast-federated")
    few = tuple(c for c in experiment.cases if c.name in ("mast", "hydra", "mast with failures"))
    experiment = msgspec.structs.replace(experiment, cases=few)
    options = ReproduceOptions(scale="tiny", workers=1)
    told: list[str] = []
    document = run_experiment(experiment, options, told.append)
    write_page(tmp_path, experiment, document)
    points = points_of(experiment, TINY["tiny"])
    assert len(told) == len(document["runs"]) == len(points)
    assert {m["seeds"] for m in document["means"]} == {2}
    page = (tmp_path / "report.html").read_text()
    assert "topmast reproduce mast-federated --scale tiny --seeds 2" in page
    assert all(case.name in page for case in experiment.cases)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"report.html", "runs.csv", "means.csv", "plots.png", "plots.svg"}
    again = run_point(experiment, TINY["tiny"], points[1])
    assert again.items() <= document["runs"][1].items(), "the same seed gives the same figures"


def test_a_page_says_where_its_figures_come_from_and_why_they_are_judged_so(tmp_path: Path) -> None:
    """Version, seeds, load and fleet; times as people say them, in the figures and in the verdicts; each verdict's reason."""
    experiment = _tiny("mast-federated")
    document: dict[str, Any] = {
        "experiment": experiment.name, "scale": "tiny", "seeds": [3, 5], "version": "9.8.7",
        "revision": "2337bd9b of 2026-11-22", "files": {}, "days": 2.0, "jobs": 1_234,
        "runs": [{"case": "mast", "load": 1.3, "gpus": g, "hosts": g // 8} for g in (4_096, 8_192)],
        "means": [{
            "case": "mast", "label": "mast", "load": 1.3, "signal_s": None, "seeds": 2,
            "figures": {experiment.figures[0]: {"mean": 0.5, "ci95": None}, "wait_s.mean": {"mean": 2_743_200.0, "ci95": 60.0},
                        "lost_gpu_s": {"mean": 145_000.0, "ci95": None}},
        }],
        "checks": [{
            "case": "mast", "figure": "wait_s.mean", "published": "a month", "public": 2_700_000.0,
            "ours": 2_743_200.0, "wanted": "<= 3e6", "at_least": None, "at_most": 3e6, "reached": None,
            "why": "other machines",
        }],
    }  # fmt: skip
    write_page(tmp_path, experiment, document)
    page = (tmp_path / "report.html").read_text()
    setting = "1,234 jobs over 2 days, loads 1.3, seeds 3, 5, version 9.8.7 (revision 2337bd9b of 2026-11-22)."
    assert setting in page
    assert "<td>4,096 to 8,192 GPUs on 512 to 1,024 hosts" in page
    assert "<td>145,000 (40.28 GPU-hours)" in page
    verdict = next(
        line for line in page.splitlines() if line.startswith("<tr><td>mast<td>wait_s.mean")
    )
    assert "<td>2,743,200 (31d18h)<td>" in verdict
    assert verdict.endswith("<td>other machines")
    assert "<li>not comparable, 1 of 1: other machines" in page


def test_results_say_of_which_revision_the_code_is(tmp_path: Path) -> None:
    """The commit and its day, and whether code was changed since; nothing where there is no checkout."""

    def git(*words: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    assert revision(tmp_path) is None
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("1\n")
    (tmp_path / "notes.md").write_text("1\n")
    git("init", "-q")
    assert revision(tmp_path) is None, "no commit yet"
    git("add", ".")
    git("commit", "-q", "-m", "first", "--date", "2020-01-02T03:04:05")
    known = f"{git('rev-parse', '--short=8', 'HEAD')} of {git('log', '-1', '--format=%cs')}"
    assert revision(tmp_path) == known
    (tmp_path / "notes.md").write_text("2\n")
    assert revision(tmp_path) == known, "no code"
    (tmp_path / "src" / "a.py").write_text("2\n")
    assert revision(tmp_path) == f"{known}, changed since"
    experiment = read_experiment("pai-predictions")
    few = msgspec.structs.replace(experiment, cases=experiment.cases[:1])
    few = msgspec.structs.replace(few, scales={"tiny": Scale(jobs=300, seeds=1)})
    document = run_experiment(few, ReproduceOptions(scale="tiny", workers=1))
    assert document["revision"] == revision()


def test_an_experiment_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    """Runs that are over are not repeated; a line cut off, and another setting, count for nothing."""
    experiment = _tiny("mast-federated")
    experiment = msgspec.structs.replace(experiment, cases=experiment.cases[:1])
    options = ReproduceOptions(scale="tiny", workers=1)
    whole = run_experiment(experiment, options)
    kept = Kept(tmp_path, {"setting": 1})
    first = points_of(experiment, TINY["tiny"])[0].name
    marked = {
        **{k: v for k, v in whole["runs"][0].items() if k in experiment.figures},
        "preemptions": -7.0,
    }
    kept.keep(first, marked)
    with (tmp_path / "runs.part.jsonl").open("ab") as file:
        file.write(b'{"run":"mast, load 1')
    again = run_experiment(experiment, options, None, Kept(tmp_path, {"setting": 1}))
    assert again["runs"][0]["preemptions"] == -7.0, "taken from the file, not run again"
    assert again["runs"][1:] == whole["runs"][1:]
    settled = Kept(tmp_path, {"setting": 1})
    assert all(p.name in settled for p in points_of(experiment, TINY["tiny"]))
    assert first not in Kept(tmp_path, {"setting": 2})


def test_what_is_not_reached_is_said(tmp_path: Path) -> None:
    """A fleet that fills for a minute is not 98% allocated, and the page does not hide it."""
    experiment = _tiny("mast-balance")
    document = run_experiment(experiment, ReproduceOptions(scale="tiny", seeds=1, workers=1))
    reached = {c["figure"]: c["reached"] for c in document["checks"]}
    assert not reached["allocation_rate_late"]
    assert reached["replication_overhead.mean"]
    write_page(tmp_path, experiment, document)
    assert "NOT reached" in (tmp_path / "report.html").read_text()


def test_a_small_figure_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    """A share above its bound of a thousandth is not shown as that bound."""
    check = {
        "case": "mast", "figure": "share", "published": "< 0.1%", "public": None, "ours": 0.00125,
        "wanted": "<= 0.001", "at_least": None, "at_most": 0.001, "reached": False, "why": "",
    }  # fmt: skip
    means: list[dict[str, object]] = []
    found: dict[str, object] = {
        "files": {},
        "days": None,
        "jobs": 1,
        "seeds": [1],
        "version": "9.8.7",
        "revision": None,
        "checks": [check],
        "means": means,
    }
    say_experiments({"experiments": {"tiny": found}})
    row = next(line for line in capsys.readouterr().out.splitlines() if "share" in line)
    assert row.split()[-3:] == ["0.00125", "NOT", "reached"]


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_names_what_exists(name: str) -> None:
    """Profiles, options of profiles and of the world."""
    experiment = read_experiment(name)
    assert experiment.name == name
    if experiment.parts:
        assert set(experiment.parts) <= set(experiment_names())
        return
    assert {"small", "full"} <= set(experiment.scales)
    assert {c.case for c in experiment.checks} <= {c.name for c in experiment.cases}
    assert set(experiment.plots) <= set(all_figures(experiment))
    assert {c.figure for c in experiment.checks} <= set(all_figures(experiment))
    assert {c.against for c in experiment.cases} - {""} <= {c.name for c in experiment.cases}
    for case in experiment.cases:
        own = {k: v for k, v in case.set.items() if not k.startswith("sim.")}
        if case.measure is Measure.SIMULATE:
            assert load_profile(case.profile, own).name == case.profile
        read_settings({k: v for k, v in case.set.items() if k not in own})


@pytest.mark.parametrize(
    ("names", "options"),
    [
        ([], ReproduceOptions()),
        (["mast-balanc"], ReproduceOptions()),
        (["mast-balance"], ReproduceOptions(scale="huge")),
        (["mast-balance"], ReproduceOptions(seeds=0)),
    ],
)
def test_what_cannot_be_run_is_refused(names: list[str], options: ReproduceOptions) -> None:
    """Before anything runs."""
    with pytest.raises(InvalidInput):
        reproduce(names, options)


def test_an_experiment_of_parts_runs_them_all(tmp_path: Path) -> None:
    """Savings are over the case that they are against; cases without their public file are left out and named."""
    options = ReproduceOptions(scale="tiny", workers=1, out=tmp_path)
    documents = reproduce(["pai-sharing", "pai-predictions"], options)
    found = documents["experiments"]["pai-sharing"]
    assert found["left_out"] == ["real pods, whole GPUs", "real pods, shares"]
    assert any("real pods, shares" in warning for warning in documents["warnings"])
    whole, shares = (m["figures"] for m in found["means"])
    assert "saving.gpus_in_use" not in whole
    saved = 1 - shares["gpus_in_use"]["mean"] / whole["gpus_in_use"]["mean"]
    assert shares["saving.gpus_in_use"]["mean"] == pytest.approx(saved)
    least = shares["saving.allocation_rate"]["mean"]
    assert 0.2 < saved <= least + 1e-9, "no packing beats the shares"
    assert (tmp_path / "pai-predictions" / "report.html").exists()
    parts = [e.name for e in read_experiments(["pai", "pai-sjf"])]
    assert parts == ["pai-predictions", "pai-sjf", "pai-sharing", "pai-reserve"]


def test_an_interval_is_that_of_student() -> None:
    """Of 1, 2, 3: 2 with 4.303 x 1 / sqrt(3)."""
    mean, half = interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert half == pytest.approx(4.303 / 3**0.5)
    assert interval([5.0]) == (5.0, None)


# ------------------------------------------------------------------------------------------ placement


def _placed(overhead: float, together: str = "by-job") -> tuple[Any, Any, Any]:
    from topmast.model.files.fleetfile import parse_fleet

    trace, document = generate("mast-like", 2_000, 3)
    before = parse_fleet(document)
    options = PlacementOptions(together=together, overhead=overhead, forecast_error=0.0)
    return trace, before, place(trace, before, options, 1)


@pytest.mark.parametrize("overhead", [0.0, 0.3, 0.6])
def test_a_placement_keeps_to_its_budget_and_to_storage(overhead: float) -> None:
    """And no dataset is left without a replica."""
    _, _, after = _placed(overhead)
    assert overhead_of(after.datasets) <= overhead + 1e-9
    assert after.datasets
    assert all(d.replicas for d in after.datasets)
    for region in after.regions:
        stored = sum(d.size_bytes for d in after.datasets if region.name in d.replicas)
        assert region.storage_bytes is None or stored <= region.storage_bytes


def test_datasets_read_together_stay_together() -> None:
    """Every job finds all of its data in one region."""
    trace, _, after = _placed(0.3)
    where = {d.name: set(d.replicas) for d in after.datasets}
    for text in trace.datasets.names:
        assert set.intersection(*(where[name] for name in text.split("|")))


def test_a_project_is_placed_in_one_region() -> None:
    """`by-tenant`, without second copies: what `yugong` stands for."""
    trace, _, after = _placed(0.0, "by-tenant")
    where = {d.name: d.replicas for d in after.datasets}
    of: dict[int, set[str]] = {}
    for tenant, code in zip(
        trace.tenant.codes.tolist(), trace.datasets.codes.tolist(), strict=True
    ):
        for name in trace.datasets.names[code].split("|"):
            of.setdefault(tenant, set()).update(where[name])
    assert {len(regions) for regions in of.values()} == {1}


# --------------------------------------------------------------------------------------------- manual


def test_manual_is_mast_with_only_the_home_region() -> None:
    """Data that may lie in one region only makes `mast` do just what `manual` does for jobs at home there."""
    plain = mixed_trace(120, seed=11)
    homes = ["east" if i % 3 else "west" for i in range(len(plain))]
    clusters = (cluster("east-1", hosts=16, gpus=8), cluster("west-1", hosts=16, gpus=8))
    pinned = fleet(
        *clusters,
        datasets=tuple(dataset(r, r, allowed=(r,)) for r in ("east", "west")),
    )
    columns = {
        name: getattr(plain, name) for name in ("submit_s", "duration_s", "gpus", "tasks", "band")
    }
    by_hand = run(trace_of("a", **columns, home_region=homes), fleet(*clusters), "manual")
    by_data = run(trace_of("a", **columns, datasets=homes), pinned, "mast")
    assert by_hand.allocations == by_data.allocations
    assert by_hand.jobs == by_data.jobs
    assert by_hand.timeline == by_data.timeline
