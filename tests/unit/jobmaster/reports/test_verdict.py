"""A job's tables are judged fresh, complete and right by the spec's bounds, or by what is usual for the job."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from milepost.errors import CheckpointError, QualityGateFailed
from milepost.jobmaster import Condition, Session, Since
from milepost.jobmaster.figures.row import day_of
from milepost.jobmaster.reports.health.past_epochs import past_epochs
from milepost.jobmaster.reports.health.verdict import (
    EpochCounts,
    Grade,
    judge_completeness,
    judge_freshness,
)
from milepost.jobspec.job import HealthSpec
from milepost.views import since_text
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.jobs.stored_figures import epoch_rows, store_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
ANY = HealthSpec()


def epoch(
    at_ms: int,
    rows: int = 1000,
    late: int = 0,
    dropped: int = 0,
    bad: int = 0,
    lag_ms: int | None = 0,
    judged: int | None = None,
    rejected: int | None = None,
) -> EpochCounts:
    watermark_us = None if lag_ms is None else (at_ms - lag_ms) * 1000
    return EpochCounts(at_ms // MINUTE_MS, at_ms, rows, late, dropped, bad, watermark_us, "passed", judged, rejected)


def minutes(*epochs: dict[str, int]) -> list[EpochCounts]:
    return [epoch(number * MINUTE_MS, **counts) for number, counts in enumerate(epochs, 1)]


@pytest.mark.parametrize(
    ("epochs", "grade", "text"),
    [
        ([{}] * 5, "good", "1,000 rows in the newest epoch, none late or unreadable"),
        ([{"late": 1}] * 5, "good", "1 of 1,000 rows late, 0 dropped, in the newest epoch"),
        ([{}, {"rows": 58_500, "late": 56_009, "dropped": 120}], "bad",
         "56,009 of 58,500 rows late (usually 0.0%), 120 dropped (usually 0.0%), in the newest epoch"),
        ([{"late": 20}] * 20 + [{"late": 50}], "good", "50 of 1,000 rows late, 0 dropped, in the newest epoch"),
        ([{"late": 20}] * 20 + [{"late": 61}], "warning",
         "61 of 1,000 rows late (usually 2.0%), 0 dropped, in the newest epoch"),
        ([{"late": 960}] * 50, "bad", "960 of 1,000 rows late (usually 96.0%), 0 dropped, in the newest epoch"),
        ([{"late": 110}] * 50, "warning",
         "110 of 1,000 rows late (usually 11.0%), 0 dropped, in the newest epoch"),
        ([{}] * 5 + [{"late": 500}] + [{}] * 3, "warning",
         "500 of 9,000 rows late (usually 0.0%), 0 dropped, in the last 9 epochs"),
        ([{}] * 5 + [{"late": 500}] + [{}] * 60, "good", "1,000 rows in the newest epoch, none late or unreadable"),
        ([{"rows": 20, "late": 1}] * 3, "good", "1 of 20 rows late, 0 dropped, in the newest epoch"),
        ([{"rows": 9, "late": 9}], "warning", "9 of 9 rows late (usually 0.0%), 0 dropped, in the newest epoch"),
        ([{"rows": 10, "late": 10}], "bad", "10 of 10 rows late (usually 0.0%), 0 dropped, in the newest epoch"),
        ([{}] * 5 + [{"bad": 300}], "warning",
         "0 of 1,000 rows late, 300 unreadable (usually 0.0%), in the newest epoch"),
        ([{}, {"late": 500}, {"rows": 0}], "warning",
         "500 of 1,000 rows late (usually 0.0%), 0 dropped, in the newest epoch"),
        ([{"judged": 40, "rejected": 0}] * 3, "good",
         "1,000 rows in the newest epoch, none late, unreadable or rejected"),
        ([{"judged": 400, "rejected": 20}] * 20 + [{"judged": 400, "rejected": 39}], "good",
         "0 of 1,000 rows late, 39 of 400 rejected by rules, in the newest epoch"),
        ([{"judged": 40, "rejected": 0}] * 20 + [{"judged": 40, "rejected": 30}], "bad",
         "0 of 1,000 rows late, 30 of 40 rejected by rules (usually 0.0%), in the newest epoch"),
        ([{"judged": 40, "rejected": 0}] * 20 + [{"judged": 40, "rejected": 11}], "warning",
         "0 of 1,000 rows late, 11 of 40 rejected by rules (usually 0.0%), in the newest epoch"),
        ([], "unknown", "no epoch has read rows"),
    ],
)  # fmt: skip
def test_completeness_compares_the_newest_epoch_and_the_last_hour_with_the_usual_share(
    epochs: list[dict[str, int]], grade: str, text: str
) -> None:
    finding = judge_completeness(minutes(*epochs), ANY, HOUR_MS)
    assert (finding.grade.value, finding.text) == (grade, text)


@pytest.mark.parametrize(
    ("bounds", "grade"),
    [
        ({"max_late_ratio": 0.5}, Grade.GOOD),
        ({"max_late_ratio": 0.29}, Grade.WARNING),
        ({"max_late_ratio": 0.5, "max_dropped_ratio": 0.0}, Grade.WARNING),
        ({"max_late_ratio": 0.5, "max_bad_ratio": 0.0}, Grade.WARNING),
        ({"max_late_ratio": 0.5, "max_rejected_ratio": 0.29}, Grade.WARNING),
        ({"max_late_ratio": 0.5, "max_rejected_ratio": 0.3}, Grade.GOOD),
    ],
)
def test_a_bound_in_the_spec_replaces_the_usual_one(bounds: dict[str, float], grade: Grade) -> None:
    counts = {"late": 300, "dropped": 30 if "max_dropped_ratio" in bounds else 0}
    counts["bad"] = 30 if "max_bad_ratio" in bounds else 0
    counts |= {"judged": 100, "rejected": 30} if "max_rejected_ratio" in bounds else {}
    assert judge_completeness(minutes({}, counts), HealthSpec(**bounds), HOUR_MS).grade is grade


def test_each_share_over_its_bound_is_followed_by_what_it_was_compared_with() -> None:
    """The dropped rows are within the bound of the spec, and 5 unreadable ones are too few."""
    past = [{"late": 20, "judged": 40}] * 20
    counts = {"late": 300, "dropped": 30, "bad": 5, "judged": 100, "rejected": 30}
    bounds = HealthSpec(max_dropped_ratio=0.1, max_rejected_ratio=0.125)
    finding = judge_completeness(minutes(*past, counts), bounds, HOUR_MS)
    assert finding.text == (
        "300 of 1,000 rows late (usually 2.0%), 30 dropped, 5 unreadable, "
        "30 of 100 rejected by rules (over the limit of 12.5%), in the newest epoch"
    )


@pytest.mark.parametrize(
    ("epochs", "first"),
    [
        ([{}] * 9, None),
        ([{}] * 9 + [{"late": 500}], 10),
        ([{"late": 500}] + [{}] * 9 + [{"late": 500}] * 3, 11),
        ([{}] * 9 + [{"late": 500}, {"bad": 500}, {}, {}], 10),
        ([{}] * 9 + [{"late": 500}, {"rows": 0}, {"late": 500}], 10),
        ([{"late": 500}] * 4, 1),
        ([{"rows": 20, "late": 9}] * 2 + [{"rows": 20}] * 5, 1),
    ],
)  # fmt: skip
def test_rows_are_missing_since_the_first_of_the_newest_epochs_that_miss_some(
    epochs: list[dict[str, int]], first: int | None
) -> None:
    """An epoch without rows interrupts nothing. Of epochs that are too small by themselves it is the first."""
    since = judge_completeness(minutes(*epochs), ANY, HOUR_MS).since
    if first is None:
        assert since is None
        return
    assert since is not None and (since.checkpoint_id, since.age_ms) == (first, HOUR_MS - first * MINUTE_MS)


def test_a_job_is_stale_since_the_age_of_its_tables_reached_the_limit() -> None:
    past = [epoch(number * HOUR_MS) for number in range(1, 31)]
    finding = judge_freshness(past, HealthSpec(max_age=timedelta(minutes=30)), 32 * HOUR_MS, None)
    assert finding.since == Since(time="1970-01-02T06:30:00.000+00:00", age_ms=90 * MINUTE_MS)
    assert since_text(finding.since) == "since 06:30 UTC (1 h 30 min)"
    assert judge_freshness(past, HealthSpec(max_age=timedelta(hours=3)), 32 * HOUR_MS, None).since is None


@pytest.mark.long
@pytest.mark.parametrize(("step_ms", "count", "days"), [(MINUTE_MS, 5_000, 2), (HOUR_MS, 100, 3)])
def test_the_past_has_three_days_or_two_with_enough_epochs(tmp_path: Path, step_ms: int, count: int, days: int) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 1)
    state = job.small.context.head().state
    newest = state.head()
    assert newest is not None
    rows = [*epoch_rows(count, newest.completed_time_ms, step_ms, version=1, status="aborted")]
    store_rows(job.small.context, rows)
    read = sorted({day_of(row["end_time"]) for row in rows})[-days:]
    aborted = past_epochs(job.small.context, state).aborted
    assert len(aborted) == sum(day_of(row["end_time"]) in read for row in rows)


@pytest.mark.deep
def test_epochs_fail_since_the_first_failure_after_the_last_success_or_resume(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2, {"timeout: 10m": "timeout: 10m, tolerable_failures: 9"})
    assert job.master.reports.status().since is None
    job.small.land("bad.csv", "k,v\nx,x\n")
    for _ in range(3):
        with pytest.raises(CheckpointError):
            job.run()
    status = job.master.reports.status()
    assert status.condition is Condition.EPOCH_FAILED and status.since is not None
    first = job.master.reports.show(3, details=False)
    assert status.since.checkpoint_id == 3 and status.since.time is not None and first.trigger_time is not None
    assert first.trigger_time <= status.since.time <= str(job.master.reports.show(4, details=False).trigger_time)
    assert "since checkpoint 3, " in milepost("status", job.spec_path).stdout
    for rows in (tmp_path / "job" / "store").rglob("figures/*/*.parquet"):
        rows.unlink()
    since = CountedJob(job.small).master.reports.status().since
    assert since == Since(3), "without a stored row, its time is not known"


def hourly(count: int, lag_ms: int = 5 * MINUTE_MS) -> list[EpochCounts]:
    return [epoch(number * HOUR_MS, lag_ms=lag_ms) for number in range(1, count + 1)]


@pytest.mark.parametrize(
    ("epochs", "bounds", "after_ms", "grade", "text"),
    [
        (hourly(30), ANY, 0, "good", "5 min old (event time 1970-01-02 05:55:00 UTC, usually 5 min)"),
        (hourly(30), ANY, 120 * MINUTE_MS, "good",
         "2 h 5 min old (event time 1970-01-02 05:55:00 UTC, usually 5 min)"),
        (hourly(30), ANY, -6 * MINUTE_MS, "good",
         "1 min in the future (event time 1970-01-02 05:55:00 UTC, usually 5 min)"),
        (hourly(30), ANY, 126 * MINUTE_MS, "warning",
         "2 h 11 min old (event time 1970-01-02 05:55:00 UTC, usually 5 min), over the limit of 2 h 10 min"),
        (hourly(19), ANY, 1000 * HOUR_MS, "unknown",
         "41 d 16 h old (event time 1970-01-01 18:55:00 UTC, usually 5 min)"),
        (hourly(3), HealthSpec(max_age=timedelta(hours=1)), 56 * MINUTE_MS, "warning",
         "1 h 1 min old (event time 1970-01-01 02:55:00 UTC), over the limit of 1 h"),
        ([epoch(HOUR_MS, lag_ms=None)], ANY, 0, "unknown", "no event time says how old the rows are"),
        ([], ANY, 0, "unknown", "no event time says how old the rows are"),
    ],
)  # fmt: skip
def test_freshness_compares_the_age_of_the_event_time_with_the_greatest_that_readers_saw(
    epochs: list[EpochCounts], bounds: HealthSpec, after_ms: int, grade: str, text: str
) -> None:
    completed_ms = epochs[-1].completed_ms if epochs else 0
    finding = judge_freshness(epochs, bounds, completed_ms + after_ms, None)
    assert (finding.grade.value, finding.text) == (grade, text)


def test_a_source_that_is_silent_for_too_long_is_not_fresh() -> None:
    assert judge_freshness(hourly(2), ANY, 0, "source visits is silent").grade is Grade.WARNING


SPEC = """\
name: small
storage: ../store
sources:
  a: {path: ../landing/*.csv, format: csv, settle: 0s, event_time: at, schema: {k: int64, at: "timestamp[us, UTC]"}}
operators:
  - {uid: hours, kind: window, inputs: [a], key: [k], window: {tumbling: 1h}, aggregates: {rows: count(*)}}
  - {uid: days, kind: window, inputs: [a], key: [k], window: {tumbling: 1d}, aggregates: {rows: count(*)}}
sinks:
  - {name: hours, input: hours, format: parquet, path: ../lake/hours, mode: append}
  - {name: late_days, input: days.late, format: parquet, path: ../lake/days, mode: append}
"""


def land(job: SparklessJob, name: str, *times: str) -> None:
    job.land(name, "k,at\n" + "".join(f"1,2026-01-{time}:00Z\n" for time in times))


def test_a_job_that_sets_most_of_its_rows_aside_is_not_healthy(tmp_path: Path) -> None:
    """12 of 13 rows are late for the hours, which no sink publishes, and 11 for the days."""
    job = SparklessJob.create(tmp_path)
    spec = job.folder / "config" / "small.yaml"
    spec.write_text(SPEC)
    land(job, "1.csv", "05T12:00")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    assert job.master.reports.status().condition is Condition.HEALTHY
    land(job, "2.csv", *(f"01T00:{minute:02}" for minute in range(11)), "05T01:00", "05T13:00")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    shown = job.master.reports.show(2)
    assert (shown.late_rows, shown.dropped_rows) == (12, 12)
    status = job.master.reports.status()
    assert (status.condition, status.exit_code, status.healthy) == (Condition.ROWS_MISSING, 6, False)
    assert status.verdict is not None and status.verdict.grade is Grade.BAD
    told = milepost("status", spec)
    assert told.exit_code == 6 and "12 of 13 rows late (usually 0.0%), 12 dropped (usually" in told.stdout
    series = milepost("status", spec, "--format", "prometheus").stdout
    assert 'milepost_job_complete{job="small",grade="bad"} 1' in series


GATE = """\
quality:
  - sink: table
    expectations: [{type: expect_column_values_to_be_between, column: k, max_value: 90, severity: SEVERITY}]
checkpointing:"""


def gated(folder: Path, severity: str) -> SparklessJob:
    tolerant = {"{last: 1}, timeout: 10m": "{last: 5}, timeout: 10m, tolerable_failures: 3"}
    return SparklessJob.create(folder, {"checkpointing:": GATE.replace("SEVERITY", severity), **tolerant})


@pytest.mark.deep
def test_a_warning_of_the_gate_is_not_healthy_until_an_epoch_meets_the_rule(tmp_path: Path) -> None:
    job = gated(tmp_path, "warning")
    job.land("1.csv", "k,v\n99,a\n")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    status = job.master.reports.status()
    assert (status.condition, status.exit_code) == (Condition.RULES_UNMET, 6)
    assert "0 of 1 rule met: sink table: expect_column_values_to_be_between(k) refused 1 of 1 rows" in status.next_step
    job.land("2.csv", "k,v\n1,a\n")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    status = job.master.reports.status()
    assert status.condition is Condition.HEALTHY and status.verdict is not None
    assert status.verdict.right.text == "1 of 1 rule met; 1 of the last 2 epochs had a warning"


def test_a_veto_makes_the_answer_about_the_rules_bad(tmp_path: Path) -> None:
    job = gated(tmp_path, "critical")
    job.land("1.csv", "k,v\n99,a\n")
    with pytest.raises(QualityGateFailed):
        job.master.epochs.run(Session.cli(), SparklessRunner())
    status = job.master.reports.status()
    assert status.verdict is not None and status.verdict.right.grade is Grade.BAD
    assert status.condition is Condition.EPOCH_FAILED


def test_epochs_that_are_no_longer_retained_are_part_of_the_baseline(tmp_path: Path) -> None:
    """Only the newest checkpoint is retained. The figures of the other epochs are stored permanently."""
    gate = GATE.replace("SEVERITY", "warning")
    job = SparklessJob.create(
        tmp_path, {"checkpointing:": gate, "settle: 0s": "settle: 0s\n    bad_records: dead_letter"}
    )
    for number in range(5):
        job.land(f"{number}.csv", "k,v\n" + "99,a\n" * 90 + "x,a\n" * 10)
        job.master.epochs.run(Session.cli(), SparklessRunner())
    job.land("5.csv", "k,v\n" + "9,a\n" * 70 + "x,a\n" * 30)
    job.master.epochs.run(Session.cli(), SparklessRunner())
    verdict = job.master.reports.status().verdict
    assert verdict is not None
    assert verdict.right.text == "1 of 1 rule met; 5 of the last 6 epochs had a warning"
    assert verdict.complete.text == "0 of 100 rows late, 30 unreadable (usually 10.0%), in the newest epoch"
