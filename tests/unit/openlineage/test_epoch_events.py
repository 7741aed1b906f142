"""The events of real epochs, as a catalog receives them: by HTTP, of the job master's own steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

from milepost.epoch.plan import EpochPlan
from milepost.errors import QualityGateFailed, SubtaskDeclined
from milepost.jobmaster import JobMaster, Session
from milepost.openlineage.settings import nowhere
from milepost.tables.records.table_heads import HEADS
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.backfill_job import BackfillJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.lineage_receiver import LineageReceiver
from milepost_testkit.servers.lineage_schemas import assert_valid

GATE = """\
quality:
  - sink: table
    expectations:
      - {type: expect_column_values_to_be_between, column: rows, max_value: 1}
      - {type: expect_column_values_to_not_be_null, column: k, severity: warning}
checkpointing:"""


@pytest.fixture(autouse=True)
def receiver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LineageReceiver]:
    """Configured as a person does; whatever else this machine configures does not count."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    with LineageReceiver().serving() as server, unchanged_variables():
        monkeypatch.setenv("OPENLINEAGE_URL", server.url)
        yield server
    for event in server.events:
        assert_valid(event)


@contextmanager
def unchanged_variables() -> Iterator[None]:
    """Take away what OpenLineage's client adds to the environment: it writes each variable in its newer form, too."""
    before = dict(os.environ)
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]


def types(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["eventType"], event["job"]["name"]) for event in events]


def table(folder: Path) -> str:
    return str(folder / "lake" / "table")


def run(job: SparklessJob, session: Session | None = None, runner: SparklessRunner | None = None) -> Any:
    return job.master.epochs.run(session or Session.cli(), runner or SparklessRunner())


