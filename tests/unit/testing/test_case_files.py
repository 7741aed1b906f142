"""A case file is checked as a spec is: all its problems, with their places, before anything runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from milepost.errors import InvalidRequest, NotFound
from milepost.testing.case_file import find_case_files, load_cases
from milepost.testing.rows import difference
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from tests.unit.testing.test_cases import SPEC

UNGATED = SPEC.partition("quality:")[0]
"""Without the gate, whose library takes seconds to import."""

CASE = """\
milepost_test: 1
job: counts.yaml
cases:
  it counts:
    - epoch: {rows: [{k: a, v: 1, t: "2026-01-01T00:00:00Z"}]}
      expect: {tables: {sums: [{k: a, total: 1}]}}
"""


TIME = {r"\(\d[\d.]* (ms|s)\)": "({time})"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "counts.yaml").write_text(UNGATED)
    (tmp_path / "case.yaml").write_text(CASE)
    return tmp_path


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("job: counts.yaml", "jobs: counts.yaml", "case.yaml:2:1: jobs"),
        ("expect:", "expects:", "expects"),
        (
            "epoch: {",
            "rollback: 1\n      epoch: {",
            "case.yaml:5:7: cases.it counts[0]",
        ),
        ("epoch: {", "kill: run\n      x: {", "case.yaml:6:7: cases.it counts[0].x"),
        (
            "    - epoch: {",
            "    - {rollback: 1, kill: run}\n    - epoch: {",
            "`kill`",
        ),
        ("tables:", "table:", "case.yaml:6:16: cases.it counts[0].expect.table"),
        ("milepost_test: 1", "milepost_test: 2", "case.yaml:1:16: milepost_test"),
        ("  it counts:\n", "  it counts: []\n  other:\n", "cases.it counts"),
        ("{k: a, v: 1,", "{k: a, k: 1,", "`k`"),
    ],
    ids=["jobs", "expects", "two acts", "no epoch", "kill alone", "table", "version", "no step", "key twice"],
)
def test_a_problem_is_reported_with_its_location(folder: Path, old: str, new: str, said: str) -> None:
    file = folder / "case.yaml"
    assert old in CASE
    file.write_text(CASE.replace(old, new))
    with wording.raises(InvalidRequest) as refused:
        load_cases(file)
    assert said in refused.value.message


def test_files_are_found_by_their_first_line(folder: Path) -> None:
    (folder / "inner").mkdir()
    (folder / "inner" / "more.yml").write_text(CASE)
    (folder / "other.yaml").write_text("a: 1\n")
    assert find_case_files([folder, folder / "case.yaml"]) == [folder / "case.yaml", folder / "inner" / "more.yml"]
    with wording.raises(NotFound):
        find_case_files([folder / "other.yaml"])
    with wording.raises(NotFound):
        find_case_files([folder / "nothing"])


def test_the_job_of_a_file_that_names_none_is_that_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests" / "counts").mkdir(parents=True)
    file = tmp_path / "tests" / "counts" / "case.yaml"
    file.write_text(CASE.replace("job: counts.yaml\n", ""))
    assert load_cases(file).spec == tmp_path / "config" / "counts.yaml"


@pytest.mark.long
def test_the_command_says_each_case_and_fails_with_one(folder: Path) -> None:
    passed = milepost("test", folder)
    assert passed.exit_code == 0 and "it counts" in passed.stdout
    wording.matches("test", passed.stdout, replace=TIME)
    (folder / "case.yaml").write_text(CASE.replace("total: 1", "total: 2"))
    failed = milepost("test", folder / "case.yaml")
    assert failed.exit_code == 1
    assert "+ {k: a, total: 1}\n" in failed.stdout
    wording.matches("test", failed.stdout, replace=TIME)
    document = milepost("test", folder, "--json").document()
    assert document["failed"] == 1 and document["cases"][0]["steps"][0]["faults"]
    assert milepost("test", folder, "--record").exit_code == 0
    assert milepost("test", folder).exit_code == 0
    assert milepost("test", folder / "nothing").exit_code == 3


PLUGIN = ("-p", "no:cacheprovider", "-p", "milepost_pytest", "-q", "--noconftest", "-o", "addopts=")


def _pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *PLUGIN, "--rootdir", str(folder), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.long
def test_pytest_runs_the_cases_of_the_folders_that_are_named(folder: Path) -> None:
    result = _pytest(folder, "--milepost", ".", ".")
    assert result.returncode == 0 and "1 passed" in result.stdout
    (folder / "case.yaml").write_text(CASE.replace("total: 1", "total: 2"))
    (folder / "pytest.ini").write_text("[pytest]\nmilepost_tests = .\n")
    result = _pytest(folder, ".")
    assert result.returncode == 1 and "+ {k: a, total: 1}" in result.stdout


@pytest.mark.deep
def test_pytest_imports_nothing_of_milepost_before_it_finds_a_case(folder: Path) -> None:
    """It is loaded in every team's pytest."""
    (folder / "test_none.py").write_text(
        "import sys\ndef test_none():\n    assert [n for n in sys.modules if n.split('.')[0] == 'milepost'] == []\n"
    )
    (folder / "other.yaml").write_text("a: 1\n")
    result = _pytest(folder, ".", "--milepost", "other")
    assert "1 passed" in result.stdout, result.stdout


def test_times_of_years_that_python_lacks_are_compared_and_named() -> None:
    import pyarrow as pa

    far = pa.table({"t": pa.array([2**60, 0], pa.timestamp("us"))})
    assert difference(far, far) == []
    assert difference(far, far.slice(1)) == ["- {t: 38504-08-17T21:30:06.846976}"]


def test_nan_is_itself_and_zero_has_a_sign() -> None:
    import pyarrow as pa

    table = pa.table({"x": [float("nan"), 0.0]})
    assert difference(table, pa.table({"x": [0.0, float("nan")]})) == []
    assert difference(table, pa.table({"x": [-0.0, float("nan")]})) == ["- {x: 0.0}", "+ {x: -0.0}"]
