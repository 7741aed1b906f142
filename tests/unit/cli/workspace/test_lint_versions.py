"""`milepost lint` states which keys need a newer version than the oldest supported one."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.cli.workspace.scaffold import write_job
from milepost_testkit.commands.milepost_cli import milepost

QUEUE = 'schedule: {sqs: "https://sqs.eu-west-1.amazonaws.com/123456789012/landing"}\n'
LIMITED = """\
  api:
    format: python
    source: readers:Api
    schema: {city: string, visitor: string, minutes: int32, at: "timestamp[us, UTC]"}
    land: {max_rows: 100}
"""


def test_lint_names_the_keys_that_need_a_newer_version_and_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_job("visits", tmp_path, gated=False, opened=False)
    assert milepost("lint", "visits", "--json").document()["needed_versions"] == {}
    spec = tmp_path / "config" / "visits.yaml"
    text = spec.read_text()
    spec.write_text(QUEUE + text.replace("sources:\n", f"sources:\n{LIMITED}", 1))
    shown = milepost("lint", "visits")
    assert "note: schedule.sqs needs Airflow 3.3 or later" in shown.stderr, shown
    assert "note: sources.api.land.max_rows needs PySpark 4.2 or later" in shown.stderr
