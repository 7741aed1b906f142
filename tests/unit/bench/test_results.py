"""A long run can be put together from several: what was measured stays, with its time and commit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.command import main
from bench.machine import commit, describe
from bench.reports.results import MeasuredElsewhere, Results
from milepost_testkit import wording

ORDER = ["workload/a", "workload/b", "workload/c"]


def stored(file: Path) -> dict[str, dict[str, object]]:
    parts: dict[str, dict[str, object]] = json.loads(file.read_text())["parts"]
    return parts


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a mode whose first part failed, and whose last two were measured, the last one first."""
    file = tmp_path_factory.mktemp("measured") / "results-quick.json"
    results = Results(file, "quick", [*ORDER, "workload/gone"], keep=False)
    for name in ("workload/gone", "workload/c", "workload/b"):
        results.measure(name, lambda: {"figure": 1})
    results.measure("workload/a", lambda: {"failed": "no"})
    return file.read_text()


@pytest.fixture
def file(measured: str, tmp_path: Path) -> Path:
    """A copy of the measured parts."""
    file = tmp_path / "results-quick.json"
    file.write_text(measured)
    return file


def test_one_part_measured_again_leaves_the_others_as_they_are(file: Path) -> None:
    before = stored(file)
    results = Results(file, "quick", ORDER, keep=True)
    assert stored(file) == before, "nothing is written before something is measured"
    results.measure("workload/b", lambda: {"figure": 2})
    after = stored(file)
    assert list(after) == ORDER, "in the order of the mode, without what it no longer has"
    assert after["workload/b"]["figure"] == 2
    assert all(after[name] == before[name] for name in ("workload/a", "workload/c"))
    assert all(record["commit"] == commit() and record["taken"] for record in after.values())


def test_a_part_that_failed_counts_as_missing(file: Path) -> None:
    results = Results(file, "quick", ORDER, keep=True)
    assert [results.has(name) for name in (*ORDER, "workload/d")] == [False, True, True, False]


def test_a_run_that_keeps_nothing_begins_anew(file: Path) -> None:
    Results(file, "quick", ORDER, keep=False).measure("workload/a", lambda: {"figure": 3})
    assert list(stored(file)) == ["workload/a"]


def test_work_that_breaks_off_loses_nothing_that_was_stored(file: Path) -> None:
    before = file.read_bytes()
    results = Results(file, "quick", ORDER, keep=True)
    with pytest.raises(ZeroDivisionError):
        results.measure("workload/b", lambda: {"figure": 1 / 0})
    assert file.read_bytes() == before


def test_parts_of_another_machine_are_not_mixed_in(file: Path) -> None:
    document = json.loads(file.read_text())
    document["machine"] = describe() | {"cores": 96}
    file.write_text(json.dumps(document))
    with wording.raises(MeasuredElsewhere):
        Results(file, "quick", ORDER, keep=True)


def test_parts_of_another_mode_are_not_mixed_in(file: Path) -> None:
    with wording.raises(MeasuredElsewhere):
        Results(file, "full", ORDER, keep=True)


def test_a_part_that_no_mode_has_is_refused_with_the_names_of_those_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--only", "windows", "--results", str(tmp_path), "--folder", str(tmp_path)]) == 2
    assert "no part of the quick mode begins with windows: workload/keyed-10k, workload/" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_parts_of_another_machine_are_refused_before_anything_is_measured(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = json.loads(file.read_text())
    file.write_text(json.dumps(before | {"machine": describe() | {"cores": 96}}))
    assert main(["run", "--resume", "--results", str(file.parent), "--folder", str(file.parent)]) == 2
    assert "cores 96" in capsys.readouterr().err
    assert stored(file) == before["parts"]


@pytest.mark.parametrize("command", ["run", "report"])
def test_without_what_draws_the_plots_nothing_is_measured_or_written(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    before = file.read_bytes()
    monkeypatch.setattr("bench.command.PLOTTER", file.parent / "none")
    assert main([command, "--results", str(file.parent)]) == 2
    assert "`make bench` builds what draws the plots" in capsys.readouterr().err
    assert file.read_bytes() == before and [path.name for path in file.parent.iterdir()] == [file.name]
