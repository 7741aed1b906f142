"""A spec that cannot be used is red in Airflow, says why everywhere, and takes no other job's DAGs along."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest
from airflow.models.dag import DagModel
from airflow.utils.session import create_session

from milepost.airflow.compat import AirflowFailException
from milepost.airflow.dags import dag_factory
from milepost.airflow.dags.dag_factory import job_dags
from milepost.airflow.operators.dag_ids import BROKEN_TAG
from milepost.jobspec.load.load import LoadedJob
from milepost_testkit import wording
from milepost_testkit.airflow.kept_dags import keep_dags
from milepost_testkit.airflow.page_client import page_client
from milepost_testkit.airflow.page_text import page_text
from milepost_testkit.specs.hostile_specs import hostile_spec

SPEC = """
name: NAME
storage: state
sources:
  visits: {format: csv, path: "PATH", schema: {city: string, minutes: int32}}
operators:
  - {uid: s, kind: sql, inputs: [visits], sql: SQL}
sinks:
  - {name: out, input: s, format: parquet, path: lake/NAME, mode: append}
"""
CRON = 'schedule: {cron: "*/10 * * * *", timezone: UTC}\n'
GOOD = ["good__epoch", "good__operate"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(folder: Path, name: str, *, sql: str = "SELECT city FROM visits", path: str = "l/*", more: str = "") -> Path:
    file = folder / f"{name}.yaml"
    text = SPEC.replace("NAME", name).replace("SQL", json.dumps(sql)).replace("PATH", path)
    file.write_text(text + more)
    return file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "jobs"
    made.mkdir()
    write(made, "good", more=CRON)
    return made


def test_no_trigger_takes_the_dags_of_another_job_down(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All DAGs of the folder reach Airflow's database: what it refuses there, it refuses of the whole file."""
    write(folder, "select", sql="SELECT")
    write(folder, "pairs", sql="SELECT map(city) AS m FROM visits")
    write(folder, "half", path=r"l/\ud83d.csv")
    write(folder, "zone", more=f"schedule: {{cron: '@daily', timezone: {'a' * 300}}}\n")
    write(folder, "nested", sql="SELECT " + "(" * 900 + "city" + ")" * 900 + " AS x FROM visits")
    write(folder, "chain", sql="SELECT " + " || ".join(["city"] * 1_200) + " AS x FROM visits")
    write(folder, "literal", sql="SELECT x -> 1BD AS y FROM visits")
    write(folder, "digits", more=f"spark: {{parallelism: 0x{'f' * 9_999}}}\n")
    write(folder, "never", more="schedule: {cron: '0 0 31 2 *'}\n")
    write(folder, "owner", more=f"airflow: {{owner: {'a' * 5_000}}}\n")
    write(folder, "deep").write_text("a: " + "[" * 20_000)
    write(folder, "other").rename(folder / "caf\udce9.yaml")
    names = "select pairs half zone nested chain literal digits never owner".split()  # noqa: SIM905
    dags = job_dags(folder)
    red = [f"{name}__broken" for name in (*names, "deep", "caf")]
    assert {name for name, dag in dags.items() if BROKEN_TAG not in dag.tags} == set(GOOD)
    assert {name for name in dags if name.endswith("__broken")} == set(red)
    keep_dags(monkeypatch, *dags.values())
    with create_session() as session:
        kept = {row.dag_id: row for row in session.query(DagModel)}
    assert set(kept) == set(dags)
    for name in red:
        due = kept[name].next_dagrun_create_after
        assert not kept[name].is_paused and due is not None and due < datetime.now(UTC), "its run fails at once"


def test_the_tab_the_docs_and_all_jobs_show_the_reason(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "torn.yaml").write_text("name: torn\nsources: [\n" + CRON)
    dags = job_dags(folder)
    assert set(dags) == {*GOOD, "torn__broken"}
    place = "torn.yaml:4:1: "
    assert place in str(dags["torn__broken"].doc_md)
    client = page_client(monkeypatch, *dags.values())
    for page in (client.get("/jobs/torn__broken/checkpoints"), client.get("/jobs")):
        assert place in page.text
        wording.matches("page_broken", page_text(page.text, ".banner"))
    with wording.raises(AirflowFailException):
        dags["torn__broken"].get_task("trigger_checkpoint").execute({})


@pytest.mark.deep
def test_a_job_with_a_schedule_fails_as_often_as_it_would_have_run_and_is_listed_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its DAG stays as paused as it was: once fixed, the job does not start just because its spec was broken."""
    write(folder, "bad", sql="SELECT nothing FROM visits", more=CRON)
    dags = job_dags(folder)
    assert dags["bad__epoch"].schedule.expression == "*/10 * * * *"
    assert dags["bad__epoch"].is_paused_upon_creation is None
    page = page_client(monkeypatch, *dags.values()).get("/jobs").text
    assert len([line for line in page_text(page, "li", "td").splitlines() if "bad.yaml" in line]) == 1


@pytest.mark.parametrize("step", ["graph", "dag"])
def test_an_unexpected_exception_breaks_one_spec_and_its_stack_is_in_the_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    write(folder, "bad")

    def fail(job: LoadedJob) -> None:
        if job.spec.name == "bad":
            raise KeyError("surprise")

    if step == "graph":
        monkeypatch.setattr(LoadedJob, "graph", fail)
    else:
        made = dag_factory.epoch_tasks
        monkeypatch.setattr(dag_factory, "epoch_tasks", lambda job: fail(job) or made(job))
    with caplog.at_level(logging.ERROR):
        dags = job_dags(folder)
    assert set(dags) == {*GOOD, "bad__epoch", "bad__broken"}
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.exc_info is not None and repr(record.exc_info[1]) == "KeyError('surprise')"
    wording.matches("broken_specs", record.getMessage())
    task = dags["bad__broken"].get_task("trigger_checkpoint")
    with caplog.at_level(logging.ERROR), wording.raises(AirflowFailException):
        task.execute({})
    assert "in fail" in task.stack


def test_a_broken_spec_takes_no_valid_job_its_name(folder: Path) -> None:
    """Also where its file comes first."""
    (folder / "a.yaml").write_text("name: good\nsources: [\n")
    (folder / "b.yaml").write_text("name: good\nstorages: x\n")
    write(folder, "c").write_text((folder / "good.yaml").read_text())
    dags = job_dags(folder)
    assert set(dags) == {*GOOD, "a__broken", "b__broken", "good__epoch__duplicate"}
    assert BROKEN_TAG not in dags["good__epoch"].tags


def test_a_corrected_spec_has_its_own_dags_again(folder: Path) -> None:
    write(folder, "bad", sql="SELECT")
    assert "bad__broken" in job_dags(folder)
    write(folder, "bad")
    assert set(job_dags(folder)) == {*GOOD, "bad__epoch", "bad__operate"}


@pytest.mark.long
def test_dags_of_random_specs_are_written_to_airflows_database(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    import random

    rng = random.Random(seed)
    for number in range(60):
        (folder / f"spec{number}.yaml").write_text(hostile_spec(rng), encoding="utf-8", errors="surrogatepass")
    dags = job_dags(folder)
    assert set(GOOD) <= set(dags)
    keep_dags(monkeypatch, *dags.values())
