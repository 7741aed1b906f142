"""What the runbook is about happens: errors and states are provoked in a real job, and each leads to its page."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import CheckpointError, StoreUnavailable
from milepost.jobmaster import NothingToDo, Session
from milepost.jobmaster.landing.lander import Lander
from milepost.jobmaster.landing.open_sources import open_source
from milepost.jobmaster.reports.health.conditions import Condition
from milepost.protocol.manifest.transaction.requests import ConfirmSinksRequest, ForkRequest, FreezeRequest
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.layout import LANDED_PREFIX
from milepost.runbook.addresses import UNEXPECTED, address, name_of, page_of
from milepost.runbook.pages import read_page
from milepost.sinks.contract import TableTarget
from milepost.storage.log.source_log import SourceLog
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.landed_job import FEED
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edit_spec
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store, hook_stores
from tests.unit.runbook.test_runbook_pages import kinds

HOUR_S = 3600
RULE = "{type: expect_column_values_to_be_between, column: k, max_value: 90}"
GATE = f"quality: [{{sink: table, expectations: [{RULE}]}}]\n"
TOLERANT = {"timeout: 10m": "timeout: 10m, tolerable_failures: 3"}
Patch = pytest.MonkeyPatch
Provoke = Callable[[Path, Patch], object]


def run(job: SparklessJob) -> object:
    return job.master.epochs.run(Session.cli(), SparklessRunner())


def with_an_epoch(folder: Path, edit: dict[str, str] | None = None) -> SparklessJob:
    job = SparklessJob.create(folder, edit)
    job.land("1.csv")
    run(job)
    return job


def failed(folder: Path, edit: dict[str, str] | None = None) -> SparklessJob:
    """An epoch of it found the store away; without `TOLERANT`, it is FAILED."""
    job = with_an_epoch(folder, edit)

    def away(plan: object) -> None:
        raise StoreUnavailable("the store is away")

    job.land("2.csv")
    with pytest.raises(StoreUnavailable):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=away))
    return job


def completed_and_unpublished(job: CountedJob, number: int) -> Session:
    job.land([number])
    session = Session.cli()
    assert not isinstance(job.master.triggers.trigger(session), NothingToDo)
    job.master.epochs.run_epoch(session, number, SparklessRunner())
    job.master.epochs.complete(session, number)
    return session


def break_sink(job: SparklessJob, patch: Patch, name: str) -> None:
    url = job.context.sink_config(name).url
    break_store(patch, url, Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=10_000))


def invalid_request(folder: Path, patch: Patch) -> None:
    job = SparklessJob.create(folder, {"storage:": "storages:"})
    job.loaded()


def source_changed(folder: Path, patch: Patch) -> None:
    job = with_an_epoch(folder)
    job.land("1.csv", "k,v\n1,changed\n")
    run(job)


def with_a_landed_source(folder: Path) -> SparklessJob:
    """A job that has a landed source besides its files. The external system answers once it has a `feed.json`."""
    feed = f"{{format: python, source: 'feeds:Feed', options: {{folder: '{folder}'}}, schema: {{k: int64, n: int64}}}}"
    sink = "{name: feed, input: feed, format: parquet, path: ../lake/feed, mode: append}"
    edits = {"operators:": f"  feed: {feed}\noperators:", "checkpointing:": f"  - {sink}\ncheckpointing:"}
    job = SparklessJob.create(folder, edits)
    (folder / "config" / "feeds.py").write_text(FEED.replace(", START + timedelta(hours=n))", ")"))
    job.land("1.csv")
    return job


def source_replaced(folder: Path, patch: Patch) -> None:
    """The job was deleted and made anew over the log of its earlier life."""
    job = with_a_landed_source(folder)
    answer(job)
    job.master.landings.land()
    store = job.context.store
    store.delete([stat.key for stat in store.list("") if not stat.key.startswith(LANDED_PREFIX)])
    run(job)


def source_unreachable(folder: Path, patch: Patch) -> None:
    job = with_a_landed_source(folder)
    job.master.landings.land()
    context = job.context
    source = open_source(context, "feed", context.spec.landed["feed"])
    Lander(SourceLog(context.store, "feed"), source, context.identity).land()


def position_expired(folder: Path, patch: Patch) -> None:
    _land_after(folder, {"deleted": 4, "rows": [1]})


def source_went_back(folder: Path, patch: Patch) -> None:
    _land_after(folder, {"deleted": 0, "rows": [1]})


def input_voided(folder: Path, patch: Patch) -> None:
    """Checkpoint 2 has read both rows of the external system, which has lost one since."""
    job = with_a_landed_source(folder)
    run(job)
    answer(job)
    job.master.landings.land()
    run(job)
    (folder / "feed.json").write_text('{"deleted": 0, "rows": [1]}')
    job.master.voids.approve(job.master.voids.plan("feed", "auto").approved, "by a test")
    run(job)


def _land_after(folder: Path, change: dict[str, object]) -> None:
    """Land two rows, and again when the external system has others."""
    job = with_a_landed_source(folder)
    answer(job)
    job.master.landings.land()
    (folder / "feed.json").write_text(json.dumps(change))
    context = job.context
    source = open_source(context, "feed", context.spec.landed["feed"])
    Lander(SourceLog(context.store, "feed"), source, context.identity).land()


def bring_back(job: SparklessJob) -> None:
    """The external system has what follows the end of the log again."""
    (job.folder / "feed.json").write_text('{"deleted": 2, "rows": [3]}')


def answer(job: SparklessJob) -> None:
    """Bring the external system back."""
    (job.folder / "feed.json").write_text('{"deleted": 0, "rows": [1, 2]}')


def move_log_away(job: SparklessJob) -> None:
    (job.folder / "store" / "small" / LANDED_PREFIX / "feed").rename(job.folder / "old log")
    answer(job)


def not_found(folder: Path, patch: Patch) -> None:
    with_an_epoch(folder).master.reports.show(9)


def environment_unusable(folder: Path, patch: Patch) -> None:
    patch.setenv("AIRFLOW_CONN_HERE", "")
    job = SparklessJob.create(folder, {"checkpointing:": "spark: {conn_id: here}\ncheckpointing:"})
    job.land("1.csv")
    job.master.triggers.trigger(Session.cli())


def job_not_runnable(folder: Path, patch: Patch) -> None:
    run(failed(folder))


def protocol_violation(folder: Path, patch: Patch) -> None:
    """A peer confirms a sink that the checkpoint has not."""
    job = with_an_epoch(folder)
    job.context.transact(ConfirmSinksRequest(Session.cli().session_id, CheckpointId(1), ("another",)))


def fenced(folder: Path, patch: Patch) -> None:
    job = SparklessJob.create(folder)
    job.land("1.csv")
    late = Session.cli()
    job.master.triggers.trigger(late)
    job.master.triggers.trigger(Session.cli(), take_over=True)
    job.master.epochs.run_epoch(late, 1, SparklessRunner())


def busy(folder: Path, patch: Patch) -> None:
    job = SparklessJob.create(folder)
    job.land("1.csv")
    job.trigger(Session.cli())
    run(job)


def subsumed(folder: Path, patch: Patch) -> None:
    job = SparklessJob.create(folder)
    for name in ("1.csv", "2.csv"):
        job.land(name)
    first = Session.cli()
    job.master.epochs.run(first, SparklessRunner())
    run(job)
    job.master.epochs.notify_complete(first, 1, "table")


def commit_conflict(folder: Path, patch: Patch) -> None:
    """Another rollback lands right before this one's switch."""
    job = CountedJob.with_epochs(folder, 3)
    due = [lambda: job.rollback(2)]

    def before(operation: str, key: str) -> None:
        if operation == "create" and key.startswith("manifest/") and due:
            due.pop()()

    hook_stores(patch, before=before)
    job.rollback(1)


