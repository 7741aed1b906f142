"""From an epoch's plan to what its tasks are told."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from milepost.jobmaster.jobmaster import Session
from milepost.spark.task.levels import plan_levels
from milepost.spark.wire.exchange import Stamp
from tests.harness.jobs.sparkless_job import SparklessJob
from tests.harness.jobs.sparkless_runner import SparklessRunner, no_sql

WINDOW = {
    "schema: {k: int64, v: string}": 'schema: {k: int64, at: "timestamp[us, UTC]"}\n    event_time: at',
    "kind: aggregate,": "kind: window, window: {tumbling: 1h},",
    "mode: upsert": "mode: append",
}


def test_the_rows_of_a_source_are_stamped_with_its_watermark_or_what_has_fired_if_that_is_later(tmp_path: Path) -> None:
    """DESIGN 4.3: by the watermark at the start of the epoch, and never on time for a window that was emitted."""
    job, runner = SparklessJob.create(tmp_path, WINDOW), SparklessRunner()
    job.land("a.csv", "k,at\n1,2026-01-01T01:10:00Z\n")
    job.master.run(Session.cli(), runner)
    (plan,) = runner.plans
    for watermark_us, firing, expected in ((None, (), None), (7, (3, None), 7), (7, (3, 9), 9)):
        changed = replace(plan, watermarks_us={"rows": watermark_us}, firing={"latest": firing})
        (edge,) = plan_levels(changed, 2, no_sql).levels[0].output.edges
        assert edge.stamp == Stamp(expected)
