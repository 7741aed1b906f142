"""The part of the benchmark that counts round trips: what its report and its picture say of figures."""

from __future__ import annotations

from typing import Any

import pytest

from bench.studies.round_trips import TASKS
from bench.studies.round_trips_report import TARGET, TARGET_S, draw_round_trips, render_round_trips


def record(driver: int, in_line: int = 28, added_s: float = 0.5) -> dict[str, Any]:
    drawn = [
        {"what": "LIST manifest/", "step": "trigger", "from_ms": 0, "to_ms": 30, "in_line": True},
        {"what": "LIST landing/<a>", "step": "trigger", "from_ms": 1, "to_ms": 31, "in_line": False},
    ]
    epoch = {
        "wall_s": 1.5,
        "requests": 44,
        "in_line": in_line,
        "classes": {"get": 9, "put": 35},
        "driver": {"trigger": 5, "notify": driver - 5},
        "in_line_by_step": {"trigger": 5, "notify minutes": 2, "notify totals": 2},
        "drawn": drawn,
    }
    tasks = {task: {"requests": 7, "in_line": 6, "classes": {}} for task in TASKS}
    delays = {"0": epoch | {"wall_s": 1.5 - added_s}, "30": epoch}
    measured = {delay_ms: {"epochs": [one] * 3, "tasks": tasks} for delay_ms, one in delays.items()}
    return {"rows": 2_200, "other_busy_cores": 0.1, "delays": measured}


@pytest.mark.parametrize(("more", "verdict"), [(0, "met: "), (1, "**missed**: ")])
def test_targets_are_judged_by_what_stood_in_line_and_what_the_waits_added(more: int, verdict: str) -> None:
    text = render_round_trips({"commit": "abc", "round_trips": record(12, TARGET + more, TARGET_S - 0.01 + more)})
    assert f"in line: {verdict}{TARGET + more}, of which the driver alone has 12." in text
    assert f"{verdict}{TARGET_S - 0.01 + more:.2f} s." in text


def test_figures_are_shown_next_to_those_of_an_earlier_commit() -> None:
    before = {"commit": "0123456789", "round_trips": record(60)}
    text = render_round_trips({"commit": "abc", "round_trips": record(17), "before": before})
    assert "| before (01234567) | 30 | 1.50 | 44 | 28 | 60 | 35 | 9 | 0 |" in text
    assert "| notify | 4 | 4 |" in text and "| run_epoch | 7, 6 | 7, 6 |" in text


def test_the_picture_has_a_bar_per_request_and_says_what_stood_in_line() -> None:
    picture = draw_round_trips({"round_trips": record(17)})
    assert picture.count("<rect") == 3 and picture.count("#1f4e79") == 1
    assert "LIST landing/&lt;a&gt;" in picture