def plan_outdated(folder: Path, patch: Patch) -> None:
    job = CountedJob.with_epochs(folder, 2)
    plan = job.master.rollbacks.plan(1)
    job.land([3])
    job.run()
    job.carry_out(plan)


def superseded(folder: Path, patch: Patch) -> None:
    """A commit that was held up, and overtaken by a rollback."""
    job = CountedJob.with_epochs(folder, 1)
    completed_and_unpublished(job, 2)
    completed = job.small.context.head().state.head()
    assert completed is not None
    metadata = job.small.context.metadata(completed)
    job.rollback(1)
    late = TableTarget(completed.version, "main", metadata.tables["table"], metadata.sinks["table"].predecessor)
    job.small.context.sink("table").move(late)


def commit_outcome_unknown(folder: Path, patch: Patch) -> None:
    job = SparklessJob.create(folder)
    job.land("1.csv")
    lost = Fault(lambda operation, key: operation == "create" and "manifest/" in key, Effect.LOST_REQUEST, times=10_000)
    break_store(patch, job.context.store.config.url, lost)
    run(job)


def store_unavailable(folder: Path, patch: Patch) -> None:
    job = SparklessJob.create(folder)
    job.land("1.csv")
    away = Fault(lambda operation, key: True, Effect.UNAVAILABLE, times=10_000)
    break_store(patch, job.context.store.config.url, away)
    run(job)


def state_corrupt(folder: Path, patch: Patch) -> None:
    job = with_an_epoch(folder)
    (metadata,) = (job.folder / "store").rglob("_metadata")
    metadata.write_bytes(metadata.read_bytes()[:100])
    job.land("2.csv")
    run(job)


