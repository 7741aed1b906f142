"""`milepost lint` shows the canonical names of column types that a spec writes in Spark's names."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.cli.workspace.scaffold import write_job
from milepost_testkit.commands.milepost_cli import milepost


def test_lint_shows_one_name_for_each_type_and_the_same_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_job("visits", tmp_path, gated=False, opened=False)
    before = milepost("lint", "visits", "--json").document()
    spec = tmp_path / "config" / "visits.yaml"
    text = spec.read_text().replace("minutes: int32", "minutes: INT").replace('"timestamp[us, UTC]"', "TIMESTAMP")
    spec.write_text(text)
    shown = milepost("lint", "visits")
    assert "types of source visits: minutes INT is int32, at TIMESTAMP is timestamp[us, UTC]" in shown.stderr
    after = milepost("lint", "visits", "--json").document()
    assert after["spec_hash"] == before["spec_hash"] and after["nodes"] == before["nodes"]
    assert not before["other_type_names"]
