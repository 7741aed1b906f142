"""Lookups of real epochs without Spark: what a dimension's copy is, when it is made anew, and what is refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.epoch.metadata import CheckpointMetadata
from milepost.errors import InvalidRequest, StateCorrupt, SubtaskDeclined
from milepost.jobmaster import CheckpointReport, JobMaster, NothingToDo, Session
from milepost.jobmaster.retention.garbage_lists import listed_garbage
from milepost.spark.task.row_steps.lookup_plan import read_copy
from milepost.storage.object_handles import handle_of
from milepost_testkit import wording
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SPEC = """\
name: small
storage: ../store
sources:
  rows: {format: csv, path: ../landing/*.csv, schema: {k: int32, v: string}, settle: 0s}
  names: {format: csv, path: ../names/*.csv, schema: {id: int64, name: string, since: int64}, settle: 0s, static: true}
operators:
  - {uid: named, kind: lookup, inputs: [rows, names], key: [{k: id}], how: left}
  - {uid: totals, kind: aggregate, inputs: [named], key: [name], aggregates: {n: count(*)}}
sinks:
  - {name: named, input: named, format: parquet, path: ../lake/named, mode: append}
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
spark: {parallelism: 2}
checkpointing: {retained: {last: 2}, tolerable_failures: 9}
"""


class Job:
    """A job with a lookup whose sources a test writes."""

    def __init__(self, folder: Path, spec: str = SPEC) -> None:
        self.job, self.runner = SparklessJob.create(folder), SparklessRunner()
        self.spec = folder / "config" / "small.yaml"
        self.spec.write_text(spec)
        self.names = folder / "names"
        self.names.mkdir()

    @property
    def master(self) -> JobMaster:
        return self.job.master

    def name(self, text: str, file: str = "a.csv") -> None:
        (self.names / file).write_text("id,name,since\n" + text)

    def run(self, rows: str | None = None) -> CheckpointReport:
        if rows is not None:
            landed = len(list((self.job.folder / "landing").iterdir()))
            self.job.land(f"{landed:03}.csv", "k,v\n" + rows)
        report = self.master.epochs.run(Session.cli(), self.runner)
        assert isinstance(report, CheckpointReport), report
        return report

    def metadata(self) -> CheckpointMetadata:
        context = self.job.context
        state = context.head().state
        checkpoint = state.checkpoint(state.timeline().head)
        assert checkpoint is not None
        return context.stored_metadata(checkpoint)

    def table(self, sink: str) -> list[dict[str, Any]]:
        return self.master.reports.read(sink).to_pylist()


def test_rows_get_the_columns_of_their_key_and_those_without_one_get_nulls(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.name("1,one,10\n2,two,20\n,nobody,0\n")
    job.run("1,a\n2,b\n3,c\n,d\n1,e\n")
    rows = {(row["v"], row["k"], row["name"], row["since"]) for row in job.table("named")}
    assert rows == {
        ("a", 1, "one", 10), ("b", 2, "two", 20), ("c", 3, None, None), ("d", None, None, None), ("e", 1, "one", 10)
    }  # fmt: skip
    assert {row["name"]: row["n"] for row in job.table("totals")} == {"one": 2, "two": 1, None: 2}


@pytest.mark.deep
def test_the_copy_is_made_once_and_referred_to_until_the_static_source_changes(tmp_path: Path) -> None:
    """And again, once its checkpoint is subsumed: what still refers to a copy keeps it."""
    job = Job(tmp_path)
    job.name("1,one,10\n")
    job.run("1,a\n")
    first = job.metadata().dimensions["names"]
    assert (first.rows, len(first.objects)) == (1, 1) and first.copy in job.metadata().handles()
    for _ in range(3):
        job.run("1,b\n")
        assert job.metadata().dimensions["names"] == first
    job.name("2,two,20\n", "b.csv")
    job.run("1,c\n2,c\n")
    second = job.metadata().dimensions["names"]
    assert second.copy != first.copy and (second.rows, len(second.objects)) == (2, 2)
    assert [row["name"] for row in job.table("named")] == ["one"] * 5 + ["two"]
    assert (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()
    for _ in range(3):
        job.run("1,d\n")
    assert job.master.reports.fsck().exit_code == 0
    context = job.job.context
    listed = listed_garbage(context.store, context.head().state).keys
    assert first.copy.key in listed and second.copy.key not in listed
    (tmp_path / "store" / "small" / second.copy.key).unlink()
    with pytest.raises(StateCorrupt, match="dimensions/names-"):
        job.master.reports.verify(deep=True)


@pytest.mark.deep
def test_a_change_of_how_objects_are_read_makes_a_new_copy(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.name("1,one,10\n")
    job.run("1,a\n")
    before = job.metadata().dimensions["names"]
    job.spec.write_text(SPEC.replace("since: int64", "since: int32"))
    job.spec.write_text(
        job.spec.read_text().replace("../lake/named", "../lake/named2").replace("named, input", "n2, input")
    )
    job.run("1,b\n")
    after = job.metadata().dimensions["names"]
    assert before.objects == after.objects and before.read_as != after.read_as and before.copy != after.copy


@pytest.mark.deep
@pytest.mark.parametrize(("how", "expected"), [("inner", ["one", "uno"]), ("left", ["one", "uno", None])])
def test_inner_leaves_out_what_finds_nothing(how: str, expected: list[str | None], tmp_path: Path) -> None:
    job = Job(tmp_path, SPEC.replace("how: left", f"how: {how}"))
    job.name("1,one,10\n2,uno,1\n")
    job.run("1,a\n2,b\n3,c\n")
    assert sorted((row["name"] for row in job.table("named")), key=str) == sorted(expected, key=str)


def test_several_rows_of_a_key_fail_the_epoch_and_name_it(tmp_path: Path) -> None:
    """Before anything is run; the input is read by the next epoch."""
    job = Job(tmp_path)
    job.name("1,one,10\n2,two,1\n1,uno,20\n")
    with wording.raises(SubtaskDeclined):
        job.run("1,a\n")
    assert job.runner.plans == []
    job.name("1,uno,20\n")
    job.run()
    assert [row["name"] for row in job.table("named")] == ["uno"]


@pytest.mark.deep
@pytest.mark.parametrize(
    ("order", "name"),
    [("since", "one"), ("{since: desc}", "uno"), ("name", "ichi"), ("{name: desc}", "uno"), ("id", "ichi")],
)
def test_order_by_says_which_row_of_a_key_is_found(order: str, name: str, tmp_path: Path) -> None:
    """What it does not tell apart is in the order of the whole row, whatever the order of the objects."""
    job = Job(tmp_path, SPEC.replace("how: left", f"order_by: [{order}]"))
    job.name("1,uno,20\n1,one,10\n")
    job.name("1,ichi,15\n", "b.csv")
    job.run("1,a\n")
    assert [row["name"] for row in job.table("named")] == [name]


def test_a_lookup_that_changes_over_a_copy_that_is_there_is_held_to_one_row_of_a_key_as_well(tmp_path: Path) -> None:
    ordered = SPEC.replace("how: left", "order_by: [since]")
    job = Job(tmp_path, ordered)
    job.name("1,one,10\n1,uno,20\n")
    job.run("1,a\n")
    job.spec.write_text(SPEC)
    with wording.raises(SubtaskDeclined):
        job.run("1,b\n")
    job.spec.write_text(ordered)
    job.run()
    assert [row["v"] for row in job.table("named")] == ["a", "b"]


def test_what_could_not_be_looked_up_in_is_refused_and_nothing_is_lost(tmp_path: Path) -> None:
    job = Job(tmp_path, SPEC.replace("static: true", "static: true, dimension_limit: 1KB"))
    with wording.raises(InvalidRequest):
        job.run("1,a\n")
    job.name("")
    with wording.raises(InvalidRequest):
        job.run()
    job.name("".join(f"{key},a name,1\n" for key in range(100)))
    with wording.raises(InvalidRequest) as large:
        job.run()
    assert "dimension_limit" in large.value.hint
    job.name("1,one,many\n")
    with wording.raises(SubtaskDeclined) as bad:
        job.run()
    assert bad.value.details["reason"] == "BAD_RECORD"
    (job.names / "a.csv").write_text("id,since\n1,10\n")
    with pytest.raises(SubtaskDeclined, match="name"):
        job.run()
    job.name("1,one,10\n")
    job.run()
    assert [row["name"] for row in job.table("named")] == ["one"]


def test_an_object_that_changes_before_it_is_read_fails_the_epoch_and_the_next_one_reads_the_new_one(
    tmp_path: Path,
) -> None:
    job = Job(tmp_path)
    job.name("1,one,10\n")
    job.job.land("a.csv", "k,v\n1,a\n")
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    assert not isinstance(triggered, NothingToDo)
    job.name("1,uno,10\n2,two,20\n")
    with wording.raises(SubtaskDeclined) as changed:
        job.master.epochs.run_epoch(session, triggered.checkpoint_id, job.runner)
    assert changed.value.details["reason"] == "SOURCE_OBJECT_CHANGED"
    job.master.epochs.abort(session, triggered.checkpoint_id, "SOURCE_OBJECT_CHANGED", "it changed")
    job.run()
    assert [row["name"] for row in job.table("named")] == ["uno"]


@pytest.mark.deep
def test_a_second_try_looks_up_in_the_versions_that_the_trigger_pinned(tmp_path: Path) -> None:
    """What has landed since is for the next epoch."""
    job = Job(tmp_path)
    job.name("1,one,10\n")
    job.job.land("a.csv", "k,v\n1,a\n2,b\n")
    session = Session.cli()
    triggered = job.master.triggers.trigger(session)
    assert not isinstance(triggered, NothingToDo)
    job.name("2,two,20\n", "b.csv")
    report = job.master.epochs.run_epoch(session, triggered.checkpoint_id, job.runner)
    again = job.master.epochs.run_epoch(session, triggered.checkpoint_id, SparklessRunner())
    one, other = report.metadata.dimensions["names"], again.metadata.dimensions["names"]
    assert one.copy.sha256 == other.copy.sha256 and one.copy.key != other.copy.key, "each below its own token"
    job.master.epochs.complete(session, triggered.checkpoint_id, again)
    for sink in ("named", "totals"):
        job.master.epochs.notify_complete(session, triggered.checkpoint_id, sink)
    job.run("2,c\n")
    assert [(row["v"], row["name"]) for row in job.table("named")] == [("a", "one"), ("b", None), ("c", "two")]


def test_an_object_that_may_still_be_written_is_waited_for(tmp_path: Path) -> None:
    job = Job(tmp_path, SPEC.replace("settle: 0s, static", "settle: 1h, static"))
    job.name("1,one,10\n")
    job.job.land("a.csv", "k,v\n1,a\n")
    waits = job.master.epochs.run(Session.cli(), job.runner)
    assert isinstance(waits, NothingToDo) and waits.settles_in_ms
    wording.matches("input", waits.message, replace={r"\b3,?[56]\d\d\b": "{time}"})
    os.utime(job.names / "a.csv", (0, 0))
    job.run()
    assert len(job.table("named")) == 1


def test_a_changed_static_source_alone_starts_no_epoch(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.name("1,one,10\n")
    job.run("1,a\n")
    job.name("1,uno,10\n")
    assert isinstance(job.master.epochs.run(Session.cli(), job.runner), NothingToDo)
    assert job.master.reports.status().sources is not None and "names" not in job.master.reports.status().sources


@pytest.mark.deep
def test_a_backfill_looks_up_in_what_each_epoch_had_looked_up_in(tmp_path: Path) -> None:
    job = Job(tmp_path, SPEC.replace("last: 2", "last: 20"))
    for name in ("one", "uno", "ichi"):
        job.name(f"1,{name},10\n")
        job.run("1,a\n")
    job.name("1,odin,10\n")
    back_fill(job.master, job.runner, from_checkpoint=0)
    assert [row["name"] for row in job.table("named")] == ["one", "uno", "ichi"]
    metadata = job.metadata()
    copy = metadata.dimensions["names"].copy
    assert copy.key.startswith(f"chk-{metadata.checkpoint_id:020}/"), "not that of the live timeline, which may go"
    assert (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()
    job.run("1,b\n")
    assert [row["name"] for row in job.table("named")] == ["one", "uno", "ichi", "odin"]


@pytest.mark.deep
def test_a_backfill_past_subsumed_checkpoints_takes_the_next_copy_that_is_retained(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for name in ("one", "uno", "ichi", "odin"):
        job.name(f"1,{name},10\n")
        job.run("1,a\n")
    back_fill(job.master, job.runner, from_checkpoint=0)
    assert [row["name"] for row in job.table("named")] == ["ichi", "ichi", "ichi", "odin"]


def test_a_backfill_of_a_new_lookup_reads_the_source_as_it_is_now(tmp_path: Path) -> None:
    plain = SPEC.replace(
        "kind: lookup, inputs: [rows, names], key: [{k: id}], how: left", "kind: deduplicate, inputs: [rows], key: [v]"
    )
    plain = "\n".join(line for line in plain.splitlines() if "  names:" not in line and "totals" not in line)
    job = Job(tmp_path, plain)
    job.run("1,a\n")
    job.spec.write_text(
        SPEC.replace("uid: named", "uid: now_named")
        .replace("[named]", "[now_named]")
        .replace("input: named", "input: now_named")
        .replace("lake/named", "lake/now")
        .replace("name: named", "name: now")
    )
    job.name("1,one,10\n")
    back_fill(job.master, job.runner, from_checkpoint=0, allow_non_restored_state=True)
    assert [row["name"] for row in job.table("now")] == ["one"]


def test_a_savepoint_and_an_export_hold_the_copy_and_another_job_begins_with_it(tmp_path: Path) -> None:
    job = Job(tmp_path / "job")
    job.name("1,one,10\n")
    job.run("1,a\n")
    copy = job.metadata().dimensions["names"].copy
    made = job.master.savepoints.create("first")
    assert (Path(made.location.removeprefix("file://")) / copy.key).is_file()
    other = Job(tmp_path / "other")
    other.name("1,uno,10\n")
    other.master.restores.start(made.location)
    begun = other.metadata().dimensions["names"]
    assert (
        begun.copy.sha256 == copy.sha256
        and (verified := other.master.reports.verify(deep=True)).unasked == verified.discarded == ()
    )
    other.job.land("000.csv", "k,v\n1,a\n").rename(tmp_path / "other" / "landing" / "next.csv")
    other.run()
    assert {row["name"] for row in other.table("named")} == {"one", "uno"}


@pytest.mark.deep
def test_a_rollback_goes_back_to_the_copy_of_its_checkpoint(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.name("1,one,10\n")
    job.run("1,a\n")
    first = job.metadata().dimensions["names"]
    job.name("1,uno,10\n")
    job.run("1,b\n")
    roll_back(job.master, 1)
    assert job.metadata().dimensions["names"] == first
    job.run()
    assert [row["name"] for row in job.table("named")] == ["one", "uno"]


def test_a_damaged_copy_is_reported_and_nothing_is_published(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.name("1,one,10\n")
    job.run("1,a\n")
    path = tmp_path / "store" / "small" / job.metadata().dimensions["names"].copy.key
    body = path.read_bytes()
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    with wording.raises(StateCorrupt):
        job.run("1,b\n")
    path.write_bytes(body)
    job.run()
    assert len(job.table("named")) == 2


def test_a_copy_that_is_no_arrow_file_is_corrupt(tmp_path: Path) -> None:
    job = Job(tmp_path)
    job.name("1,one,10\n")
    job.run("1,a\n")
    store, snapshot = job.job.context.store, job.metadata().dimensions["names"]
    store.put("chk-00000000000000000009/t00000000000000000001/dimensions/x", b"no file")
    handle = handle_of("chk-00000000000000000009/t00000000000000000001/dimensions/x", b"no file")
    with wording.raises(StateCorrupt):
        read_copy(store, replace(snapshot, copy=handle))


def test_columns_without_a_reader_are_not_looked_up_and_return_with_a_reader(tmp_path: Path) -> None:
    """The node keeps a file of each; the copy in the checkpoint has all columns, and is the same."""
    without = "".join(line for line in SPEC.splitlines(keepends=True) if "input: named" not in line)
    job = Job(tmp_path, without)
    job.runner.node = str(tmp_path / "node")
    job.name("1,one,10\n2,two,20\n")
    job.run("1,a\n2,b\n3,c\n")
    (file,) = (tmp_path / "node").glob("**/lookup-*/*.arrow")
    with pa.memory_map(str(file)) as mapped:
        assert set(pa.ipc.open_file(mapped).schema.names) == {"key_0", "value_0", "hash", "drift"}
    first = job.metadata().dimensions["names"]
    job.spec.write_text(SPEC)
    job.run("1,d\n2,e\n")
    assert job.metadata().dimensions["names"] == first
    assert {(row["v"], row["name"], row["since"]) for row in job.table("named")} == {("d", "one", 10), ("e", "two", 20)}
    assert {row["name"]: row["n"] for row in job.table("totals")} == {"one": 2, "two": 2, None: 1}


def test_lookups_follow_each_other_and_stateful_operators_within_a_level(tmp_path: Path) -> None:
    """Rows of a lookup are looked up again, and what an aggregate-like operator gives is looked up at its own level."""
    lookup = "kind: lookup, inputs: [{}, names], key: [{{{}: id}}], columns: {{{}: right.name, {}: right.since}}"
    more = [
        f"{{uid: again, {lookup.format('named', 'since', 'next', 'after')}}}",
        "{uid: once, kind: deduplicate, inputs: [named], key: [v]}",
        f"{{uid: behind, {lookup.format('once', 'k', 'other', 'later')}}}",
    ]
    spec = SPEC.replace("  - {uid: totals", "".join(f"  - {one}\n" for one in more) + "  - {uid: totals")
    sink = "  - {{name: {0}, input: {0}, format: parquet, path: ../lake/{0}, mode: append}}\n"
    spec = spec.replace("sinks:\n", f"sinks:\n{sink.format('again')}{sink.format('behind')}")
    job = Job(tmp_path, spec)
    job.name("1,one,2\n2,two,3\n")
    job.run("1,a\n2,b\n3,c\n1,a\n")
    assert [(row["name"], row["next"], row["after"]) for row in job.table("again")] == [("one", "two", 3)] * 2
    assert {(row["v"], row["name"], row["other"]) for row in job.table("behind")} == {
        ("a", "one", "one"),
        ("b", "two", "two"),
    }
    assert job.job.loaded().graph().levels == 1
