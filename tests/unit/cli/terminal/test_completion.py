"""The shell is offered commands, jobs, their parts and checkpoints, and never an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from milepost.cli.main import app
from milepost.jobmaster import Session
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    job = SparklessJob.create(tmp_path, {"retained: {last: 1}": "retained: {last: 5}"})
    for name in ("a", "b"):
        job.land(f"{name}.csv")
        job.master.epochs.run(Session.cli(), SparklessRunner())
    job.master.savepoints.create("kept")
    (tmp_path / "config" / "broken.yaml").write_text("name: [")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(words: str) -> list[str]:
    """What bash is offered for the last of these words."""
    count = len(words.split()) if words.endswith(" ") else len(words.split()) - 1
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(count), "_MILEPOST_COMPLETE": "complete_bash"}
    result = CliRunner().invoke(app, [], env=asked, prog_name="milepost")
    assert result.exit_code == 0 and result.stderr == ""
    return result.stdout.split()


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("milepost sta", ["start", "status", "state"]),
        ("milepost list ", ["broken", "small"]),
        ("milepost run sm", ["small"]),
        ("milepost read small ", ["table"]),
        ("milepost state small la", ["latest"]),
        ("milepost show small ", ["2", "1"]),
        ("milepost rollback small --to ", ["2", "1"]),
        ("milepost diff small 1 2 --source ", ["rows"]),
        ("milepost savepoint dispose small --name ", ["kept"]),
        ("milepost show broken ", []),
        ("milepost show nowhere ", []),
        ("milepost jobs s", ["small"]),
    ],
)
def test_the_shell_is_offered(folder: Path, words: str, completed: list[str]) -> None:
    assert offered(words) == completed


def test_ids_of_a_storage_elsewhere_are_not_waited_for(folder: Path) -> None:
    spec = folder / "config" / "small.yaml"
    edit_spec(spec, {"storage: ../store": "storage: s3://nowhere"})
    assert offered("milepost show small ") == [] and offered("milepost read small ") == ["table"]


def test_a_script_for_the_shell_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    for shell, words in (("bash", "complete -o default"), ("zsh", "#compdef milepost"), ("fish", "complete --command")):
        result = CliRunner().invoke(app, ["--show-completion", shell])
        assert result.exit_code == 0 and words in result.stdout
