"""The suggested commands for a spec that does not fit the head work literally and lead to a healthy job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.jobmaster import Session
from milepost.jobmaster.compatibility.non_restored_state import renamed_operators
from milepost.operators.kinds import STATEFUL_KINDS
from milepost.protocol.manifest.timelines.timelines import MAX_FORKS
from milepost.protocol.manifest.transaction.requests import ForkRequest
from milepost.protocol.records.ids import CheckpointId
from milepost.spark import driver
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import Outcome, milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec

AFRESH = ("--from-checkpoint", "0")
TYPED = {
    "v: string": "v: int64",
    "aggregates: {rows: count(*)}": "aggregates: {rows: count(*), total: sum(v)}",
    "format: parquet": "format: delta",
}


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The commands run their epochs in this process."""
    monkeypatch.setattr(driver, "spark_runner", SparklessRunner)
    return


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Two epochs. Only to be copied."""
    return CountedJob.with_epochs(tmp_path_factory.mktemp("counted") / "job", 2)


@pytest.fixture
def job(counted: CountedJob, tmp_path: Path) -> CountedJob:
    return counted.copy_to(tmp_path / "job")


def rename(job: CountedJob) -> None:
    job.edit("uid: unique", "uid: distinct")
    job.edit("input: unique", "input: distinct")


def last_line(outcome: Outcome) -> str:
    return outcome.error[-1]


@pytest.mark.deep
def test_renamed_from_is_suggested_first_for_a_renamed_operator_and_keeps_its_state(job: CountedJob) -> None:
    rename(job)
    lint, run = milepost("lint", job.spec_path), milepost("run", job.spec_path)
    assert (lint.exit_code, run.exit_code) == (2, 2)
    for command, told in (("lint", lint), ("run", run)):
        assert "`renamed_from: unique`" in last_line(told)
        wording.matches(command, last_line(told))
    job.edit("{uid: distinct,", "{uid: distinct, renamed_from: unique,")
    job.small.land("again.csv", "k,v\n0,1\n")
    assert milepost("run", job.spec_path).exit_code == 0
    assert job.master.reports.read("seen").num_rows == 6, "the row of the new object was seen before"


@pytest.mark.deep
def test_the_flag_names_the_discarded_state_in_the_hint_and_when_it_is_used(job: CountedJob) -> None:
    rename(job)
    refused = milepost("lint", job.spec_path)
    assert f"milepost run {job.spec_path} --allow-non-restored-state" in last_line(refused)
    wording.matches("lint", last_line(refused))
    job.small.land("again.csv", "k,v\n0,1\n")
    typed = milepost("run", job.spec_path, "--allow-non-restored-state")
    assert typed.exit_code == 0
    wording.matches("run", [line for line in typed.stderr.splitlines() if "unique" in line or "--allow" in line])
    assert job.master.reports.read("seen").num_rows == 7


def test_the_flag_is_suggested_together_with_the_new_table_that_it_needs_and_both_work(job: CountedJob) -> None:
    """Neither the flag nor a new table suffices alone, because the upsert sink has another keyed operator."""
    job.edit("uid: latest", "uid: newest")
    job.edit("name: table, input: latest", "name: table, input: newest")
    told = last_line(milepost("lint", job.spec_path))
    assert f"milepost run {job.spec_path} --allow-non-restored-state" in told
    wording.matches("lint", told)
    job.edit("{name: table,", "{name: newest,")
    job.edit("lake/table", "lake/newest")
    job.land([3])
    assert milepost("run", job.spec_path, "--allow-non-restored-state").exit_code == 0
    assert milepost("lint", job.spec_path).exit_code == milepost("status", job.spec_path).exit_code == 0
    assert job.master.reports.read("newest").num_rows == 3


@pytest.mark.deep
def test_state_is_discarded_by_the_next_run_even_without_new_input(job: CountedJob) -> None:
    """Otherwise the spec would stay refused until input lands, and the flag would have to be repeated."""
    rename(job)
    assert milepost("run", job.spec_path, "--allow-non-restored-state").exit_code == 0
    assert milepost("lint", job.spec_path).exit_code == milepost("status", job.spec_path).exit_code == 0
    again = milepost("run", job.spec_path, "--allow-non-restored-state")
    wording.matches("run", again.stdout)
    assert job.master.reports.status().head == 3


def test_every_kind_of_operator_has_a_text_for_its_lost_state() -> None:
    assert all(spec.lost_state for spec in STATEFUL_KINDS.values())


def test_a_suggested_former_uid_has_state_that_can_continue() -> None:
    def of(kind: str, *key: str, **more: object) -> dict[str, object]:
        return {"kind": kind, "key": list(key), **more}

    def reads(uid: str) -> dict[str, object]:
        return {f"updates of {uid}: key": ["k"]}

    recorded = {"total": of("aggregate", "k"), "totals_a": of("aggregate", "k"), "seen": of("deduplicate", "k")}
    assert renamed_operators(recorded, {"totals_b": of("aggregate", "k")}, ["totals_b"]) == {"totals_a": "totals_b"}
    assert renamed_operators(recorded, {"other": of("aggregate", "k")}, ["other"]) == {"total": "other"}
    assert renamed_operators(recorded, {"totals_b": of("aggregate", "v")}, ["totals_b"]) == {}
    chain = {"first": of("aggregate", "k"), "second": of("top", "k", **reads("first"))}
    renamed = {"one": of("aggregate", "k"), "two": of("top", "k", **reads("one"))}
    assert renamed_operators(chain, renamed, ["one", "two"]) == {"first": "one", "second": "two"}


@pytest.mark.deep
def test_the_suggested_backfill_for_a_changed_key_works(job: CountedJob) -> None:
    job.edit("key: [k], aggregates", "key: [k, v], aggregates")
    told = last_line(milepost("lint", job.spec_path))
    assert f"milepost backfill {job.spec_path} --from-checkpoint 0" in told
    wording.matches("lint", told)
    job.edit("{name: table,", "{name: by_both,")
    job.edit("lake/table", "lake/by_both")
    done = milepost("backfill", job.spec_path, *AFRESH, "--yes")
    assert done.exit_code == 0, done.stderr
    assert milepost("lint", job.spec_path).exit_code == milepost("status", job.spec_path).exit_code == 0
    assert job.master.reports.read("by_both").num_rows == 6


@pytest.mark.deep
def test_a_changed_key_starts_empty_under_a_new_uid_as_suggested(job: CountedJob) -> None:
    job.edit("key: [k], aggregates", "key: [k, v], aggregates")
    told = last_line(milepost("lint", job.spec_path))
    assert f"milepost run {job.spec_path} --allow-non-restored-state" in told
    wording.matches("lint", told)
    for old, new in (("uid: latest", "uid: by_both"), ("name: table, input: latest", "name: by_both, input: by_both")):
        job.edit(old, new)
    job.edit("lake/table", "lake/by_both")
    job.land([3])
    assert milepost("run", job.spec_path, "--allow-non-restored-state").exit_code == 0
    assert milepost("lint", job.spec_path).exit_code == 0
    assert job.master.reports.read("by_both").num_rows == 3


def test_a_dry_run_refuses_a_backfill_into_a_table_with_another_key(job: CountedJob) -> None:
    """Like the backfill itself, which would reserve the table."""
    job.edit("key: [k], aggregates", "key: [k, v], aggregates")
    before = job.small.context.head().state
    planned = milepost("backfill", job.spec_path, *AFRESH, "--dry-run")
    typed = milepost("backfill", job.spec_path, *AFRESH, "--yes")
    assert (planned.exit_code, planned.error) == (typed.exit_code, typed.error) and planned.exit_code == 2
    wording.matches("backfill", planned.error)
    assert job.small.context.head().state == before


def test_a_dry_run_refuses_a_backfill_whose_rows_do_not_fit_the_table(tmp_path: Path) -> None:
    """A Delta table cannot change column types, so it could not show the fork after the switch."""
    job = SparklessJob.create(tmp_path, TYPED)
    spec = job.folder / "config" / "small.yaml"
    job.land("1.csv", "k,v\n1,2\n")
    assert milepost("run", spec).exit_code == 0
    edit_spec(spec, {"total: sum(v)": "total: avg(v)"})
    planned = milepost("backfill", spec, *AFRESH, "--dry-run")
    typed = milepost("backfill", spec, *AFRESH, "--yes")
    assert (planned.exit_code, planned.error) == (typed.exit_code, typed.error) and planned.exit_code == 2
    assert f"milepost backfill {spec} --from-checkpoint 0" in last_line(planned)
    wording.matches("backfill", planned.error)
    edit_spec(spec, {"name: table": "name: means", "lake/table": "lake/means"})
    assert milepost("backfill", spec, *AFRESH, "--yes").exit_code == 0
    assert job.master.reports.read("means").to_pylist() == [{"k": 1, "rows": 1, "total": 2.0}]


def test_a_type_that_only_spark_can_resolve_is_refused_before_the_switch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live timeline is unchanged."""
    job = SparklessJob.create(tmp_path, TYPED)
    spec = job.folder / "config" / "small.yaml"
    job.land("1.csv", "k,v\n1,2\n")
    assert milepost("run", spec).exit_code == 0
    edit_spec(spec, {"total: sum(v)": "total: avg(v)"})
    monkeypatch.setattr("milepost.jobmaster.compatibility.tables.table_columns.resolved_type", lambda *_: None)
    typed = milepost("backfill", spec, *AFRESH, "--yes")
    assert typed.exit_code == 2
    wording.matches("backfill", typed.error)
    state = job.context.head().state
    assert (state.live, state.reconciliation) == ("main", None)
    edit_spec(spec, {"total: avg(v)": "total: sum(v)"})
    assert milepost("status", spec).exit_code == 0


def test_a_dry_run_refuses_more_forks_than_the_maximum(job: CountedJob) -> None:
    for _ in range(MAX_FORKS):
        job.small.context.transact(ForkRequest(Session.cli().session_id, CheckpointId(1)))
    planned = milepost("backfill", job.spec_path, *AFRESH, "--dry-run")
    typed = milepost("backfill", job.spec_path, *AFRESH, "--yes")
    assert (planned.exit_code, planned.error) == (typed.exit_code, typed.error) and planned.exit_code == 2
    wording.matches("backfill", planned.error)
