"""The part of the benchmark that counts round trips: what its report and its picture say of figures."""

from __future__ import annotations

from typing import Any

import pytest

from bench.studies.round_trips import TASKS
from bench.studies.round_trips_report import draw_round_trips, render_round_trips


def record(driver: int) -> dict[str, Any]:
    drawn = [
        {"what": "LIST manifest/", "step": "trigger", "from_ms": 0, "to_ms": 30, "in_line": True},
        {"what": "LIST landing/<a>", "step": "trigger", "from_ms": 1, "to_ms": 31, "in_line": False},
    ]
    epoch = {
        "wall_s": 1.5,
        "requests": 44,
        "in_line": 28,
        "classes": {"get": 9, "put": 35},
        "driver": {"trigger": 5, "notify": driver - 5},
        "in_line_by_step": {"trigger": 5, "notify minutes": 2, "notify totals": 2},
        "drawn": drawn,
    }
    tasks = {task: {"requests": 7, "in_line": 6, "classes": {}} for task in TASKS}
    return {"rows": 2_200, "other_busy_cores": 0.1, "delays": {"30": {"epochs": [epoch] * 3, "tasks": tasks}}}


@pytest.mark.parametrize(("driver", "verdict"), [(12, "met: the driver"), (13, "**missed**: the driver")])
def test_the_target_is_judged_by_the_chain_of_the_driver(driver: int, verdict: str) -> None:
    assert verdict in render_round_trips({"commit": "abc", "round_trips": record(driver)})


def test_figures_stand_beside_those_of_an_earlier_commit() -> None:
    before = {"commit": "0123456789", "round_trips": record(60)}
    text = render_round_trips({"commit": "abc", "round_trips": record(17), "before": before})
    assert "| before (01234567) | 30 | 1.50 | 44 | 28 | 60 | 35 | 9 | 0 |" in text
    assert "| notify | 4 | 4 |" in text and "| run_epoch | 7, 6 | 7, 6 |" in text


def test_the_picture_has_a_bar_per_request_and_says_what_stood_in_line() -> None:
    picture = draw_round_trips({"round_trips": record(17)})
    assert picture.count("<rect") == 3 and picture.count("#1f4e79") == 1
    assert "LIST landing/&lt;a&gt;" in picture
