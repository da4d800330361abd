"""Several profiles on one trace and fleet, as many at a time as there are cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, as_completed
from typing import Any

from msgspec import structs

from topmast.experiments.outputs import SUMMARY, folder_for, write_json
from topmast.experiments.report import write_report
from topmast.experiments.run import Ran, RunOptions, checked, load, run
from topmast.experiments.workers import worker_pool
from topmast.model.errors import InvalidInput

Tell = Callable[[int, int], None]
"""Shown when a run is over: how many are, and how many there are in all."""


def compare(
    options: RunOptions, profiles: Sequence[str], tell: Tell | None = None
) -> dict[str, Any]:
    """`topmast compare`: a summary for every profile; with ``options.out`` a folder for each, and
    a page.
    """
    names = list(dict.fromkeys(profiles))
    if not names:
        raise InvalidInput("names no contender", field="--profile", remedy="give two or more")
    runs = [_one(options, name) for name in names]
    checked(runs)
    load(runs[0])  # what is wrong with the files is said before anything runs
    if options.out is not None:
        folder_for(options.out)
    found = _run_all(runs, tell)
    documents = {name: ran.document for name, ran in zip(names, found, strict=True)}
    warnings = [f"{name}: {text}" for name, d in documents.items() for text in d["warnings"]]
    document = {"profiles": documents, "warnings": warnings}
    if options.out is not None:
        write_json(options.out / SUMMARY, document)
        curves = {name: ran.curves for name, ran in zip(names, found, strict=True)}
        title = f"{', '.join(names)} on {options.trace.name}"
        write_report(options.out, "compare", title, documents, curves)
    return document


def _one(options: RunOptions, name: str) -> RunOptions:
    out = None if options.out is None else options.out / name
    return structs.replace(options, profile=name, out=out)


def _run_all(runs: Sequence[RunOptions], tell: Tell | None) -> list[Ran]:
    """Every run in a process of its own; one alone, or a single core, needs none."""
    workers = min(len(runs), os.cpu_count() or 1)
    if workers == 1:
        return [run(each) for each in runs]
    with worker_pool(workers) as pool:
        futures: list[Future[Ran]] = [pool.submit(run, each) for each in runs]
        try:
            for over, future in enumerate(as_completed(futures), start=1):
                future.result()
                if tell is not None:
                    tell(over, len(runs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
