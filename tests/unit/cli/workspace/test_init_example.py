"""`milepost init --example` writes a job of the how-tos from the package alone: valid, and with its data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from milepost.cli.main import app
from milepost.cli.workspace.example_files import example_names
from milepost.cli.workspace.scaffold import write_job
from milepost.jobspec.load.lint import lint_report
from milepost.jobspec.load.load import load_job
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import assert_clear_error, milepost
from milepost_testkit.processes.processes import REPOSITORY

HOW_TO = REPOSITORY / "docs" / "how-to"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.deep
@pytest.mark.parametrize("name", example_names())
def test_an_example_is_a_valid_job_whose_sources_find_their_data(folder: Path, name: str) -> None:
    written = milepost("init", "--example", name)
    assert written.exit_code == 0 and f"milepost run {name}`" in written.stderr
    assert {line.split()[-1] for line in written.stdout.splitlines()} == files(folder)
    job = load_job(name, folder)
    assert job.spec.name == name and lint_report(job)["unread"] == []
    for source in job.spec.sources.values():
        assert list((folder / "config").glob(source.path)), source.path
    assert all((sink.path or "../.milepost").startswith("../.milepost") for sink in job.spec.sinks)


def test_examples_share_data_and_overwrite_nothing(folder: Path) -> None:
    milepost("init", "--example", "top")
    clicks = folder / "config" / "clicks" / "2026-03-01.csv"
    before = clicks.stat().st_mtime_ns
    wording.matches("init", milepost("init", "--example", "sessions").stdout)
    assert clicks.stat().st_mtime_ns == before
    assert_clear_error(milepost("init", "--example", "top"), 2, golden="init")
    clicks.write_text("mine\n")
    refused = milepost("init", "--example", "clickstream")
    assert_clear_error(refused, 2, golden="init")
    assert clicks.read_text() == "mine\n" and not (folder / "config" / "clickstream.yaml").exists()


@pytest.mark.parametrize(
    "words",
    [("--example", "jion"), ("--example", "../join"), ("mine", "--example", "join"), ()],
)
def test_what_cannot_be_written_is_refused_by_name(folder: Path, words: tuple[str, ...]) -> None:
    assert_clear_error(milepost("init", *words), 2, golden="init")
    assert files(folder) == set()


def test_a_shell_is_offered_the_examples() -> None:
    environ = {"COMP_WORDS": "milepost init --example lo", "COMP_CWORD": "3", "_MILEPOST_COMPLETE": "complete_bash"}
    shown = CliRunner().invoke(app, env=environ, prog_name="milepost").stdout
    assert shown.split() == ["logs", "lookup"]


@pytest.mark.deep
@pytest.mark.parametrize("page", sorted(HOW_TO.glob("*.md")), ids=lambda page: page.name)
def test_a_how_to_names_only_examples_that_there_are(page: Path) -> None:
    named = re.findall(r"milepost init --example ([\w-]+)", page.read_text("utf-8"))
    assert set(named) <= set(example_names()) and "config/examples/" not in page.read_text("utf-8")


def test_a_new_job_in_sql_counts_visits_whatever_its_name(tmp_path: Path) -> None:
    write_job("shop", tmp_path, gated=False, opened=False, sql=True)
    job = load_job("shop", tmp_path)
    assert list(job.graph().nodes["totals"].columns) == ["city", "visits", "minutes", "longest"]
