"""Random histories of a job over a landed source, against a shadow reader: rows equal, or a typed stop."""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from milepost.errors import CheckpointError, InputVoided, InvalidRequest, PlanOutdated
from milepost.jobmaster import NothingToDo
from milepost.jobmaster.landing.lander import Lander
from milepost.jobmaster.landing.open_sources import open_source
from milepost.jobmaster.retention.garbage_collection import collect_garbage
from milepost.protocol.landed.voids import false_span, live_sequences
from milepost.protocol.records.ids import SessionId
from milepost.storage.log.source_log import SourceLog
from milepost_testkit import profiles
from milepost_testkit.jobs.sparkless.landed_job import LandedJob
from milepost_testkit.stores.called_store import WRITES
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore
from milepost_testkit.stores.hooked_store import HookedStore
from milepost_testkit.stores.job_stores import LaterStore

DAY_MS = 86_400_000


class Killed(BaseException):
    """The process of a landing ended here."""


class LandedHistory(RuleBasedStateMachine):
    """A job, with the rows that its tables must have at each checkpoint and savepoint, and the ancestors of each.

    Attributes:
        since: of each checkpoint: rows before this number are not in its tables, because they were deleted from the log
            before a timeline began from the empty state.
        life: of the external system, of which the rows of the log are.
        seen: of each checkpoint: the life of its rows, and the rows that were lost. It is missing if the checkpoint
            goes on after accepted false rows.
    """

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.produced = 0
        self.rows = {0: 0}
        self.since = {0: 0}
        self.life = 0
        self.seen: dict[int, tuple[int, list[int]]] = {}
        self.saved: dict[str, tuple[int, int, tuple[int, list[int]] | None]] = {}
        self.ancestors: dict[int, tuple[int, ...]] = {0: ()}
        self.head = 0

    @initialize(trims=st.booleans())
    def begin(self, trims: bool) -> None:
        """A job that deletes landed records as soon as no checkpoint needs them, or one that retains them for days."""
        edit = {
            "retained: {last: 50}": "retained: {last: 2}",
            "    event_time: at": "    event_time: at\n    land: {retain: 0s}",
        }
        self.job = LandedJob.create(Path(self._folder.name) / "job", edit if trims else None)

    @rule(keys=st.lists(st.integers(1, 3), min_size=1, max_size=4))
    def produce(self, keys: list[int]) -> None:
        self.job.produce(*keys)
        self.produced += len(keys)

    @rule(count=st.integers(1, 5))
    def expire(self, count: int) -> None:
        self.job.expire(count)

    @precondition(lambda self: self.produced and self.job.context.log.head() is not None)
    @rule(lost=st.integers(1, 6))
    def go_back(self, lost: int) -> None:
        """The external system loses its newest rows. Those that come after have the same numbers."""
        self.job.go_back(self.produced - lost)
        self.produced = len((self.job.folder / "produced.csv").read_text().split())

    @rule()
    def land(self) -> None:
        if self.job.is_false:
            before = self.job.newest
            (failed,) = self.job.land().failed
            assert (failed.error, self.job.newest) == ("SourceWentBack", before)
            try:
                self.job.void()
            except InvalidRequest as refused:
                assert "has changed before all retained records" in refused.message
                self._begin_again()
                return
        if self.job.is_expired:
            before = self.job.landed_end
            (failed,) = self.job.land().failed
            assert (failed.error, self.job.landed_end) == ("PositionExpired", before)
            self.job.approve_gap()
            _ = self.job.lost_rows
        assert not self.job.land().failed
        assert self.job.left == 0
        self.life = self.job.life

    @precondition(lambda self: self.job.is_false)
    @rule(
        effect=st.sampled_from([Effect.LOST_REPLY, Effect.LOST_REQUEST, Effect.UNAVAILABLE]) | st.none(),
        after=st.booleans(),
    )
    def void_in_trouble(self, effect: Effect | None, after: bool) -> None:
        """The record gets no reply, or the process ends before or after it. An approval appends one record at most."""

        def kill(operation: str, key: str) -> None:
            if operation in WRITES:
                raise Killed

        dying = self.job.master
        try:
            approved = dying.voids.plan(self.job.source, "auto").approved
        except InvalidRequest:
            self.land()
            return
        hooks = {} if effect is not None else {"after": kill} if after else {"before": kill}
        faults = [] if effect is None else [Fault(lambda operation, _: operation in WRITES, effect, 0)]
        dying.context.__dict__["store"] = HookedStore(FaultyStore(dying.context.store, faults), **hooks)
        with suppress(CheckpointError, Killed):
            dying.voids.approve(approved, "by a test")
        master = self.job.master
        if master.voids.find(approved) is None:
            master.voids.approve(approved, "by a test")
        with pytest.raises(PlanOutdated):
            master.voids.approve(approved, "by a test")
        assert not self.job.is_false
        self.life = self.job.life

    def _begin_again(self) -> None:
        """Every retained record is false: the source gets another log. Here, so does the job."""
        folder = self.job.folder.with_name(f"{self.job.folder.name}-again")
        spec = (self.job.folder / "config" / "landed.yaml").read_text()
        old, self.job = self.job, LandedJob.create(folder)
        (folder / "config" / "landed.yaml").write_text(
            spec.replace(json.dumps(str(old.folder)), json.dumps(str(folder)))
        )
        self.job.forget_rename()
        shutil.rmtree(old.folder)
        self.produced = self.life = self.head = 0
        self.rows, self.since, self.seen, self.saved, self.ancestors = {0: 0}, {0: 0}, {}, {}, {0: ()}

    @precondition(lambda self: self.job.is_expired)
    @rule(
        effect=st.sampled_from([Effect.LOST_REPLY, Effect.LOST_REQUEST, Effect.UNAVAILABLE]) | st.none(),
        after=st.booleans(),
    )
    def approve_a_gap_in_trouble(self, effect: Effect | None, after: bool) -> None:
        """The record gets no reply, or the process ends before or after it. An approval appends one gap at most."""

        def kill(operation: str, key: str) -> None:
            if operation in WRITES:
                raise Killed

        approved = self.job.master.gaps.plan(self.job.source, "earliest").approved
        dying = self.job.master
        hooks = {} if effect is not None else {"after": kill} if after else {"before": kill}
        faults = [] if effect is None else [Fault(lambda operation, _: operation in WRITES, effect, 0)]
        dying.context.__dict__["store"] = HookedStore(FaultyStore(dying.context.store, faults), **hooks)
        with suppress(CheckpointError, Killed):
            dying.gaps.approve(approved, "by a test")
        master = self.job.master
        if master.gaps.find(approved) is None:
            assert self.job.is_expired
            master.gaps.approve(approved, "by a test")
        with pytest.raises(PlanOutdated):
            master.gaps.approve(approved, "by a test")
        assert not self.job.is_expired

    @rule(
        effect=st.sampled_from([Effect.LOST_REPLY, Effect.LOST_REQUEST, Effect.UNAVAILABLE]) | st.none(),
        write=st.integers(0, 4),
        after=st.booleans(),
    )
    def land_in_trouble(self, effect: Effect | None, write: int, after: bool) -> None:
        """A write of the landing gets no reply, or its process ends before or after the write."""
        context, writes = self.job.context, 0

        def kill(operation: str, key: str) -> None:
            nonlocal writes
            writes += operation in WRITES
            if operation in WRITES and writes - 1 == write:
                raise Killed

        hooks = {} if effect is not None else {"after": kill} if after else {"before": kill}
        faults = [] if effect is None else [Fault(lambda operation, _: operation in WRITES, effect, write)]
        store = HookedStore(FaultyStore(context.store, faults), **hooks)
        with suppress(CheckpointError, Killed):
            if context.log.head() is None:
                self.job.land()  # creates the job
            source = open_source(context, self.job.source, context.spec.landed[self.job.source])
            Lander(SourceLog(store, context.stored_name(self.job.source)), source, context.identity).land()

    @rule()
    def epoch(self) -> None:
        if self.job.context.log.head() is None:
            return
        since = self._deleted() if self.head == 0 else self.since[self.head]  # the epoch's end may raise the floor
        lost, accepted = self.job.lost_rows, self.head not in self.seen if self.head else False
        if (position := self.job.position()) is not None and (newest := self.job.newest) is not None:
            # an acceptance holds for every checkpoint that has read rows of the span, also one that is returned to
            accepted |= any(span.accepted and span.first < position.next <= span.end for span in newest.voids)
        try:
            result = self.job.epoch()
        except InputVoided as stopped:
            accepted |= self._go_on(stopped)
            since = self._deleted() if self.head == 0 else self.since[self.head]
            result = self.job.epoch()
        if not isinstance(result, NothingToDo):
            self._advance(int(result.checkpoint_id), self.head)
            position = self.job.position()
            assert position is not None
            self.rows[self.head], self.since[self.head] = position.total_rows, since
            if not accepted:
                self.seen[self.head] = self.life, lost
        elif accepted:
            self.seen.pop(self.head, None)

    def _go_on(self, stopped: InputVoided) -> bool:
        """Go back to the checkpoint that an error names, or accept the false rows. Returns whether they were."""
        target = stopped.details["rollback_to"]
        if target is None:
            self.job.accept_void()
            return True
        assert isinstance(target, int)
        self.job.roll_back(target)
        if target not in self.rows:  # one that a backfill made on its way
            position = self.job.position(target)
            self.rows[target] = 0 if position is None else position.total_rows
            self.since[target] = self.since[self.head]
            self.ancestors[target] = tuple(at for at in self.ancestors[self.head] if at < target)
        self.head = target
        return False

    @rule(name=st.sampled_from(["feed", "events", "clicks"]))
    def rename(self, name: str) -> None:
        """The source gets another name, once a checkpoint has its present one. Its log and positions stay."""
        context = self.job.context
        state = None if context.log.head() is None else context.head().state
        newest = max(state.checkpoints, key=lambda item: item.checkpoint_id, default=None) if state else None
        known = not self.job.is_renamed if newest is None else self.job.source in context.metadata(newest).sources
        if known and name != self.job.source and self.job.landed_end is not None:
            self.job.rename(name)

    @rule(count=st.integers(1, 4))
    def go_on(self, count: int) -> None:
        """Epochs of one record each, so that checkpoints are subsumed."""
        for key in range(count):
            self.produce([key])
            self.land()
            self.epoch()

    @precondition(lambda self: self.head)
    @rule(data=st.data())
    def roll_back(self, data: st.DataObject) -> None:
        target = data.draw(st.sampled_from(self._retained()))
        self.job.roll_back(target)
        self.head = target
        assert int(self.job.context.head().state.timeline().head) == target

    @precondition(lambda self: self._replayable())
    @rule(data=st.data())
    def backfill(self, data: st.DataObject) -> None:
        rows, since, start = self.rows[self.head], self.since[self.head], data.draw(st.sampled_from(self._replayable()))
        seen = self.seen.get(self.head)
        position, newest = self.job.position(), self.job.newest
        assert newest is not None
        if false_span(position, newest) is not None:
            with pytest.raises(InputVoided):
                self.job.backfill(from_checkpoint=start)
            return
        assert position is not None
        if any(span.accepted and span.first < position.next <= span.end for span in newest.voids):
            seen = None  # a replay skips the accepted rows
        if start == 0 and since < self._deleted():
            with pytest.raises(InvalidRequest, match="were deleted"):
                self.job.backfill(from_checkpoint=start)
            return
        try:
            self.job.backfill(from_checkpoint=start)
        except InvalidRequest as refused:  # with void records, which of the deleted ones had rows is unknown
            assert start == 0 and "were deleted" in refused.message and newest.voids
            return
        self._advance(int(self.job.context.head().state.timeline().head), start)
        self.rows[self.head], self.since[self.head] = rows, since
        if seen is not None:
            self.seen[self.head] = seen

    def _deleted(self) -> int:
        """Number of rows before the retained records of the log."""
        log = self.job.context.source_log(self.job.source)
        newest = log.newest()
        live = () if newest is None else live_sequences(log.first(newest), newest.record.sequence, newest.record.voids)
        record = log.record(live[0]).record if live else None
        return 0 if record is None else record.total_rows - record.rows

    def _retained(self) -> list[int]:
        """Checkpoints whose rows are known. Of those that a backfill made, only the last one's are."""
        retained = (int(item.checkpoint_id) for item in self.job.context.head().state.checkpoints)
        return [0, *(checkpoint_id for checkpoint_id in retained if checkpoint_id in self.rows)]

    def _replayable(self) -> list[int]:
        """The ancestors of the head since which something was read."""
        retained = self._retained() if self.head else []
        return [at for at in self.ancestors[self.head] if at in retained and self.rows[at] < self.rows[self.head]]

    def _advance(self, head: int, since: int) -> None:
        self.head = head
        self.ancestors[head] = (*self.ancestors[since], since)

    @rule()
    def collect_garbage(self) -> None:
        """A day later: what a dead landing left may be deleted, and nothing that is needed is missing."""
        context = self.job.context
        if context.log.head() is None:
            return
        context.__dict__["store"] = LaterStore(context.store, later_ms=DAY_MS)
        collect_garbage(context, SessionId("collector"), context.timeout_ms)
        audit = self.job.master.reports.fsck()
        assert (audit.exit_code, audit.foreign, audit.unreachable) == (0, (), ()), audit
        if self.head:
            self.job.master.reports.verify(deep=True)

    @precondition(lambda self: self.head)
    @rule(write=st.integers(0, 40))
    def move(self, write: int) -> None:
        """The job goes on in another storage, from a savepoint with input. Its first restore ends at a write."""
        rows, since, old, master = self.rows[self.head], self.since[self.head], self.job.folder, self.job.master
        in_life = self.seen.get(self.head)
        master.savepoints.export(self.head, f"{old}-saved", with_input=True)
        new = old.parent / f"{old.name}-moved"
        shutil.copytree(old / "config", new / "config")
        spec = new / "config" / "landed.yaml"
        spec.write_text(spec.read_text().replace(json.dumps(str(old)), json.dumps(str(new))))
        for file in (old / "feed.json", old / "lost.json", *old.glob("produced*.csv")):
            if file.exists():
                shutil.copy(file, new)
        shutil.rmtree(old)
        self.job = LandedJob(new)
        seen = 0

        def kill(operation: str, key: str) -> None:
            nonlocal seen
            seen += operation in WRITES
            if operation in WRITES and seen > write:
                raise Killed

        dying = self.job.master
        dying.context.__dict__["store"] = HookedStore(dying.context.store, before=kill)
        with suppress(Killed):
            dying.restores.start(f"{old}-saved")
        head = self.job.context.log.head()
        if head is None or head.state.timeline().head == 0:
            with patch("milepost.jobmaster.rollback.imported_checkpoint.is_provably_dead", lambda holder: True):
                self.job.master.restores.start(f"{old}-saved")
        if self.job.newest is None:  # no checkpoint had read the log
            self.job.forget_rename()
        self.head = int(self.job.context.head().state.timeline().head)
        self.rows, self.since = {0: 0, self.head: rows}, {0: 0, self.head: since}
        self.seen = {} if in_life is None else {self.head: in_life}
        self.saved, self.ancestors = {}, {0: (), self.head: ()}

    @precondition(lambda self: self.head)
    @rule()
    def save(self) -> None:
        name = f"saved-{len(self.saved)}"
        self.job.master.savepoints.create(name)
        self.saved[name] = self.rows[self.head], self.since[self.head], self.seen.get(self.head)

    @precondition(lambda self: self.saved)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.saved)))
        self.job.master.savepoints.cancel()
        self.job.master.restores.start(name)
        self.head = int(self.job.context.head().state.timeline().head)
        self.rows[self.head], self.since[self.head], seen = self.saved[name]
        if seen is not None:
            self.seen[self.head] = seen
        self.ancestors[self.head] = ()

    @invariant()
    def the_tables_have_the_rows_of_the_head(self) -> None:
        """After a kill between a restore's switch and its tables, they follow at the next epoch."""
        if self.head in self.seen and self.job.context.head().state.reconciliation is None:
            self.job.assert_tables(self.rows[self.head], self.since[self.head], *self.seen[self.head])

    def teardown(self) -> None:
        """Land and process the rest: then the tables have every row that was produced and not lost."""
        try:
            self.land()
            before = -1
            while before != self.head:
                before = self.head
                self.epoch()
            since = self.since[self.head] if self.head else self._deleted()
            if (rows := self.produced - len(self.job.lost_rows)) and self.head in self.seen:
                self.job.assert_tables(rows, since)
        finally:
            self._folder.cleanup()


TestLandedHistory = LandedHistory.TestCase
TestLandedHistory.settings = profiles.examples(share=0.4)
