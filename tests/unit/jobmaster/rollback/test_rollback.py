"""Rollback: state, positions and every table return to a checkpoint, nothing is destroyed, and it can be undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.epoch.iso_times import iso_ms
from milepost.errors import (
    Busy,
    CheckpointError,
    Fenced,
    InvalidRequest,
    JobNotRunnable,
    NotFound,
    PlanOutdated,
    StateCorrupt,
    StoreUnavailable,
    Superseded,
)
from milepost.jobmaster import NothingToDo, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.rollback.inputs import InputSize
from milepost.jobmaster.rollback.plan import StateRows
from milepost.jobmaster.run.checkpoint_metadata import shown_checkpoint
from milepost.protocol.records.manifest_state import JobStatus
from milepost.sinks.contract import TableTarget
from milepost.sinks.table.table_sink import TableSink
from milepost.tables.records.table_heads import HEADS
from milepost.tables.records.table_keys import DATA
from milepost_testkit import wording
from milepost_testkit.jobs.rollbacks import decided
from milepost_testkit.jobs.sparkless.counted_job import SEEN_SINK, CountedJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.stores.job_stores import hook_stores, later

EPOCHS = 5
DAY_MS = 24 * 3_600_000


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> CountedJob:
    """Five epochs, one object each, all published. Not to be changed: `job` is a copy of it."""
    return CountedJob.with_epochs(tmp_path_factory.mktemp("prepared") / "job", EPOCHS)


@pytest.fixture
def job(prepared: CountedJob, tmp_path: Path) -> CountedJob:
    return prepared.copy_to(tmp_path / "job")


def head_timelines(job: CountedJob) -> set[str]:
    """The timeline that each table shows."""
    context = job.small.context
    marks = [context.sink(spec.name).position().mark for spec in context.spec.sinks]
    return {mark.timeline for mark in marks if mark is not None}


@pytest.mark.deep
def test_state_positions_and_every_table_return_to_the_checkpoint_and_the_job_goes_on_from_there(
    job: CountedJob,
) -> None:
    result = job.rollback(2, decision=decided("a wrong file"))
    timeline = result.timeline
    assert (result.outcome, result.checkpoint_id, result.from_timeline, result.from_head) == (
        "rolled_back", 2, "main", 5,
    )  # fmt: skip
    assert (result.discarded, result.sinks, result.next_step) == ((3, 4, 5), ("seen", "table"), "milepost run small")
    job.assert_tables_equal_the_oracle()
    assert job.live_ids == [1, 2] and head_timelines(job) == {timeline}
    assert job.small.context.head().state.reconciliation is None
    status = job.master.reports.status()
    assert (status.exit_code, status.head, status.timeline, status.unread_objects) == (0, 2, timeline, 3)
    assert job.run(3) == [6, 7, 8], "ids are never used again (I5)"
    assert job.live_ids == [1, 2, 6, 7, 8]
    assert [int(one.epoch) for one in job.live] == [1, 2, 3, 4, 5]
    job.assert_tables_equal_the_oracle()
    assert job.run_one().status == "empty"
    shown = {one.checkpoint_id: (one.status, one.timeline, one.live) for one in job.master.reports.list_checkpoints()}
    assert {one: shown[one] for one in (2, 3, 5, 6)} == {
        2: ("completed", "main", True),
        3: ("completed", "main", False),
        5: ("completed", "main", False),
        6: ("completed", timeline, True),
    }
    assert (job.master.reports.show(4).live, job.master.reports.show(4).sinks) == (
        False,
        dict.fromkeys(("seen", "table"), "committed"),
    )
    (switched,) = [entry for entry in job.master.reports.history() if entry["event"] == "TimelineSwitched"]
    assert (switched["checkpoint_id"], switched["discarded"]) == (2, [3, 4, 5])
    assert "a wrong file" in switched["detail"]
    wording.matches("history", switched["detail"])


@pytest.mark.deep
def test_rolling_back_a_rollback_brings_everything_back(job: CountedJob) -> None:
    job.rollback(2)
    job.run(2)
    told = job.rollback(5)
    assert (told.discarded, told.from_head, job.live_ids) == ((6, 7), 7, [1, 2, 3, 4, 5])
    job.assert_tables_equal_the_oracle()
    assert job.run_one().status == "empty", "what 3 to 5 have read is read"
    job.land([6])
    assert job.run() == [8]
    job.assert_tables_equal_the_oracle()
    assert job.rollback(7).discarded == (3, 4, 5, 8)
    assert job.live_ids == [1, 2, 6, 7]
    job.assert_tables_equal_the_oracle()
    job.run(2)
    job.assert_tables_equal_the_oracle()
    assert sorted(job.consumed()) == [f"{n:04}.csv" for n in range(1, 7)]


@pytest.mark.deep
def test_data_after_a_rewind_is_published_although_the_table_saw_higher_ids_iceberg_10892(job: CountedJob) -> None:
    """apache/iceberg#10892: a sink that takes only ids above the greatest it has ever committed loses what is read
    again after a rewind, without a word. Here the table first shows the old checkpoint, then every epoch after it."""
    before = job.master.reports.read("seen")
    job.rollback(1)
    assert job.master.reports.read("seen").num_rows == 3
    for read_again in (2, 3, 4, 5):
        assert job.run_one().sinks == {"seen": "committed", "table": "committed"}
        assert job.master.reports.read("seen").num_rows == 3 * read_again
        job.assert_tables_equal_the_oracle()
    assert sorted(before["v"].to_pylist()) == sorted(job.master.reports.read("seen")["v"].to_pylist())
    assert job.master.reports.read("table", at=5) == job.master.reports.read("table"), "what was left can still be read"


@pytest.mark.deep
def test_the_empty_state_is_a_checkpoint_to_go_back_to(job: CountedJob) -> None:
    plan = job.master.rollbacks.plan(0)
    assert plan.sinks["seen"].rows_then == 0 and plan.runs_again["rows"].objects == EPOCHS
    assert job.rollback(0).discarded == (1, 2, 3, 4, 5)
    assert job.master.reports.status().head is None
    assert [job.master.reports.read(name).num_rows for name in ("seen", "table")] == [0, 0]
    assert job.run(2) == [6, 7]
    assert job.live_ids == [6, 7] and [int(one.epoch) for one in job.live] == [1, 2]
    job.assert_tables_equal_the_oracle()
    job.rollback(5)
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_time_means_the_newest_live_checkpoint_triggered_by_then(job: CountedJob) -> None:
    times = {one.checkpoint_id: one.trigger_time for one in job.master.reports.list_checkpoints()}
    assert job.master.rollbacks.plan(times[3]).target.checkpoint_id == 3
    assert job.master.rollbacks.plan(times[3].replace("+00:00", "")).target.checkpoint_id == 3, "UTC"
    soon = job.small.context.store.clock_ms() + 30_000
    assert job.master.rollbacks.plan(iso_ms(soon)).target.checkpoint_id == 5, "clocks differ a little"
    job.rollback(2)
    job.run()
    assert job.master.rollbacks.plan(times[4]).target.checkpoint_id == 2, "4 is not live any more"
    with wording.raises(NotFound):
        job.rollback("2001-01-01")


def test_the_plan_says_what_would_happen_and_changes_nothing(job: CountedJob) -> None:
    before = job.small.context.head().version
    plan = job.master.rollbacks.plan(2)
    assert [one.checkpoint_id for one in plan.discarded] == [3, 4, 5]
    assert (plan.head.checkpoint_id, plan.target.checkpoint_id, plan.pending) == (5, 2, None)
    objects = 3 * len("k,v\n0,3\n3,3\n-3,3\n")
    assert plan.runs_again == {"rows": InputSize(3, objects)} and plan.counts_as_read == {}
    assert plan.operators["latest"] == StateRows(11, 5)
    seen = plan.sinks["seen"]
    assert (seen.rows_now, seen.rows_then) == (15, 6)
    assert 0 < seen.objects_then < seen.objects_now
    assert len(plan.not_undone) == 1, "what several say is told once"
    wording.matches("plan", plan.text)
    assert job.small.context.head().version == before
    job.rollback(2)
    forth = job.master.rollbacks.plan(5)
    assert (forth.runs_again, forth.counts_as_read["rows"].objects) == ({}, 3)


@pytest.mark.long
def test_the_plan_says_what_can_not_be_read_again(job: CountedJob) -> None:
    """Landed data belongs to others: deleted objects are lost to the live timeline, and a person must know."""
    (job.small.folder / "landing" / "0004.csv").unlink()
    (job.small.folder / "landing" / "0005.csv").write_text("k,v\n0,another\n")
    plan = job.master.rollbacks.plan(2)
    gone, changed = plan.not_undone[-2:]
    assert "0004.csv" in gone and "0005.csv" in changed
    wording.matches("plan", [gone, changed])
    job.rollback(2)
    job.run(2)
    assert job.consumed() == ["0001.csv", "0002.csv", "0003.csv", "0005.csv"]
    job.assert_tables_equal_the_oracle()


@pytest.mark.long
def test_a_source_that_starts_at_latest_reads_nothing_again_from_the_empty_state(tmp_path: Path) -> None:
    job = CountedJob.create(tmp_path / "job", {"    limits_per_epoch": "    start: latest\n    limits_per_epoch"})
    job.land([1])
    job.run()
    job.land([2])
    job.run()
    assert job.master.rollbacks.plan(1).runs_again["rows"].objects == 1
    plan = job.master.rollbacks.plan(0)
    assert plan.runs_again == {}
    wording.matches("plan", plan.not_undone[-1])
    job.rollback(0)
    job.run()
    assert job.consumed() == [] and job.run_one().status == "empty"


def test_the_plan_says_when_the_spec_does_not_fit_the_target(job: CountedJob) -> None:
    job.edit("inputs: [rows], key: [k, v]}", "inputs: [rows], key: [k]}")
    plan = job.master.rollbacks.plan(2)
    assert [line.split(":")[0] for line in plan.spec] == ["unique"]
    wording.matches("plan", [line for line in plan.text if plan.spec[0] in line])


@pytest.mark.parametrize(
    ("to", "error"),
    [
        (9, NotFound),
        ("yesterday", InvalidRequest),
        ("-1", InvalidRequest),
        ("", InvalidRequest),
        ("2999-01-01", InvalidRequest),
    ],
)
def test_a_target_that_is_not_retained_is_refused_and_changes_nothing(
    job: CountedJob, to: str | int, error: type[Exception]
) -> None:
    version = job.small.context.head().version
    for ask in (job.master.rollbacks.plan, job.rollback):
        with wording.raises(error):
            ask(to)
    assert job.small.context.head().version == version


def test_a_rollback_to_where_the_job_is_changes_nothing(job: CountedJob) -> None:
    plan = job.master.rollbacks.plan(5)
    assert plan.head.trigger_time in "".join(plan.text)
    wording.matches("plan", plan.text)
    told = job.rollback(5)
    assert (told.outcome, told.timeline, told.discarded) == ("nothing_to_roll_back", "main", ())
    assert job.live_ids == [1, 2, 3, 4, 5]


@pytest.mark.deep
def test_a_live_lease_refuses_a_rollback_unless_taken_over_which_fences_its_session(job: CountedJob) -> None:
    job.land([6])
    session = Session.cli()
    pending = job.small.trigger(session)
    wording.matches("plan", job.master.rollbacks.plan(2).text[-1])
    with wording.raises(Busy):
        job.rollback(2)
    assert job.live_ids == [1, 2, 3, 4, 5]
    told = job.rollback(2, take_over=True)
    assert (told.aborted_checkpoint, told.outcome) == (6, "rolled_back")
    assert (job.master.reports.show(6).status, job.master.reports.show(6).failure_reason) == (
        "aborted",
        "LEADER_TAKEN_OVER",
    )
    for step in (
        lambda: job.master.epochs.run_epoch(session, 6, SparklessRunner()),
        lambda: job.master.epochs.complete(session, 6),
        lambda: job.small.rebind_of(session, pending.checkpoint_id),
    ):
        with pytest.raises(Fenced):
            step()
    job.run(4)
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_an_epoch_that_is_finished_and_not_completed_is_aborted_and_not_adopted(job: CountedJob) -> None:
    """A trigger would adopt it; a rollback would discard it immediately, after its rows were seen."""
    job.land([6])
    session = Session.cli()
    job.master.triggers.trigger(session)
    job.master.epochs.run_epoch(session, 6, SparklessRunner())
    assert job.rollback(2, take_over=True).discarded == (3, 4, 5)
    assert job.master.reports.show(6).status == "aborted"
    with pytest.raises(Fenced):
        job.master.epochs.complete(session, 6)
    job.run(4)
    job.assert_tables_equal_the_oracle()


def test_an_epoch_that_completes_between_the_plan_and_the_decision_is_not_discarded(job: CountedJob) -> None:
    plan = job.master.rollbacks.plan(2)
    job.land([6])
    job.run()
    with wording.raises(PlanOutdated):
        job.carry_out(plan)
    assert job.live_ids == [1, 2, 3, 4, 5, 6]
    job.assert_tables_equal_the_oracle()


@pytest.mark.long
def test_a_table_that_moves_between_the_plan_and_the_decision_refuses_it(job: CountedJob) -> None:
    """The head is the same: what a sink had yet to publish when the plan was made is published since."""
    job.land([6])
    session = Session.cli()
    assert not isinstance(job.master.triggers.trigger(session), NothingToDo)
    job.master.epochs.run_epoch(session, 6, SparklessRunner())
    job.master.epochs.complete(session, 6)
    plan = job.master.rollbacks.plan(2)
    job.master.epochs.notify_complete(session, 6, "table")
    with wording.raises(PlanOutdated):
        job.carry_out(plan)
    assert job.carry_out(job.master.rollbacks.plan(2)).outcome == "rolled_back"
    job.assert_tables_equal_the_oracle()


def test_a_sink_that_came_to_the_spec_since_the_plan_was_approved_refuses_it(job: CountedJob) -> None:
    """Nobody has looked at what would become of its table."""
    job.edit(SEEN_SINK, "")
    plan = job.master.rollbacks.plan(2)
    job.edit("sinks:\n", "sinks:\n" + SEEN_SINK)
    with wording.raises(PlanOutdated):
        job.carry_out(plan)


@pytest.mark.deep
def test_what_the_clean_up_of_an_ended_job_publishes_does_not_outdate_the_approved_plan(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rollback itself finishes what the end of the job has left to do, before it goes back."""
    job.land([6])
    session = Session.cli()
    assert not isinstance(job.master.triggers.trigger(session), NothingToDo)
    job.master.epochs.run_epoch(session, 6, SparklessRunner())
    job.master.epochs.complete(session, 6)

    def away(*_: object) -> None:
        raise StoreUnavailable("the sink is away")

    with monkeypatch.context() as down:
        down.setattr(TableSink, "move", away)
        with pytest.raises(StoreUnavailable):
            job.master.savepoints.cancel()
    plan = job.master.rollbacks.plan(2)
    assert job.carry_out(plan).outcome == "rolled_back"
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_commit_that_was_held_up_lands_neither_during_nor_after_a_rollback(job: CountedJob) -> None:
    """I14: checkpoint 6 is complete and unpublished when the job goes back; its commit never fits again."""
    job.land([6])
    session = Session.cli()
    job.master.triggers.trigger(session)
    job.master.epochs.run_epoch(session, 6, SparklessRunner())
    completed = job.master.epochs.complete(session, 6)
    assert job.rollback(5).discarded == (6,)
    job.assert_tables_equal_the_oracle()
    for name in ("seen", "table"):
        assert not job.master.epochs.notify_complete(session, 6, name).published, "its commit is void"
        metadata = job.small.context.metadata(completed)
        late = TableTarget(completed.version, "main", metadata.tables[name], metadata.sinks[name].predecessor)
        with pytest.raises(Superseded):
            job.small.context.sink(name).move(late)
    job.assert_tables_equal_the_oracle()
    job.run()
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_an_epoch_whose_commit_a_rollback_overtakes_ends_without_an_error(
    job: CountedJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14: it is complete and about to publish when a person rolls back; it no longer owes the sinks anything."""
    job.land([6])
    pending = iter([lambda: job.rollback(4)])

    def before(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(HEADS):
            for due in pending:
                due()

    hook_stores(monkeypatch, before=before)
    document = job.run_one()
    assert (document.checkpoint_id, document.live) == (6, False)
    assert job.live_ids == [1, 2, 3, 4]
    job.assert_tables_equal_the_oracle()
    job.run(2)
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_table_that_has_lost_a_file_is_not_rolled_back_to_and_the_job_stays_where_it_is(job: CountedJob) -> None:
    """What could never follow is refused before the switch, not found out after it."""
    lost = next((job.small.folder / "lake" / "seen" / DATA / f"chk-{2:020d}").rglob("*.parquet"))
    lost.unlink()
    for ask in (job.master.rollbacks.plan, job.rollback):
        with wording.raises(StateCorrupt) as refused:
            ask(3)
        assert lost.name in str(refused.value)
    assert job.live_ids == [1, 2, 3, 4, 5]
    job.rollback(1)
    job.run(4)
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_a_checkpoint_that_was_never_published_is_published_when_the_job_comes_back_to_it(job: CountedJob) -> None:
    """What was staged for it stays as long as it is retained, and `fsck` knows why."""
    job.land([6, 7])
    session = Session.cli()
    job.master.triggers.trigger(session)
    job.master.epochs.run_epoch(session, 6, SparklessRunner())
    job.master.epochs.complete(session, 6)
    job.rollback(5)
    assert job.master.reports.show(6).sinks == dict.fromkeys(("seen", "table"), "unpublished")
    report = job.master.reports.fsck()
    assert (report.exit_code, report.unreachable) == (0, ())
    staged = next((job.small.folder / "lake" / "seen" / DATA / f"chk-{6:020d}").rglob("*.parquet"))
    aside = staged.rename(job.small.folder / staged.name)
    (missing,) = job.master.reports.fsck().missing
    wording.matches("fsck", missing.chain[-1])
    aside.rename(staged)
    job.rollback(6)
    assert job.live_ids == [1, 2, 3, 4, 5, 6]
    job.assert_tables_equal_the_oracle()
    job.run()
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_two_unpublished_checkpoints_are_published_in_their_order_by_one_rollback(job: CountedJob) -> None:
    job.land([6, 7])

    def no_commit(operation: str, key: str) -> None:
        if operation == "create" and key.startswith(HEADS):
            raise StoreUnavailable("planned outage")

    with pytest.MonkeyPatch.context() as outage:
        hook_stores(outage, before=no_commit)
        for _ in range(2):
            with wording.raises(CheckpointError):
                job.run_one()
    assert job.rollback(4).discarded == (5, 6, 7)
    job.rollback(7)
    job.assert_tables_equal_the_oracle()
    assert job.master.reports.fsck().exit_code == 0


@pytest.mark.deep
def test_an_epoch_aborted_by_a_rollback_does_not_count_as_a_failure(job: CountedJob) -> None:
    """What failed was left on purpose: the job is not unhealthy until an epoch fails again."""
    job.land([6])
    job.master.triggers.trigger(Session.cli())
    job.rollback(3, take_over=True)
    status = job.master.reports.status()
    assert (status.healthy, status.unread_objects) == (True, 3)
    wording.matches("status", status.next_step)
    assert (status.job_status, status.waits_for) == ("running", None)


@pytest.mark.deep
def test_a_failed_job_runs_again_after_a_rollback(job: CountedJob) -> None:
    job.land([6])

    def broken(_: object) -> None:
        raise StateCorrupt("planned")

    with pytest.raises(StateCorrupt):
        job.master.epochs.run(Session.cli(), SparklessRunner(before=broken))
    assert job.master.reports.status().job_status == "failed"
    told = job.rollback(3)
    assert told.outcome == "rolled_back" and job.master.reports.status().exit_code == 0
    job.run(3)
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_an_ended_job_stays_ended_until_it_is_started(job: CountedJob) -> None:
    job.master.savepoints.cancel()
    told = job.rollback(3)
    assert told.job_status == "canceled"
    wording.matches("rollback", told.next_step)
    job.assert_tables_equal_the_oracle()
    with pytest.raises(JobNotRunnable):
        job.run_one()
    assert job.master.restores.start().head == 3
    job.run(2)
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_start_from_a_checkpoint_is_a_rollback_and_a_start(job: CountedJob) -> None:
    with wording.raises(InvalidRequest) as refused:
        job.master.restores.start(3)
    assert "milepost rollback small --to 3" in refused.value.hint
    job.master.savepoints.cancel()
    told = job.master.restores.start("3")
    assert (told.outcome, told.incarnation, told.head, told.rolled_back_from) == ("started", 2, 3, 5)
    job.run(2)
    job.assert_tables_equal_the_oracle()
    job.master.savepoints.cancel()
    assert job.master.restores.start(job.live_ids[-1]).rolled_back_from is None


@pytest.mark.deep
def test_the_first_epoch_of_the_new_timeline_follows_what_the_target_left(job: CountedJob) -> None:
    """I14: the position that the epoch records is the reconciled head, whatever the discarded epochs did."""
    timeline = job.rollback(2).timeline
    (checkpoint_id,) = job.run()
    context = job.small.context
    completed = context.head().state.head()
    assert completed is not None and (completed.parent, completed.timeline) == (2, timeline)
    metadata = context.metadata(completed)
    base = context.base_metadata(context.head().state, 2)
    assert (metadata.base, metadata.timeline) == (2, timeline)
    for name, snapshot in metadata.sinks.items():
        assert snapshot.predecessor == shown_checkpoint(base, name) == 2
        assert metadata.tables[name].checkpoint_id == checkpoint_id
        mark = context.sink(name).position().mark
        assert mark is not None and (mark.number, mark.timeline) == (completed.version, timeline)


@pytest.mark.deep
def test_a_corrupt_head_names_the_rollback_to_type_and_that_works(job: CountedJob) -> None:
    """DESIGN 5: exit 7, never skipped silently."""
    head = job.small.context.head().state.head()
    assert head is not None
    (job.small.folder / "store" / "small" / head.metadata.key).write_bytes(b"torn")
    job.land([6])
    with wording.raises(StateCorrupt) as corrupt:
        job.run_one()
    assert corrupt.value.exit_code == 7
    with pytest.raises(StateCorrupt) as asked:
        job.master.reports.status()
    assert asked.value.hint == corrupt.value.hint
    plan = job.master.rollbacks.plan(4)
    assert plan.runs_again is None
    wording.matches("plan", plan.text)
    job.rollback(4)
    job.run(2)
    job.assert_tables_equal_the_oracle()
    assert job.master.reports.status().exit_code == 0


@pytest.mark.long
def test_a_corrupt_state_run_names_it_too_and_the_job_is_not_resumed_but_rolled_back(job: CountedJob) -> None:
    context = job.small.context
    own = context.store.list("chk-00000000000000000005/")
    run = next(stat.key for stat in own if "/state/" in stat.key and "latest" in stat.key)
    (job.small.folder / "store" / "small" / run).write_bytes(b"torn")
    job.land([6])
    with pytest.raises(StateCorrupt) as corrupt:
        job.run_one()
    assert corrupt.value.hint.endswith("milepost rollback small --to 4")
    wording.matches("status", job.master.reports.status().next_step)
    assert job.master.reports.status().job_status == "failed"
    with wording.raises(StateCorrupt):
        job.master.reports.verify()
    job.rollback(3)
    for ask in (job.master.rollbacks.plan, job.rollback):
        with wording.raises(StateCorrupt):
            ask(5)
    job.rollback(4)
    job.run(2)
    job.assert_tables_equal_the_oracle()
    (line,) = job.master.reports.verify().discarded
    assert run in line, "nothing but the discarded checkpoint needs it"
    wording.matches("verify", line, replace=wording.SIZES)


@pytest.mark.deep
def test_a_sink_that_was_added_since_is_emptied_and_filled_again(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2, {SEEN_SINK: ""})
    job.edit("sinks:\n", "sinks:\n" + SEEN_SINK)
    job.land([3, 4])
    job.run(2)
    assert job.master.reports.read("seen").num_rows == 6
    assert job.rollback(2).sinks == ("seen", "table")
    assert job.master.reports.read("seen").num_rows == 0
    job.run(2)
    assert job.master.reports.read("seen").num_rows == 6
    job.assert_tables_equal_the_oracle("table")


@pytest.mark.deep
def test_a_sink_that_was_dropped_is_skipped_by_name_and_follows_when_it_comes_back(job: CountedJob) -> None:
    text = job.spec_path.read_text()
    job.edit(SEEN_SINK, "")
    plan = job.master.rollbacks.plan(2)
    assert plan.skipped_sinks == ("seen",)
    wording.matches("plan", [line for line in plan.text if "sink seen" in line])
    assert job.rollback(2).skipped_sinks == ("seen",)
    job.run()
    job.assert_tables_equal_the_oracle("table")
    job.spec_path.write_text(text)
    assert job.master.reports.read("seen").num_rows == 15, "nobody has touched it"
    job.run()
    seen = sorted(set(job.master.reports.read("seen")["v"].to_pylist()))
    assert seen == ["1", "2", "4"], "as of checkpoint 2, and then what came since it is back"
    job.assert_tables_equal_the_oracle("table")
    assert head_timelines(job) == {job.small.context.head().state.live}


@pytest.mark.long
def test_a_sink_that_was_dropped_for_a_rollback_alone_follows_when_it_is_back(job: CountedJob) -> None:
    """The target checkpoint has it, and its table was not notified of that."""
    text = job.spec_path.read_text()
    job.edit(SEEN_SINK, "")
    assert job.rollback(2).skipped_sinks == ("seen",)
    job.spec_path.write_text(text)
    assert job.master.reports.read("seen").num_rows == 15, "nobody has touched it"
    job.run()
    job.assert_tables_equal_the_oracle()
    assert head_timelines(job) == {job.small.context.head().state.live}


@pytest.mark.deep
@pytest.mark.parametrize("form", ["parquet", "delta"])
def test_a_sink_that_was_dropped_follows_when_what_its_table_shows_is_collected_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """The records of its mark went with a checkpoint that the rollback had left: its own log says what it has."""
    edit = {"last: 20": "last: 2", "format: parquet, path: ../lake/seen": f"format: {form}, path: ../lake/seen"}
    job = CountedJob.with_epochs(tmp_path / "job", 4, edit)
    text = job.spec_path.read_text()
    job.edit(SEEN_SINK.replace("parquet", form), "")
    job.rollback(3)
    job.land(range(5, 12))
    for epoch in range(1, 7):
        later(monkeypatch, epoch * DAY_MS)
        job.run()
    job.spec_path.write_text(text)
    context = job.small.context
    shown = context.sink("seen").position().contents
    assert shown is not None and shown.checkpoint_id == 4
    assert not context.table_records.are_stored(shown)
    job.run()
    seen = sorted({int(value) for value in job.master.reports.read("seen")["v"].to_pylist()})
    assert seen == [1, 2, 3, max(seen)], "as of checkpoint 3, and then what came since it is back"
    assert len(job.master.reports.read("seen")) == 12
    job.assert_tables_equal_the_oracle("table")
    assert job.master.reports.fsck().exit_code == 0


def test_a_sink_whose_path_was_changed_cannot_follow_and_nothing_is_rolled_back(job: CountedJob) -> None:
    version = job.small.context.head().version
    job.edit("path: ../lake/seen", "path: ../lake/elsewhere")
    with wording.raises(InvalidRequest):
        job.rollback(2)
    assert job.small.context.head().version == version


@pytest.mark.deep
def test_lint_compares_with_the_live_head(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path / "job", 2)
    job.rollback(0)
    assert job.master.reports.compatibility() == [], "the empty state fits every spec"
    job.rollback(2)
    assert {row["uid"]: row["verdict"] for row in job.master.reports.compatibility()}["latest"] == "compatible"


@pytest.mark.deep
def test_nothing_of_an_abandoned_checkpoint_is_unreachable_until_retention_takes_it(tmp_path: Path) -> None:
    """I8: what a rollback has left stays a root; each of its objects is needed, and can be verified."""
    job = CountedJob.with_epochs(tmp_path / "job", 4, {"last: 20": "last: 3"})
    assert [one.checkpoint_id for one in job.small.context.head().state.checkpoints] == [2, 3, 4]
    job.rollback(2)
    job.land(range(5, 9))
    job.run()
    state = job.small.context.head().state
    assert [int(one.checkpoint_id) for one in state.checkpoints] == [2, 3, 4, 5]
    report = job.master.reports.fsck()
    assert (report.exit_code, report.unreachable, report.complete) == (0, (), True)
    assert job.master.reports.verify(deep=True).checkpoints == (2, 3, 4, 5)
    assert job.master.collect_garbage(dry_run=True).unreachable == ()
    job.rollback(4)
    job.assert_tables_equal_the_oracle()
    job.rollback(5)
    job.run(4)
    state = job.small.context.head().state
    assert not {3, 4} & {int(one.checkpoint_id) for one in state.checkpoints}, "newer ones have taken their place"
    assert {one.timeline for one in state.checkpoints} <= {one.timeline_id for one in state.timelines}
    report = job.master.reports.fsck()
    assert report.exit_code == 0
    wording.matches("fsck", sorted({left.proof for left in report.unreachable}))
    gone = job.master.reports.show(3)
    assert (gone.status, gone.live, gone.compacted) == ("subsumed", None, True), "older than all retained"
    job.assert_tables_equal_the_oracle()


def test_a_reader_of_a_discarded_checkpoint_pins_it_like_any_other(job: CountedJob) -> None:
    job.rollback(2)
    assert job.master.reports.state("latest", at=5).num_rows == 11
    assert job.master.reports.read("table", at=5).num_rows == 11
    assert job.small.context.head().state.pins == ()


def test_a_job_that_never_ran_cannot_be_rolled_back(tmp_path: Path) -> None:
    job = CountedJob.create(tmp_path / "job")
    for ask in (job.master.rollbacks.plan, job.rollback):
        with wording.raises(NotFound):
            ask(0)


@pytest.mark.deep
def test_a_run_that_was_discarded_is_covered_and_its_input_comes_with_the_next_one(job: CountedJob) -> None:
    """An Airflow run has one checkpoint: clearing the run of a discarded one does nothing (DESIGN 8.3, rule 2)."""
    job.land([6])
    session = Session.airflow("small__epoch", "r6", "scheduled", "2026-07-14T06:00:00+00:00")
    job.master.epochs.run(session, SparklessRunner())
    job.rollback(4)
    answer = job.master.triggers.trigger(session)
    assert isinstance(answer, NothingToDo) and answer.status == "covered"
    later = Session.airflow("small__epoch", "r7", "scheduled", "2026-07-14T07:00:00+00:00")
    assert job.master.epochs.run(later, SparklessRunner()).live
    job.run()
    job.assert_tables_equal_the_oracle()
    assert job.small.context.head().state.status is JobStatus.RUNNING


@pytest.mark.deep
def test_files_staged_for_an_unreachable_checkpoint_are_deleted_with_it(tmp_path: Path) -> None:
    """It completed, was left before any sink had it, and retention has dropped it: its rows have no owner (I8)."""
    job = CountedJob.with_epochs(tmp_path / "job", 2, {"last: 20": "last: 1"})
    job.land([3, 4])
    session = Session.cli()
    job.master.triggers.trigger(session)
    job.master.epochs.run_epoch(session, 3, SparklessRunner())
    job.master.epochs.complete(session, 3)
    job.rollback(2)
    assert job.small.staged_files(3) != [] and job.master.reports.fsck().unreachable == ()
    job.run(2)
    assert [one.checkpoint_id for one in job.small.context.head().state.checkpoints] == [5]
    idle = job.master.reports.fsck().unreachable
    wording.matches("fsck", sorted({f"{one.where}: {one.proof}" for one in idle}))
    with pytest.MonkeyPatch.context() as clock:
        for days in (1, 2):
            later(clock, days * DAY_MS)
            job.master.collect_garbage()
    assert job.small.staged_files(3) == []
    assert job.master.reports.fsck().exit_code == 0
    job.assert_tables_equal_the_oracle()


@pytest.mark.long
def test_while_a_kept_checkpoint_cannot_be_read_nothing_is_subsumed(tmp_path: Path) -> None:
    """I8: a rollback has left it, damaged; what it shares with the others is unknown, so all of them stay whole."""
    job = CountedJob.with_epochs(tmp_path / "job", 4, {"last: 20": "last: 3"})
    context = job.small.context
    left = next(one for one in context.head().state.checkpoints if one.checkpoint_id == 4)
    needed = [key for key in context.metadata(left).references() if key.startswith("chk-")]
    path = job.small.folder / "store" / "small" / left.metadata.key
    whole = path.read_bytes()
    job.rollback(3)
    path.write_bytes(b"torn")
    job.land([5, 6])
    job.run(2)
    assert [int(one.checkpoint_id) for one in job.small.context.head().state.checkpoints] == [2, 3, 4, 5, 6]
    listed = {entry.prefix for entry in job.small.context.head().state.garbage}
    assert not [key for key in needed for prefix in listed if key.startswith(prefix)]
    path.write_bytes(whole)
    job.land([7])
    job.run()
    assert 2 not in [int(one.checkpoint_id) for one in job.small.context.head().state.checkpoints]
    assert job.master.reports.fsck().exit_code == 0


def test_a_planned_rollback_reads_the_head_twice(job: CountedJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the plan, and to compare it with what is there. Each transition reads the log itself, and decides on that."""
    reads: list[str] = []
    head = JobContext.head
    monkeypatch.setattr(JobContext, "head", lambda context: (reads.append(""), head(context))[1])
    master = job.master
    plan = master.rollbacks.plan(2)
    assert len(reads) == 1
    assert master.rollbacks.run(Session.cli(), plan.approved).outcome == "rolled_back"
    assert len(reads) == 2