@pytest.mark.deep
def test_an_epoch_begins_with_its_trigger_and_completes_when_its_sinks_have_it(
    receiver: LineageReceiver, tmp_path: Path
) -> None:
    """What it read and published, how much, of which versions, and where each column comes from."""
    job = SparklessJob.create(tmp_path / "job")
    job.land("a.csv", "k,v\n1,a\n1,b\n2,c\n")
    seen: list[int] = []

    class Watched(SparklessRunner):
        def run(self, plan: EpochPlan) -> Any:
            seen.append(len(receiver.wait_for(1)))
            return super().run(plan)

    run(job, runner=Watched())
    start, complete = receiver.wait_for(2)
    assert seen == [1], "it has begun when its trigger has landed, not at its end"
    assert types([start, complete]) == [("START", "small"), ("COMPLETE", "small")]
    assert start["run"]["runId"] == complete["run"]["runId"] and UUID(start["run"]["runId"]).version == 7
    assert start["job"]["namespace"] == f"file://{tmp_path}/job/store"
    facets = complete["job"]["facets"]
    assert (facets["jobType"]["processingType"], facets["jobType"]["integration"]) == ("BATCH", "MILEPOST")
    assert facets["ownership"]["owners"] == [{"name": "data", "type": "MAINTAINER"}]

    (read,), (published,) = complete["inputs"], complete["outputs"]
    assert (read["namespace"], read["name"]) == ("file", str(tmp_path / "job" / "landing"))
    assert read["inputFacets"]["inputStatistics"] | {"_producer": "", "_schemaURL": ""} == {
        "rowCount": 3, "size": 16, "fileCount": 1, "_producer": "", "_schemaURL": ""}  # fmt: skip
    assert [one["name"] for one in read["facets"]["schema"]["fields"]] == ["k", "v"]
    assert read["facets"]["version"] == start["inputs"][0]["facets"]["version"], "the very versions that were planned"
    assert (published["namespace"], published["name"]) == ("file", table(tmp_path / "job"))
    assert published["facets"]["version"]["datasetVersion"] == "main/1"
    assert published["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "CREATE"
    written = published["outputFacets"]["outputStatistics"]
    staged = list((tmp_path / "job" / "lake" / "table").rglob("*.parquet"))
    assert (written["rowCount"], written["fileCount"]) == (2, len(staged))
    assert written["size"] == sum(file.stat().st_size for file in staged)
    lineage = published["facets"]["columnLineage"]
    origin = {"namespace": "file", "name": read["name"], "field": "k"}
    (field,) = lineage["fields"]["k"]["inputFields"]
    assert field == origin | {"transformations": [{"type": "DIRECT", "subtype": "IDENTITY", "masking": False}]}
    assert [one["transformations"][0]["subtype"] for one in lineage["dataset"]] == ["GROUP_BY"]
    checkpoint = complete["run"]["facets"]["milepost_checkpoint"]
    assert {name: checkpoint[name] for name in ("checkpointId", "epoch", "timeline", "status", "base")} == {
        "checkpointId": 1, "epoch": 1, "timeline": "main", "status": "completed", "base": 0}  # fmt: skip


def test_a_second_epoch_is_another_run_of_the_same_table(receiver: LineageReceiver, tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "job")
    for name in ("a.csv", "b.csv"):
        job.land(name, f"k,v\n1,{name}\n")
        run(job)
    events = receiver.wait_for(4)
    assert len({event["run"]["runId"] for event in events}) == 2
    before, after = events[1]["outputs"][0], events[3]["outputs"][0]
    assert (before["name"], after["facets"]["version"]["datasetVersion"]) == (after["name"], "main/2")
    assert "lifecycleStateChange" not in after["facets"]
    assert (
        before != after and events[0]["inputs"][0]["facets"]["version"] != events[2]["inputs"][0]["facets"]["version"]
    )


def test_steps_in_processes_of_their_own_name_one_run_and_begin_it_once(
    receiver: LineageReceiver, tmp_path: Path
) -> None:
    """As Airflow's tasks do, each retried: a transition that is there already begins nothing again."""
    job, session = SparklessJob.create(tmp_path / "job"), Session.cli()
    job.land("a.csv")
    for _ in range(2):
        triggered = job.master.triggers.trigger(session)
    for _ in range(2):
        job.master.epochs.run_epoch(session, triggered.checkpoint_id, SparklessRunner())
    for _ in range(2):
        job.master.epochs.complete(session, triggered.checkpoint_id)
    receiver.wait_for(1)
    assert types(receiver.events) == [("START", "small")], "committed, and no table shows it yet"
    for _ in range(2):
        job.master.epochs.notify_complete(session, triggered.checkpoint_id, "table")
    job.master.epochs.subsume(session)
    start, complete = receiver.wait_for(2)
    assert types(receiver.events) == [("START", "small"), ("COMPLETE", "small")]
    assert start["run"]["runId"] == complete["run"]["runId"]


def test_a_veto_aborts_with_the_expectations_that_failed_and_without_a_value(
    receiver: LineageReceiver, tmp_path: Path
) -> None:
    job = SparklessJob.create(tmp_path / "job", {"checkpointing:": GATE})
    job.land("a.csv", "k,v\n4711,secret-a\n4711,secret-b\n")
    with pytest.raises(QualityGateFailed):
        run(job)
    start, abort = receiver.wait_for(2)
    assert (abort["eventType"], abort["run"]["runId"]) == ("ABORT", start["run"]["runId"])
    told = abort["run"]["facets"]
    assert told["milepost_checkpoint"]["reason"] == "QUALITY_GATE_FAILED"
    assert told["errorMessage"]["message"].endswith("sink table: expect_column_values_to_be_between(rows)")
    (refused,) = abort["outputs"]
    (assertion,) = refused["facets"]["dataQualityAssertions"]["assertions"]
    assert {name: assertion[name] for name in ("assertion", "success", "column", "severity")} == {
        "assertion": "expect_column_values_to_be_between", "success": False, "column": "rows",
        "severity": "error"}  # fmt: skip
    assert "4711" not in json.dumps(abort) and "secret" not in json.dumps(abort)


def test_an_epoch_that_passes_its_gate_reports_its_assertions(receiver: LineageReceiver, tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "job", {"checkpointing:": GATE})
    job.land("a.csv", "k,v\n1,a\n2,b\n")
    run(job)
    assertions = receiver.wait_for(2)[1]["outputs"][0]["facets"]["dataQualityAssertions"]["assertions"]
    assert [(one["column"], one["success"], one["severity"]) for one in assertions] == [
        ("rows", True, "error"), ("k", True, "warn")]  # fmt: skip


def test_a_failed_run_fails_and_a_stopped_run_is_aborted(receiver: LineageReceiver, tmp_path: Path) -> None:
    """Tolerated or not, the run has failed; the record that could not be read is not quoted."""
    job = SparklessJob.create(tmp_path / "job", {"timeout: 10m": "timeout: 10m, tolerable_failures: 1"})
    broken = job.land("a.csv", "k,v\nforty-two,a\n")
    with pytest.raises(SubtaskDeclined):
        run(job)
    failed = receiver.wait_for(2)[1]
    assert (failed["eventType"], failed["run"]["facets"]["milepost_checkpoint"]["reason"]) == ("FAIL", "BAD_RECORD")
    assert "forty-two" not in json.dumps(failed)
    broken.write_text("k,v\n42,a\n")
    job.master.triggers.trigger(Session.cli())
    job.master.lifecycle.abort_running()
    stopped = receiver.wait_for(4)[3]
    assert (stopped["eventType"], stopped["run"]["facets"]["milepost_checkpoint"]["reason"]) == (
        "ABORT", "ABORTED_BY_USER")  # fmt: skip
    assert len({event["run"]["runId"] for event in receiver.events}) == 2, "the next try is another run"


def test_a_rollback_is_a_run_of_its_own_that_overwrites_its_tables(receiver: LineageReceiver, tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "job", {"retained: {last: 1}": "retained: {last: 9}"})
    for name in ("a.csv", "b.csv"):
        job.land(name)
        run(job)
    receiver.wait_for(4)
    roll_back(job.master, 1)
    start, complete = receiver.wait_for(6)[4:]
    assert types([start, complete]) == [("START", "small.rollback"), ("COMPLETE", "small.rollback")]
    assert start["run"]["runId"] == complete["run"]["runId"]
    (changed,) = complete["outputs"]
    assert (changed["name"], complete["inputs"]) == (table(tmp_path / "job"), [])
    assert changed["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"
    assert changed["facets"]["version"]["datasetVersion"].endswith("/1")
    roll_back(job.master, 0)
    emptied = receiver.wait_for(8)[7]["outputs"][0]["facets"]
    assert emptied["lifecycleStateChange"]["lifecycleStateChange"] == "TRUNCATE"


@pytest.mark.long
def test_a_backfill_shows_nothing_until_its_switch(receiver: LineageReceiver, tmp_path: Path) -> None:
    """The epochs of the fork read, and have no outputs; the switch is the run that overwrites the tables."""
    job = BackfillJob.create(tmp_path / "job", 3)
    receiver.wait_for(6)
    receiver.events.clear()
    job.fix()
    job.backfill(SparklessRunner())
    receiver.wait_for(4)
    names = types(receiver.events)
    assert names[-2:] == [("START", "small.backfill"), ("COMPLETE", "small.backfill")]
    replayed = receiver.events[:-2]
    assert {name for _, name in names[:-2]} == {"small"} and [one for one, _ in names[:-2]] == [
        "START", "COMPLETE"] * (len(replayed) // 2)  # fmt: skip
    assert all(event["inputs"] and not event["outputs"] for event in replayed)
    assert receiver.events[-1]["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"


def test_an_unresponsive_receiver_neither_fails_nor_delays_an_epoch(
    receiver: LineageReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is reported once, however often it happens."""
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    job = SparklessJob.create(tmp_path / "job")
    master = job.master
    for name in ("a.csv", "b.csv"):
        job.land(name)
        assert master.epochs.run(Session.cli(), SparklessRunner()).status == "completed"
    told = [one for one in caplog.records if one.name.endswith("observers.delivery")]
    assert len(told) == 1 and "OpenLineage may not receive" in told[0].getMessage()
    assert receiver.events == []


def test_nothing_is_sent_where_nothing_is_configured_or_it_is_switched_off(
    receiver: LineageReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = SparklessJob.create(tmp_path / "job")
    assert JobMaster(job.loaded(), nowhere).observers is None
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert job.master.observers is None
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    assert job.master.observers is not None
    monkeypatch.delenv("OPENLINEAGE_URL")
    assert job.master.observers is None, "no event was sent, so the client has set no variable"
    (tmp_path / "openlineage.yml").write_text(f"transport: {{type: http, url: '{receiver.url}'}}\n")
    job.land("a.csv")
    run(job)
    assert types(receiver.wait_for(2)) == [("START", "small"), ("COMPLETE", "small")], "by a file, as well"


def test_an_epoch_names_the_run_that_its_process_is_part_of(
    receiver: LineageReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = "0190a1b2-0000-7000-8000-000000000001"
    monkeypatch.setenv("OPENLINEAGE_PARENT_ID", f"prod/dags.nightly/{run_id}")
    job = SparklessJob.create(tmp_path / "job")
    job.land("a.csv")
    run(job)
    parent = receiver.wait_for(1)[0]["run"]["facets"]["parent"]
    assert (parent["run"]["runId"], parent["job"]["namespace"], parent["job"]["name"]) == (
        run_id,
        "prod",
        "dags.nightly",
    )


def test_a_sink_that_is_down_completes_its_run_when_a_later_session_publishes_it(
    receiver: LineageReceiver, tmp_path: Path
) -> None:
    """COMPLETE comes with the transition after which no sink is owed, no matter which session makes it."""
    job, session = SparklessJob.create(tmp_path / "job"), Session.cli()
    job.land("a.csv")
    triggered = job.master.triggers.trigger(session)
    job.master.epochs.run_epoch(session, triggered.checkpoint_id, SparklessRunner())
    job.master.epochs.complete(session, triggered.checkpoint_id)
    assert types(receiver.wait_for(1)) == [("START", "small")]
    job.master.triggers.trigger(Session.cli())
    assert types(receiver.wait_for(2)) == [("START", "small"), ("COMPLETE", "small")]
    assert len({event["run"]["runId"] for event in receiver.events}) == 1


def test_what_a_rollback_leaves_before_its_tables_had_it_is_aborted(receiver: LineageReceiver, tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "job", {"retained: {last: 1}": "retained: {last: 9}"})
    job.land("a.csv")
    run(job)
    job.land("b.csv")
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    job.master.epochs.run_epoch(session, triggered.checkpoint_id, SparklessRunner())
    job.master.epochs.complete(session, triggered.checkpoint_id)
    left = receiver.wait_for(3)[2]["run"]["runId"]
    roll_back(job.master, 1)
    receiver.wait_for(6)
    assert types(receiver.events[3:]) == [
        ("ABORT", "small"),
        ("START", "small.rollback"),
        ("COMPLETE", "small.rollback"),
    ]
    aborted = receiver.events[3]
    assert (aborted["run"]["runId"], aborted["outputs"]) == (left, [])


def test_a_cancel_aborts_the_run_that_is_open(receiver: LineageReceiver, tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "job")
    job.land("a.csv")
    job.master.triggers.trigger(Session.cli())
    job.master.savepoints.cancel()
    start, abort = receiver.wait_for(2)
    assert (abort["eventType"], abort["run"]["runId"]) == ("ABORT", start["run"]["runId"])


def test_a_realignment_is_a_run_of_its_own(receiver: LineageReceiver, tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path / "job")
    job.land("a.csv")
    run(job)
    receiver.wait_for(2)
    for head in (tmp_path / "job" / "lake" / "table" / HEADS).iterdir():  # as a failover does
        head.unlink()
    job.master.realignments.run(Session.cli(), job.master.realignments.plan("table"))
    receiver.wait_for(4)
    assert types(receiver.events[2:]) == [("START", "small.realign"), ("COMPLETE", "small.realign")]
    assert receiver.events[3]["outputs"][0]["facets"]["lifecycleStateChange"]["lifecycleStateChange"] == "OVERWRITE"


@pytest.mark.deep
def test_nothing_of_it_is_imported_where_nothing_is_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = SparklessJob.create(tmp_path / "job")
    job.land("a.csv")
    monkeypatch.delenv("OPENLINEAGE_URL")
    code = (
        "import sys, threading\n"
        "from milepost.jobmaster import JobMaster, Session\n"
        "from milepost.jobspec.load.load import load_job\n"
        "JobMaster(load_job(sys.argv[1])).triggers.trigger(Session.cli())\n"
        "print(sorted(name for name in sys.modules if 'openlineage' in name), "
        "[one.name for one in threading.enumerate() if 'OpenLineage' in one.name])"
    )
    path = str(job.folder / "config" / "small.yaml")
    ran = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True,
                         env={**os.environ, "PYTHONPATH": str(REPOSITORY / "pipeline")})  # fmt: skip
    known = "['milepost.openlineage', 'milepost.openlineage.settings']"
    assert ran.stdout.strip() == f"{known} []"


CATALOG = "catalog: {type: sql, uri: 'sqlite:///catalog.db'}, table: shop.events"


def delta_versions(folder: Path) -> list[str]:
    return [str(DeltaTable(folder / "lake" / "table").version())]


def iceberg_versions(folder: Path) -> list[str]:
    uri = f"sqlite:///{folder}/config/catalog.db"
    with SqlCatalog("milepost", uri=uri, warehouse=f"file://{folder}/lake") as catalog:
        return [str(one.snapshot_id) for one in catalog.load_table("shop.events").snapshots()]


@pytest.mark.long
@pytest.mark.parametrize(
    ("format_", "versions"),
    [("format: delta, ", delta_versions), (f"format: iceberg, {CATALOG}, ", iceberg_versions)],
    ids=["delta", "iceberg"],
)
def test_a_table_that_others_read_has_the_version_that_they_know(
    format_: str, versions: Callable[[Path], list[str]], receiver: LineageReceiver, tmp_path: Path
) -> None:
    """Of an epoch, and of the rollback behind it: as an engine that reads the table names what it sees."""
    edit = {"format: parquet, ": format_, "retained: {last: 1}": "retained: {last: 9}"}
    job = SparklessJob.create(tmp_path / "job", edit)
    seen = []
    for act in (run, run, lambda job: roll_back(job.master, 1)):
        job.land(f"{len(seen)}.csv", f"k,v\n{len(seen)},a\n")
        act(job)
        complete = receiver.wait_for(2 * len(seen) + 2)[-1]
        seen.append(complete["outputs"][0]["facets"]["version"]["datasetVersion"])
        assert complete["eventType"] == "COMPLETE" and seen[-1] == versions(tmp_path / "job")[-1]
    assert len(set(seen)) == 3
