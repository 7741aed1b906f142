"""The inputs that an epoch's tasks get from its plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.epoch.plan import EpochPlan
from milepost.jobmaster import JobMaster, Session
from milepost.spark.task.planning.levels import plan_levels
from milepost.spark.wire.exchange import OwnStamp, Stamp
from milepost.spark.wire.level_plan import SourceClock, UpstreamClock
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner, no_sql

WINDOW = {
    "schema: {k: int64, v: string}": 'schema: {k: int64, at: "timestamp[us, UTC]"}\n    event_time: at',
    "kind: aggregate,": "kind: window, window: {tumbling: 1h},",
    "mode: upsert": "mode: append",
}


UNION = """\
name: job
storage: ../store
sources:
  rows: {format: csv, path: ../landing/*.csv, settle: 0s, schema: {k: int64, at: "timestamp[us, UTC]"}, event_time: at}
operators:
  - {uid: once, kind: deduplicate, inputs: [rows], key: [k]}
  - {uid: ends, kind: window, inputs: [once], key: [k], window: {tumbling: 1h}, aggregates: {n: count(*)}}
  - {uid: both, kind: sql, inputs: [rows, once], sql: "SELECT k, at FROM rows UNION ALL SELECT k, at FROM once"}
  - {uid: more, kind: sql, inputs: [both], sql: "SELECT k, at FROM both"}
  - {uid: late, kind: window, inputs: [more], key: [k], window: {tumbling: 1h}, aggregates: {n: count(*)}}
sinks:
  - {name: both, input: both, format: parquet, path: ../lake/both, mode: append}
  - {name: late, input: late, format: parquet, path: ../lake/late, mode: append}
  - {name: ends, input: ends, format: parquet, path: ../lake/ends, mode: append}
"""


ROW_WISE = """\
name: job
storage: ../store
sources:
  rows: {format: csv, path: ../landing/*.csv, settle: 0s, schema: {k: int64, v: int64}}
operators:
  - {uid: names, kind: sql, inputs: [rows], sql: "SELECT k AS id, v FROM rows"}
  - {uid: more, kind: sql, inputs: [names], sql: "SELECT id, v + 1 AS v FROM names"}
  - {uid: again, kind: sql, inputs: [more], sql: "SELECT v AS n, id FROM more"}
  - {uid: third, kind: sql, inputs: [again], sql: "SELECT id, n FROM again WHERE n > 1"}
  - {uid: sums, kind: aggregate, inputs: [rows], key: [k], aggregates: {n: count(*)}}
  - {uid: shown, kind: sql, inputs: [sums], sql: "SELECT k, n AS rows FROM sums"}
sinks:
  - {name: names, input: names, format: parquet, path: ../lake/names, mode: append}
  - {name: third, input: third, format: parquet, path: ../lake/third, mode: append}
  - {name: shown, input: shown, format: parquet, path: ../lake/shown, mode: upsert}
"""


TWO_SOURCES = """\
name: job
storage: ../store
sources:
  rows: {format: csv, path: ../landing/*.csv, settle: 0s, schema: {k: int64, at: "timestamp[us, UTC]"}, event_time: at}
  new: {format: csv, path: ../landed/*.csv, settle: 0s, schema: {k: int64, at: "timestamp[us, UTC]"}, event_time: at}
operators:
  - {uid: both, kind: sql, inputs: [rows, new], sql: "SELECT k, at FROM rows UNION ALL SELECT k, at FROM new"}
  - {uid: once, kind: deduplicate, inputs: [both], key: [k]}
  - {uid: ends, kind: window, inputs: [once], key: [k], window: {tumbling: 1h}, aggregates: {n: count(*)}}
sinks:
  - {name: ends, input: ends, format: parquet, path: ../lake/ends, mode: append}
"""


def first_plan(folder: Path, spec: str, rows: str) -> EpochPlan:
    """Return the plan of the first epoch of a job with SQL, over one file of rows."""
    job, runner = SparklessJob.create(folder), SparklessRunner()
    (folder / "config" / "small.yaml").write_text(spec)
    job.land("a.csv", rows)
    with pytest.raises(AssertionError, match="SQL needs Spark"):
        JobMaster(job.loaded()).epochs.run(Session.cli(), runner)
    (plan,) = runner.plans
    return plan


def test_a_select_of_columns_needs_no_spark_unless_its_input_is_sql_of_spark(tmp_path: Path) -> None:
    """One projection computes `more`, `again` and `third`. It reads `names`; the rows of `rows` bypass it."""
    plan = first_plan(tmp_path, ROW_WISE, "k,v\n1,2\n")
    columns = {"names": "id v", "more": "id v", "again": "n id", "third": "id n", "shown": "k rows"}
    schemas = {uid: pa.schema([(name, pa.int64()) for name in names.split()]) for uid, names in columns.items()}
    first, second = plan_levels(plan, 2, lambda output, inputs: schemas[output.name]).levels
    assert [(one.output, one.input) for one in first.row_wise.python_stage.plans] == [("names", "rows")]
    (step,) = first.row_wise.steps
    assert [one.uid for one in step.expressions] == ["more", "again", "third"] and step.python_stage.plans == ()
    assert ([*step.input_schemas], [*step.unread_schemas], [*step.output_schemas]) == (
        ["names"],
        ["rows"],
        ["names", "third"],
    )
    assert second.row_wise.sql is None and [one.output for one in second.row_wise.python_stage.plans] == ["shown"]


def test_a_union_is_made_at_each_level_of_its_inputs_and_sent_on_from_there(tmp_path: Path) -> None:
    """A column of the wide frame for each path; rows of a source are stamped with the least watermark of all inputs."""
    plan = first_plan(tmp_path, UNION, "k,at\n1,2026-01-01T01:10:00Z\n")
    plan = replace(plan, watermarks_us={"rows": 9}, firing={"once": (7, 8), "late": (3, 4)})
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    first, second, third = plan_levels(plan, 2, lambda node, inputs: schema).levels
    assert first.row_wise.sql is not None and second.row_wise.sql is not None and third.row_wise.sql is None
    columns = [("both", "n_both"), ("more", "n_more")]
    assert [(one.uid, one.column) for one in first.row_wise.sql.expressions] == columns
    assert [(one.uid, one.column) for one in second.row_wise.sql.expressions] == columns
    assert (
        "`n_rows`" in first.row_wise.sql.expressions[0].text and "`n_once`" in second.row_wise.sql.expressions[0].text
    )
    assert [one.union_schema for one in first.row_wise.sql.expressions] == [schema, None]
    stamps = {(level, edge.producer, edge.operator): edge.stamp for level in (0, 1) for edge in
              (first, second)[level].output.edges}  # fmt: skip
    assert stamps == {
        (0, "rows", "once"): Stamp(9),
        (0, "more", "late"): Stamp(7),
        (1, "once", "ends"): OwnStamp(),
        (1, "more", "late"): OwnStamp(upper_bound=Stamp(7), fired_us=4),
    }
    assert (first.output.sinks, first.output.stagers_before) == ({"both": ("both",)}, {})
    assert (second.output.sinks, second.output.stagers_before) == ({"both": ("both",)}, {"both": 1})
    assert third.stateful is not None
    assert {one.operator.uid: one.clocks for one in third.stateful.operators} == {
        "ends": (UpstreamClock("once", 0, 7),),
        "late": (SourceClock("rows", 9, 0, behind=None), UpstreamClock("once", 0, 7)),
    }


def test_a_source_without_input_in_a_replayed_epoch_is_not_idle(tmp_path: Path) -> None:
    """It has not been read yet, so operators downstream of both sources wait, although the other source is idle."""
    plan = first_plan(tmp_path, TWO_SOURCES, "k,at\n1,2026-01-01T01:10:00Z\n")
    (rows,) = (item for item in plan.inputs if item.name == "rows")
    idle = replace(rows, idle=True, idle_before=True)
    schema = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    for inputs, are_idle in (((idle,), False), ((idle, replace(idle, name="new")), True)):
        levels = plan_levels(replace(plan, inputs=inputs), 2, lambda node, read: schema).levels
        assert levels[2].stateful is not None
        (clock,) = levels[2].stateful.operators[0].clocks
        assert isinstance(clock, UpstreamClock) and (clock.idle_before, clock.idle) == (are_idle, are_idle)


def test_the_rows_of_a_source_are_stamped_with_its_watermark_or_what_has_fired_if_that_is_later(tmp_path: Path) -> None:
    """DESIGN 4.3: by the watermark at the start of the epoch, and never on time for a window that was emitted."""
    job, runner = SparklessJob.create(tmp_path, WINDOW), SparklessRunner()
    job.land("a.csv", "k,at\n1,2026-01-01T01:10:00Z\n")
    job.master.epochs.run(Session.cli(), runner)
    (plan,) = runner.plans
    for watermark_us, firing, expected in ((None, (), None), (7, (3, None), 7), (7, (3, 9), 9)):
        changed = replace(plan, watermarks_us={"rows": watermark_us}, firing={"latest": firing})
        (edge,) = plan_levels(changed, 2, no_sql).levels[0].output.edges
        assert edge.stamp == Stamp(expected)
