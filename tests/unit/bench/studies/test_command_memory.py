"""The part of the benchmark that measures the memory of commands: what its report says of figures."""

from __future__ import annotations

from typing import Any

from bench.studies.command_memory import BARE, BOUND_MB, COMMANDS, render_memory


def record(keys: int, peak_mb: float) -> dict[str, Any]:
    commands = {one.words: {"peak_mb": peak_mb, "wall_s": 1.25} for one in COMMANDS}
    commands[BARE] = {"peak_mb": 100.0, "wall_s": 0.5}
    return {"keys": keys, "commit": f"of{keys}", "other_busy_cores": 0.1, "commands": commands}


def test_growth_beyond_the_bound_is_marked_next_to_the_former_figure() -> None:
    before, after = record(5_000_000, 101.0 + BOUND_MB), record(5_000_000, 99.0 + BOUND_MB)
    text = render_memory({"before": {"5000000": before}, "command_memory": {"5000000": after}})
    assert "| command | 5 M keys, before | 5 M keys |" in text
    assert f"| `milepost verify JOB --deep` | **{101 + BOUND_MB} MB, 1.2 s** | {99 + BOUND_MB} MB, 1.2 s |" in text


def test_numbers_of_keys_stand_in_their_order() -> None:
    text = render_memory({"before": {}, "command_memory": {str(n): record(n, 100.0) for n in (50_000_000, 1_000_000)}})
    assert "| command | 1 M keys | 50 M keys |" in text
