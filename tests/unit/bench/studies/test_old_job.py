"""The part of the benchmark that lets a job grow old: what its report says of figures, and that the part runs."""

from __future__ import annotations

from typing import Any

import pytest

from bench.studies.old_job import COMPARABLE, rows_of, summary_of
from bench.studies.old_job_report import render_old_job


def record(epochs: int, late: float = 1.0, **stored: int) -> dict[str, Any]:
    walls = [1.0] * (epochs - 500) + [late] * 500 if epochs >= 500 else [1.0] * epochs
    one = {"entries": 7, "largest_entry": 12_000, "log_bytes": 50_000, "metadata_bytes": 4_000}
    acts = {"fsck": 0.2, "rollback by three": 0.1}
    return {
        "epochs": [{"checkpoint_id": number, "wall_s": wall, **one} for number, wall in enumerate(walls, 1)],
        "twin_s": [1.0] * 500 if epochs >= COMPARABLE else [],
        "took_s": 600.0,
        "stored": {"garbage": 9, "log": 1_000 * epochs, **stored},
        "reads_s": {"list": 0.3, "history": 1.4},
        "acts_s": {"young": acts, "old": acts},
    }


@pytest.mark.parametrize(("late", "verdict"), [(1.09, "met"), (1.12, "**missed**")])
def test_a_target_is_met_or_missed_as_its_figure_says(late: float, verdict: str) -> None:
    lines = render_old_job({"commit": "abc", "old_job": record(1_200, late)}).splitlines()
    judged = [line for line in lines if line.count("|") == 5 and line.endswith((" met |", "** |"))]
    grown, since_early, written, kept, entry, read = judged
    assert "twin" in grown and grown.endswith(f"{verdict} |")
    assert since_early.endswith(f"{verdict} |")
    assert written == "| log and metadata written per epoch | 54,000 B | 60,000 B | met |"
    assert kept.endswith("1,000 B | 2,000 B | met |") and entry.endswith("met |")
    assert read.endswith("1.40 s | 1.00 s | **missed** |")


def test_fewer_epochs_than_are_compared_are_not_judged() -> None:
    assert summary_of(record(1_099))["grown"] is None
    assert "not measured: too few epochs" in render_old_job({"commit": "abc", "old_job": record(300)})


def test_each_epoch_has_other_rows_of_a_minute_of_its_own() -> None:
    first, second = rows_of(0), rows_of(1)
    assert first.num_rows == second.num_rows == 500
    assert first["at"][-1].as_py() < second["at"][0].as_py()
    assert rows_of(1).equals(second) and not first["price"].equals(second["price"])
