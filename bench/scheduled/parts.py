"""The parts of the mode, each measured and stored by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench.machine import commit, describe
from bench.rounds import Say
from bench.scheduled.many_jobs import measure_many_jobs
from bench.scheduled.report import render_airflow
from bench.scheduled.small_epochs import measure_small_epochs
from bench.scheduled.whole_queries import measure_whole_queries

PARTS: dict[str, Callable[[int, Path, Say], dict[str, Any]]] = {
    "small": measure_small_epochs,
    "queries": measure_whole_queries,
    "many": measure_many_jobs,
}
ROUNDS = {"small": 6, "queries": 3, "many": 3}
"""Turns, or minutes: about 4, 8 and 14 minutes on two calm cores."""


def measure_airflow(only: Sequence[str], rounds: int | None, folder: Path, results: Path, say: Say) -> None:
    """Measure parts; write their figures and AIRFLOW.md, with what is kept of the others. Each is stored at once.

    Args:
        only: names of parts; none: all. rounds: instead of each part's own number.
    """
    file = results / "results-airflow.json"
    kept = json.loads(file.read_text(encoding="utf-8"))["parts"] if file.exists() and only else {}
    for name in only or PARTS:
        measure = partial(PARTS[name], rounds or ROUNDS[name], folder / name)
        kept[name] = measure(say)
        document = {"machine": describe(), "commit": commit(), "parts": kept}
        file.write_text(json.dumps(document) + "\n", encoding="utf-8")
        report = render_airflow(document)
        (results / "AIRFLOW.md").write_text(report, encoding="utf-8")
        print(report, flush=True)