def subtask_declined(folder: Path, patch: Patch) -> None:
    job = SparklessJob.create(folder)
    job.land("1.csv", "k,v\nnot a number,a\n")
    run(job)


def quality_gate_failed(folder: Path, patch: Patch) -> None:
    job = SparklessJob.create(folder, {"checkpointing:": f"{GATE}checkpointing:"})
    job.land("1.csv", "k,v\n91,a\n")
    run(job)


def unexpected_error(folder: Path, patch: Patch) -> None:
    def bug(plan: object) -> None:
        raise ZeroDivisionError("a bug")

    job = SparklessJob.create(folder)
    job.land("1.csv")
    job.master.epochs.run(Session.cli(), SparklessRunner(before=bug))


ERRORS: dict[str, Provoke] = {
    provoke.__name__.replace("_", "-"): provoke
    for provoke in (
        invalid_request,
        source_changed,
        source_replaced,
        source_unreachable,
        position_expired,
        source_went_back,
        input_voided,
        not_found,
        environment_unusable,
        job_not_runnable,
        protocol_violation,
        fenced,
        busy,
        subsumed,
        commit_conflict,
        plan_outdated,
        superseded,
        commit_outcome_unknown,
        store_unavailable,
        state_corrupt,
        subtask_declined,
        quality_gate_failed,
        unexpected_error,
    )
}
WITH_SPARK = {
    "checkpoint-expired": ("raises(CheckpointExpired", "tests/integration/epochs/whole_jobs/test_flights_epochs.py"),
    "spark-lost": ("milepost runbook spark-lost", "tests/integration/servers/test_spark_connect.py"),
}
"""What only Spark can do, and the tests that provoke it there, by what they look for."""


def test_each_type_of_error_is_provoked_here_or_with_spark() -> None:
    assert ERRORS.keys() | WITH_SPARK.keys() == {name_of(kind) for kind in kinds()} | {UNEXPECTED}
    for words, place in WITH_SPARK.values():
        assert words in (REPOSITORY / place).read_text("utf-8")


@pytest.mark.deep
@pytest.mark.parametrize("name", ERRORS)
def test_an_error_that_happens_leads_to_its_page(name: str, tmp_path: Path, monkeypatch: Patch) -> None:
    with pytest.raises((CheckpointError, ZeroDivisionError)) as caught:
        ERRORS[name](tmp_path / "job", monkeypatch)
    assert page_of(caught.value) == name and name_of(type(caught.value)) in (name, "zero-division-error")
    assert read_page(name).text


def test_a_command_that_fails_names_the_page_to_look_up(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path)
    job.land("1.csv")
    job.trigger(Session.cli())
    spec = job.folder / "config" / "small.yaml"
    told = milepost("run", spec)
    assert told.exit_code == 4 and "milepost runbook busy" in told.error[-2]
    wording.matches("run", told.error[-1])
    assert '"runbook": "milepost runbook busy"' in milepost("run", spec, "--json").stdout


def is_failed(folder: Path, patch: Patch) -> SparklessJob:
    return failed(folder)


def is_epoch_failed(folder: Path, patch: Patch) -> SparklessJob:
    return failed(folder, TOLERANT)


def is_canceled(folder: Path, patch: Patch) -> SparklessJob:
    job = with_an_epoch(folder)
    job.master.savepoints.cancel()
    return job


def is_finished(folder: Path, patch: Patch) -> SparklessJob:
    job = with_an_epoch(folder)
    job.master.epochs.run(Session.cli(), SparklessRunner(), drain=True)
    return job


def is_cancelling(folder: Path, patch: Patch) -> SparklessJob:
    job = CountedJob.with_epochs(folder, 1)
    completed_and_unpublished(job, 2)
    with patch.context() as outage:
        break_sink(job.small, outage, "seen")
        with pytest.raises(CheckpointError):
            job.master.savepoints.cancel()
    return job.small


def is_reconciling(folder: Path, patch: Patch) -> SparklessJob:
    job = CountedJob.with_epochs(folder, 2)
    with patch.context() as outage:
        break_sink(job.small, outage, "seen")
        with pytest.raises(StoreUnavailable):
            job.rollback(1)
    return job.small


def is_spec_refused(folder: Path, patch: Patch) -> SparklessJob:
    job = with_an_epoch(folder)
    spec = job.folder / "config" / "small.yaml"
    edit_spec(spec, {"key: [k]": "key: [v]"})
    return job


def is_input_refused(folder: Path, patch: Patch) -> SparklessJob:
    job = with_an_epoch(folder)
    job.land("1.csv", "k,v\n1,changed\n")
    return job


def is_unpublished(folder: Path, patch: Patch) -> SparklessJob:
    job = CountedJob.with_epochs(folder, 1)
    completed_and_unpublished(job, 2)
    return job.small


