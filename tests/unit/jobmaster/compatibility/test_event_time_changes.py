"""A changed `event_time` is compared with the head. State that depends on the old times is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from milepost.errors import InvalidRequest
from milepost.jobmaster import CheckpointDetails, Session
from milepost.jobspec.graph.compatibility import NEW_UID
from milepost_testkit import wording
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec, edited

SPEC = """\
name: small
storage: ../store
sources:
  rows:
    format: csv
    path: ../landing/*.csv
    schema: {k: int64, v: int64, at: int64}
    event_time: {column: at, unit: s}
    settle: 0s
operators:
  - OPERATOR
sinks:
  - {name: out, input: it, format: parquet, path: ../lake/out, mode: MODE}
"""
TIMED = {
    "window": "window, window: {tumbling: 1h}, aggregates: {n: count(*)}",
    "deduplicate": "deduplicate, ttl: 1d",
    "join": "join, columns: {v2: right.v, at2: right.at}, within: [0s, 1h]",
    "asof": "asof, columns: {v2: right.v, at2: right.at}",
    "latest": "latest, sequence_by: [at]",
    "tombstones": "latest, sequence_by: [v], delete_when: v < 0, tombstone_ttl: 1d",
    "top": "top, order_by: [at], n: 1, rank: place",
    "first": "aggregate, aggregates: {first: first(v)}",
}
UNTIMED = {
    "sums": "aggregate, aggregates: {total: sum(v)}",
    "for ever": "deduplicate",
    "versions": "latest, sequence_by: [v]",
    "ranks": "top, order_by: [v], n: 1, rank: place",
}
LATEST = ("aggregate", "latest", "top")


def created(folder: Path, operator: str, upstream: str = "") -> SparklessJob:
    """Return a job of an operator, downstream of others, that has run one epoch."""
    kind, _, options = operator.partition(", ")
    inputs = "[rows, rows]" if kind in ("join", "asof") else "[rows]"
    inputs = "[first]" if upstream else inputs
    text = f"{upstream}{{uid: it, kind: {kind}, inputs: {inputs}, key: [k]{options and ', ' + options}}}"
    for name in ("config", "landing"):
        (folder / name).mkdir(parents=True)
    mode = "upsert" if kind in LATEST else "append"
    (folder / "config" / "small.yaml").write_text(edited(SPEC, {"OPERATOR": text, "MODE": mode}))
    job = SparklessJob(folder)
    epoch(job)
    return job


def edit(job: SparklessJob, edits: dict[str, str]) -> None:
    edit_spec(job.folder / "config" / "small.yaml", edits)


def epoch(job: SparklessJob, **options: Any) -> CheckpointDetails:
    number = len(list((job.folder / "landing").iterdir()))
    job.land(f"{number}.csv", f"k,v,at\n1,{number},{1_767_434_700 + number}\n")
    report = job.master.epochs.run(Session.cli(), SparklessRunner(), **options)
    assert isinstance(report, CheckpointDetails), report
    return report


def reported(job: SparklessJob, uid: str) -> list[dict[str, str]]:
    return [row for row in job.master.reports.compatibility() if row["uid"] == uid]


@pytest.mark.deep
@pytest.mark.parametrize("operator", TIMED.values(), ids=TIMED)
def test_state_that_depends_on_event_times_is_refused_under_another_unit(tmp_path: Path, operator: str) -> None:
    job = created(tmp_path, operator)
    edit(job, {"unit: s": "unit: ms"})
    (row,) = reported(job, "it")
    assert (row["outcome"], row["verdict"]) == ("refused", NEW_UID)
    wording.matches("compatibility", row["detail"])
    with wording.raises(InvalidRequest):
        epoch(job)
    edit(job, {"unit: ms": "unit: s"})
    assert epoch(job).checkpoint_id == 2


@pytest.mark.deep
@pytest.mark.parametrize("operator", UNTIMED.values(), ids=UNTIMED)
def test_another_unit_is_a_note_if_no_state_depends_on_event_time(tmp_path: Path, operator: str) -> None:
    job = created(tmp_path, operator)
    edit(job, {"unit: s": "unit: ms"})
    assert reported(job, "it")[0]["outcome"] == "restored"
    (notice,) = reported(job, "source rows")
    assert (notice["outcome"], notice["verdict"]) == ("changed", "compatible")
    wording.matches("compatibility", notice["detail"])
    assert epoch(job).checkpoint_id == 2
    assert [row["outcome"] for row in reported(job, "source rows")] == ["restored"]


@pytest.mark.deep
def test_a_backfill_rebuilds_the_state_with_the_new_event_times(tmp_path: Path) -> None:
    job = created(tmp_path, TIMED["window"])
    edit(job, {"column: at": "column: v"})
    wording.matches("compatibility", reported(job, "it")[0]["detail"])
    back_fill(job.master, SparklessRunner(), from_checkpoint=0)
    assert [row["outcome"] for row in job.master.reports.compatibility() if row["kind"] != "job"] == ["restored"] * 3
    epoch(job)


@pytest.mark.parametrize("operators", ["", "{uid: first, kind: deduplicate, inputs: [rows], key: [k, v]}\n  - "])
def test_a_new_uid_starts_with_the_new_event_times(tmp_path: Path, operators: str) -> None:
    """The watermark is reset: times in milliseconds are below the former watermark, and no row is late."""
    job = created(tmp_path, TIMED["window"], operators)
    edit(job, {"unit: s": "unit: ms", "uid: it": "uid: anew", "input: it": "input: anew"})
    report = epoch(job, allow_non_restored_state=True)
    assert report.sources["rows"].watermark == "1970-01-21T10:57:14.701000+00:00"
    assert job.master.reports.state("anew").num_rows == 1
