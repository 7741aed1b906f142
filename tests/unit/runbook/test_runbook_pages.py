"""Each type of error and each state of a job has a page in the runbook, with all of its parts and real commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from milepost import errors
from milepost.acts import ACTS
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.task_output.outcome import REACTIONS, Reaction
from milepost.cli.main import app
from milepost.errors import CheckpointError
from milepost.jobmaster.reports.health.conditions import Condition
from milepost.protocol.manifest.timelines.incarnation import JobPhase
from milepost.runbook.addresses import UNEXPECTED, VARIABLE, address, name_of, page_of
from milepost.runbook.pages import page_files, read_page
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from scripts.site_pages import ELSEWHERE

FILES = page_files()
PAGES = [pytest.param(file, id=name) for name, file in FILES.items()]
PARTS = ["What it means", "What is true now", "What to do", "How you see that it is over"]
MOST_WORDS = 300
CLI: Any = typer.main.get_command(app)


def kinds() -> list[type[CheckpointError]]:
    """Every class of errors that a caller may meet."""
    found = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, CheckpointError)]
    return [kind for kind in found if kind is not CheckpointError]


def test_every_type_of_error_and_every_state_has_a_page_and_no_page_is_of_nothing() -> None:
    of_errors = {name for name, file in FILES.items() if file.parent.name == "errors"}
    assert of_errors == {name_of(kind) for kind in kinds()} | {UNEXPECTED}
    assert FILES.keys() - of_errors == {condition.value for condition in Condition}
    assert {phase.value for phase in JobPhase} <= {condition.value for condition in Condition}


@pytest.mark.deep
@pytest.mark.parametrize("kind", kinds(), ids=name_of)
def test_the_page_of_an_error_has_its_name_and_its_exit_code(kind: type[CheckpointError]) -> None:
    page = read_page(name_of(kind))
    assert page.title == kind.__name__
    assert re.findall(r"\d+", page.text.partition("\n")[0]) == [str(kind.exit_code)]


@pytest.mark.parametrize("reaction", Reaction, ids=lambda one: one.name)
def test_pages_of_errors_to_which_airflow_reacts_alike_begin_alike(reaction: Reaction) -> None:
    begins = {
        re.sub(r"\d+", "{code}", read_page(name_of(kind)).text.partition("\n")[0])
        for kind in kinds()
        if REACTIONS[kind.action] is reaction
    }
    (beginning,) = begins
    wording.matches("runbook", beginning)


@pytest.mark.long
@pytest.mark.parametrize("file", PAGES)
def test_a_page_has_all_of_its_parts_and_is_read_in_a_minute(file: Path) -> None:
    text = file.read_text("utf-8")
    heading, *parts = re.split(r"^## ", text, flags=re.MULTILINE)
    assert re.match(r"# \w[^\n]+\n", heading)
    assert [part.partition("\n")[0] for part in parts] == PARTS
    assert all(part.partition("\n")[2].strip() for part in parts)
    to_do = parts[PARTS.index("What to do")]
    assert "`milepost " in to_do and "Airflow" in to_do, "what to do, on a shell and without one"
    assert len(text.split()) < MOST_WORDS and max(map(len, text.splitlines())) <= 120


@pytest.mark.long
@pytest.mark.parametrize("file", PAGES)
def test_every_command_of_a_page_exists_with_its_options(file: Path) -> None:
    for text in re.findall(r"`milepost ([^`]+)`", file.read_text("utf-8")):
        words = text.split()
        command: Any = CLI
        while isinstance(command, TyperGroup) and not words[0].startswith("-"):
            assert words[0] in command.commands, text
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= known, text


def test_every_dag_that_a_page_names_is_one_of_a_job_and_every_act_one_of_its_form(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    made = set(job_dags(job.folder / "config"))
    named = {dag for file in FILES.values() for dag in re.findall(r"JOB__\w+", file.read_text("utf-8"))}
    assert named and {dag.replace("JOB", "small") for dag in named} <= made
    acts = {act for file in FILES.values() for act in re.findall(r"with\s+\*(\w+)\*", file.read_text("utf-8"))}
    assert {"resume", "rollback", "abort"} <= acts <= ACTS.keys()


@pytest.mark.long
@pytest.mark.parametrize("file", PAGES)
def test_a_page_leads_to_pages_that_are_there(file: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]+)", file.read_text("utf-8"))
    assert [link for link in links if not (file.parent / link).is_file()] == []
    assert ELSEWHERE[file.relative_to(REPOSITORY).as_posix()] == f"runbook/{file.name}"


def test_a_page_that_is_carried_has_no_link_that_leads_out() -> None:
    page = read_page("job-not-runnable")
    assert "](failed)" in page.text and "../" not in page.text
    assert not [one for one in FILES if "../" in read_page(one).text or "](docs/" in read_page(one).text]


def test_where_a_page_leads_out_it_names_the_document() -> None:
    shown = read_page("failed").text
    assert "(docs/reference/abort-reasons.md)" in shown
    assert "(docs/reference/alerts.yaml)" in milepost("runbook", "failed").stdout
    named = {path for one in FILES for path in re.findall(r"\((docs/[^)\s]+)\)", read_page(one).text)}
    assert named and [path for path in named if not (REPOSITORY / path).is_file()] == []


def test_an_error_that_callers_do_not_know_by_itself_has_the_page_of_the_nearest_that_they_know() -> None:
    class OurOwn(errors.StoreUnavailable):
        pass

    assert page_of(OurOwn("no answer")) == "store-unavailable"
    assert page_of(errors.SparkLost("gone")) == "spark-lost"
    assert page_of(ZeroDivisionError()) == page_of(CheckpointError("of no class")) == UNEXPECTED


def test_an_address_is_a_command_unless_a_team_has_the_pages_somewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert address("busy") == "milepost runbook busy"
    monkeypatch.setenv(VARIABLE, "https://docs.example.com/milepost/runbook/")
    assert address("busy") == "https://docs.example.com/milepost/runbook/busy.html"


def test_the_command_prints_a_page_and_lists_them_all() -> None:
    shown = milepost("runbook", "job-not-runnable")
    assert shown.exit_code == 0 and shown.stdout.startswith("# JobNotRunnable\n")
    assert "(milepost runbook failed)" in shown.stdout and "](" not in shown.stdout
    assert [row["name"] for row in milepost("runbook", "--json").document()["pages"]] == list(FILES)
    assert milepost("runbook", "busy", "--json").document()["text"] == read_page("busy").text
    listed = milepost("runbook").stdout
    assert all(name in listed for name in FILES)
    unknown = milepost("runbook", "nothing")
    assert unknown.exit_code == 3 and "milepost runbook not-found" in unknown.error[-2]