def is_lease_over(folder: Path, patch: Patch) -> SparklessJob:
    job = with_an_epoch(folder)
    job.land("2.csv")
    session = Session.cli()
    job.trigger(session)
    created_ms = session.holder.create_time_ms
    job.rebind(replace(session, holder=replace(session.holder, create_time_ms=created_ms - 1000 * HOUR_S)))
    return job


def is_landing_failed(folder: Path, patch: Patch) -> SparklessJob:
    job = with_a_landed_source(folder)
    run(job)
    assert job.master.landings.land().failed, "it has no `feed.json`"
    return job


def is_overdue(folder: Path, patch: Patch) -> SparklessJob:
    return SparklessJob.create(folder, {"settle: 0s": "settle: 0s\n    expect_every: 1h"})


def is_late(folder: Path, patch: Patch) -> SparklessJob:
    job = with_an_epoch(folder)
    then = time.time() - 9 * HOUR_S
    os.utime(job.land("2.csv"), (then, then))
    return job


def is_stale(folder: Path, patch: Patch) -> SparklessJob:
    """The keys are seconds of 1970."""
    event_time = "settle: 0s\n    event_time: {column: k, unit: s}"
    return with_an_epoch(folder, {"settle: 0s": event_time, "checkpointing:": "health: {max_age: 1d}\ncheckpointing:"})


def is_rows_missing(folder: Path, patch: Patch) -> SparklessJob:
    job = with_an_epoch(folder, {"settle: 0s": "settle: 0s\n    bad_records: dead_letter", "last: 1": "last: 5"})
    job.land("2.csv", "k,v\nx,a\n")
    run(job)
    return job


def is_rules_unmet(folder: Path, patch: Patch) -> SparklessJob:
    warning = GATE.replace("max_value: 90", "max_value: 90, severity: warning")
    job = with_an_epoch(folder, {"checkpointing:": f"{warning}checkpointing:", "last: 1": "last: 5"})
    job.land("2.csv", "k,v\n99,a\n")
    run(job)
    return job


def is_no_input(folder: Path, patch: Patch) -> SparklessJob:
    job = SparklessJob.create(folder, {"settle: 0s": "settle: 0s\n    start: latest"})
    run(job)
    return job


def is_running(folder: Path, patch: Patch) -> SparklessJob:
    job = with_an_epoch(folder)
    job.land("2.csv")
    job.trigger(Session.cli())
    return job


def is_frozen(folder: Path, patch: Patch) -> SparklessJob:
    job = with_an_epoch(folder)
    job.context.transact(FreezeRequest(Session.cli().session_id, 1000 * HOUR_S))
    return job


def is_backfill_unfinished(folder: Path, patch: Patch) -> SparklessJob:
    """A fork of a backfill of which nothing is replayed yet."""
    job = with_an_epoch(folder)
    session = Session.cli()
    opened_by = replace(session, session_id=type(session.session_id)(f"backfill:0:{session.session_id}"))
    job.context.transact(ForkRequest(opened_by.session_id, CheckpointId(1)))
    return job


def is_initializing(folder: Path, patch: Patch) -> SparklessJob:
    return SparklessJob.create(folder)


def is_healthy(folder: Path, patch: Patch) -> SparklessJob:
    return with_an_epoch(folder)


STATES: dict[Condition, Callable[[Path, Patch], SparklessJob]] = {
    Condition(provoke.__name__.removeprefix("is_").replace("_", "-")): provoke
    for provoke in (
        is_failed,
        is_epoch_failed,
        is_canceled,
        is_finished,
        is_cancelling,
        is_reconciling,
        is_spec_refused,
        is_input_refused,
        is_unpublished,
        is_lease_over,
        is_landing_failed,
        is_overdue,
        is_late,
        is_stale,
        is_rows_missing,
        is_rules_unmet,
        is_no_input,
        is_running,
        is_frozen,
        is_backfill_unfinished,
        is_initializing,
        is_healthy,
    )
}


BOUNDED = (Condition.LATE, Condition.NO_INPUT)
"""What is no health only for who says how fresh the input is to be."""


@pytest.mark.long
@pytest.mark.parametrize("condition", Condition, ids=lambda one: one.value)
def test_a_job_in_each_state_leads_to_its_page(condition: Condition, tmp_path: Path, monkeypatch: Patch) -> None:
    job = STATES[condition](tmp_path / "job", monkeypatch)
    status = job.master.reports.status(HOUR_S * 1000 if condition in BOUNDED else None)
    assert status.condition is condition
    assert status.runbook == address(condition.value)
    options = ["--max-lag", "1h"] if condition in BOUNDED else []
    told = milepost("status", job.folder / "config" / "small.yaml", *options)
    assert told.exit_code == status.exit_code
    assert bool(re.search(rf"milepost runbook {condition.value}\n(.*\n)*next: ", told.stdout)) is not status.healthy
