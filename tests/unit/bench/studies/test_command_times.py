"""The part of the benchmark that times commands: what its report says of figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.studies.command_times import COMMANDS, render_commands


def document(wall_s: float) -> dict[str, Any]:
    one = {"wall_s": wall_s, "cpu_s": 0.4, "requests": 9, "in_line": 4}
    slow = one | {"wall_s": wall_s + 5}
    record = {
        "epochs": 30,
        "delay_ms": 20,
        "other_busy_cores": 0.1,
        "python": [one | {"wall_s": 0.01}] * 3,
        "commands": {command.words: [one, slow, one] for command in COMMANDS},
    }
    return {"commit": "abc", "commands": record}


@pytest.mark.parametrize(("wall_s", "missed"), [(0.5, 0), (0.6, len(COMMANDS) - 2), (1.1, len(COMMANDS))])
def test_a_command_is_judged_by_its_median_and_its_own_target(wall_s: float, missed: int) -> None:
    """Half a second to read; one for the plan of a rollback and for a run with nothing to do."""
    text = render_commands(document(wall_s))
    assert text.count("**missed**") == missed and text.count("| met |") == len(COMMANDS) - missed
    assert f"| `milepost run JOB` | {wall_s:.2f} | 1.0 |" in text


def test_a_command_line_names_the_job_and_its_checkpoints() -> None:
    lines = {command.words: command.line(Path("job.yaml"), 30) for command in COMMANDS}
    assert lines["diff JOB BEFORE HEAD"] == ["diff", "job.yaml", "29", "30"]
    assert lines["rollback JOB --to BACK --dry-run"] == ["rollback", "job.yaml", "--to", "27", "--dry-run"]
