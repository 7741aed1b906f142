"""Pruning against a plain model: exactly the files that retained checkpoints need stay (I8)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from milepost.jobmaster.retention.tables.table_pruning import PrunePlan, execute, plan_pruning
from milepost.jobmaster.retention.tables.table_references import OpenedTable, TableNeeds, TableShare
from milepost.jobmaster.retention.tables.tables_of_job import JobTable
from milepost.protocol.records.checkpoints import CompletedCheckpoint, Holder, ObjectHandle, PendingCheckpoint, Run
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId, Epoch, FencingToken, SessionId, TimelineId
from milepost.protocol.records.layout import checkpoint_prefix
from milepost.protocol.records.manifest_state import (
    Failures,
    JobStatus,
    ManifestState,
    Reconciliation,
    Timeline,
    TimelineRole,
)
from milepost.protocol.records.object_store import ObjectStore
from milepost.protocol.retention.ancestry import drop_empty_timelines
from milepost.protocol.retention.reach import GarbageKeys, ObjectStatus, object_status
from milepost.protocol.retention.retention import RetentionPolicy, minimum_grace_ms, subsumable, unreferenced
from milepost.sinks.contract import SinkMode
from milepost.sinks.staging import compaction
from milepost.tables.records import contents
from milepost.tables.records.table_garbage import GARBAGE
from milepost.tables.records.table_keys import DATA, staged_prefix
from milepost_testkit import profiles
from milepost_testkit.formats.played_manifest import HERE, MAIN, Completed
from milepost_testkit.rows.key_hashes import KEY_HASH_SECRET
from milepost_testkit.stores.job_stores import LaterStore
from tests.conformance.sinks.contract.case import Hook, nothing
from tests.conformance.sinks.contract.sink_machine import Killed, Rows, SinkMachine
from tests.conformance.sinks.formats.local_cases import LocalCase, LocalListed, LocalParquet

TABLE = JobTable("table", HERE, "here", frozenset(), is_current=True)
TIMEOUT_MS = 600_000
GRACE_MS = minimum_grace_ms(TIMEOUT_MS)
FOREIGN = ("notes.txt", f"{DATA}mine.parquet", f"{staged_prefix(1, 1)}readme.md", f"{staged_prefix(1, 1)}0-1.parquet")
_HANDLE = ObjectHandle("chk-00000000000000000001/t00000000000000000001/x", 1, "0" * 64)
_HOLDER = Holder("cli", "host", 1, 1)
_PENDING = PendingCheckpoint(
    CheckpointId(1), Epoch(1), FencingToken(1), NO_CHECKPOINT, _HANDLE, (), 0, 1, Run(), "c", "s", (FencingToken(1),)
)
_COMPLETED = CompletedCheckpoint(
    CheckpointId(1), Epoch(1), TimelineId(MAIN), NO_CHECKPOINT, FencingToken(1), SessionId("cli:x"), _HOLDER, _HANDLE,
    _HANDLE, 0, 0, 1, Run(), "c", "s", ("table",), (),
)  # fmt: skip


class LaterCase(LocalCase):
    """Mixed into a case with tables in a store with a clock that a test moves on."""

    later_ms = 0

    def table_store(self, root: Path) -> ObjectStore:
        return LaterStore(super().table_store(root), later_ms=self.later_ms)


@dataclass(frozen=True)
class Look:
    """What one look at the table saw, and what it allows."""

    needs: TableNeeds
    plan: PrunePlan


class PrunedMachine(SinkMachine):
    """The machine of a sink, whose job retains some checkpoints and looks at its table now and then.

    What is retained, and what nobody can come back to, the real protocol says; the tables are the model's. What goes of
    the job's own storage goes at once, without a grace period.

    Attributes:
        live_from: of each timeline that was ever live. decided: the newest switch; 0: none.
        looks: of those who stall before they act.
    """

    case: ClassVar[LaterCase]

    @initialize()
    def begin(self) -> None:
        self.case.later_ms = 0
        super().begin()
        self.retained: set[int] = set()
        self.live_from = {MAIN: 0}
        self.decided = 0
        self.looks: list[Look] = []
        for key in FOREIGN:
            self.case.table_store(self.root).put(key, b"?")

    # -- the manifest ------------------------------------------------------------------------------------------------

    def state(self, pending: int | None = None) -> ManifestState:
        """What the manifest says. Args: pending: an id that is pending on the live timeline."""
        version, live = self.manifest.version, TimelineId(self.manifest.live)
        switch = None
        if self.decided > self.number:
            shown = CheckpointId(self.steps[self.decided].checkpoint_id)
            switch = Reconciliation(self.decided, live, shown, ("table",))
        checkpoints = [self.completed_checkpoint(self.done[one]) for one in sorted(self.retained)]
        names = dict.fromkeys((MAIN, *(one.timeline for one in self.done.values()), live, *self.forks))
        timelines = tuple(self.timeline(name, pending) for name in names)
        next_id = self.manifest.next_id if pending is None else max(self.manifest.next_id, pending + 1)
        return ManifestState(
            "job", version, CheckpointId(next_id), 1, JobStatus.RUNNING, live,
            drop_empty_timelines(timelines, checkpoints),
            tuple(checkpoints), Failures(), (), KEY_HASH_SECRET, reconciliation=switch,
        )  # fmt: skip

    def completed_checkpoint(self, done: Completed) -> CompletedCheckpoint:
        """One that a switch has decided about since is due no more: the switch is."""
        due = done.timeline == self.manifest.live and done.version > max(self.number, self.decided)
        return replace(
            _COMPLETED,
            checkpoint_id=CheckpointId(done.checkpoint_id),
            timeline=TimelineId(done.timeline),
            parent=_id(done.base),
            trigger_time_ms=done.checkpoint_id,
            version=done.version,
            unconfirmed=("table",) if due else (),
        )

    def timeline(self, name: str, pending: int | None) -> Timeline:
        own = [one for one in self.done.values() if one.timeline == name]
        is_live = name == self.manifest.live
        head = self.manifest.head if is_live else self.forks.get(name, own[-1] if own else None)
        base = own[0].base if own else head
        origin = (TimelineId(base.timeline if base is not None else MAIN), _id(base))
        waiting = None
        if pending is not None and is_live:
            token = FencingToken(self.manifest.version)
            waiting = replace(
                _PENDING, checkpoint_id=CheckpointId(pending), base=_id(head), token=token, prefixes=(token,)
            )
        idle = TimelineRole.FORK if name in self.forks else TimelineRole.ABANDONED
        since = self.live_from.get(name)
        return Timeline(
            TimelineId(name),
            None if name == MAIN else origin,
            None,
            waiting,
            _id(head),
            TimelineRole.LIVE if is_live else idle,
            live_from=None if since is None else CheckpointId(since),
        )

    def shares(self) -> dict[CheckpointId, TableShare]:
        return {CheckpointId(one): {"table": self.done[one].contents} for one in self.retained}

    # -- what the job does -------------------------------------------------------------------------------------------

    def complete(self, done: Completed, rows: Rows) -> None:
        super().complete(done, rows)
        self.retained.add(done.checkpoint_id)

    def targets(self) -> list[Completed | None]:
        return [None, *(self.done[one] for one in self.readable())]

    def readable(self) -> list[int]:
        return sorted(self.retained)

    def switch(self, to: Completed | None, timeline: str | None, who: int, at_once: bool) -> None:
        super().switch(to, timeline, who, at_once)
        self.decided = max(step.number for step in self.steps.values())
        self.live_from[self.manifest.live] = 0 if timeline is None else int(_id(to))

    @rule(last=st.integers(1, 3))
    def retention_takes_what_it_may(self, last: int) -> None:
        """What only the dropped ones refer to is deleted."""
        self.manifest.next_version()
        dropped = set(map(int, subsumable(self.state(), RetentionPolicy(last))))
        store = self.case.job_store(self.root)
        own = [[stat.key for stat in store.list(checkpoint_prefix(CheckpointId(one)))] for one in dropped]
        kept = [self.records(one) for one in self.retained - dropped]
        for entry in unreferenced(kept, [*own, *(self.records(one) for one in dropped)]):
            store.delete([stat.key for stat in store.list(entry)])
        self.retained -= dropped

    def records(self, checkpoint_id: int) -> list[str]:
        return [handle.key for handle in self.done[checkpoint_id].contents.records]

    @rule()
    def somebody_collects_the_records_that_nothing_reaches(self) -> None:
        store = self.case.job_store(self.root)
        listing = [stat.key for stat in store.list("")]
        roots, state = self.needed_records(), self.state()
        found = {key: object_status(state, key, roots, GarbageKeys(frozenset())) for key in listing}
        store.delete([key for key, status in found.items() if status is ObjectStatus.UNREACHABLE])

    def needed_records(self) -> set[str]:
        """The roots of the job's storage: of the retained checkpoints, of the table's mark and of those after it."""
        needs = self.opened().needs(self.state(), self.shares())
        marked = {handle.key for mark in needs.marks if mark.contents for handle in mark.contents.records}
        return marked.union(*(self.records(one) for one in self.retained))

    @precondition(lambda self: self.forks)
    @rule(data=st.data())
    def a_fork_is_disposed_of(self, data: st.DataObject) -> None:
        self.manifest.next_version()
        del self.forks[data.draw(st.sampled_from(sorted(self.forks)))]

    @rule(key=st.integers(0, 5))
    def a_zombie_stages_for_an_aborted_epoch(self, key: int) -> None:
        self.manifest.next_version()
        self.staged(self.writers[0].sink, [[key]])
        self.manifest.next_id += 1

    # -- looks at the table ------------------------------------------------------------------------------------------

    def opened(self) -> OpenedTable:
        sink = self.case.open_sink(self.root)
        return OpenedTable(TABLE, sink, sink.objects())

    def look(self, pending: int | None = None, between: Callable[[], object] = lambda: None) -> Look:
        """One look. Args: between: what happens between the listing and the reading of the manifest."""
        table = self.opened()
        between()
        state = self.state(pending)
        needs = table.needs(state, self.shares())
        plan = plan_pruning(
            state,
            table.label,
            needs,
            table.sink.garbage().lists(),
            [item.stat.key for item in table.objects],
            session_id=None,
            now_ms=table.sink.garbage().clock_ms(),
            timeout_ms=TIMEOUT_MS,
        )
        return Look(needs, plan)

    def act(self, look: Look, before: Hook = nothing) -> None:
        """Do what a look allows, in its order."""
        sink = self.case.open_sink(self.root, before=before)
        execute(sink, look.plan)
        if look.needs.unknown is None:
            below = look.needs.marks[0].number
            try:
                sink.delete_marks(below=below)
            finally:  # whoever dies amid it has forgotten some
                there = {mark.number for mark in self.case.open_sink(self.root).marks(above=0)}
                kept = {number for number in self.links if number >= below or number in there}
                self.links = {number: self.links[number] for number in kept}

    @rule(hours=st.sampled_from([0, 1, 2]), stopped_at=st.integers(0, 6))
    def somebody_looks(self, hours: int, stopped_at: int) -> None:
        """Its process may end before any of its writes; 0: it does not."""
        self.case.later_ms += hours * 3_600_000
        left = [stopped_at]

        def count(operation: str, key: str) -> None:
            if operation in ("table.put", "table.delete", "job.delete"):
                left[0] -= 1
                if left[0] == 0:
                    raise Killed

        look = self.look()
        with suppress(Killed):
            self.act(look, count)

    @rule(data=st.data(), who=st.integers(0, 1))
    def somebody_looks_while_an_epoch_runs(self, data: st.DataObject, who: int) -> None:
        """Its files exist, and nothing refers to them before its commit point, which may come at any moment."""
        self.manifest.next_version()
        checkpoint_id, sink = self.manifest.next_id, self.writers[who].sink
        committable = self.staged(sink, [[1]])
        at_once = data.draw(st.booleans())

        def completed() -> object:
            return self.complete_live(sink, committable, ((1, checkpoint_id),))

        look = self.look(between=completed) if at_once else self.look(checkpoint_id)
        assert look.plan.fresh is None or not {file.key for file in committable.files} & set(look.plan.fresh.files)
        self.act(look)
        if not at_once:
            completed()

    @rule()
    def somebody_looks_and_stalls(self) -> None:
        self.looks.append(self.look())

    @precondition(lambda self: self.looks)
    @rule(data=st.data())
    def the_stalled_one_goes_on(self, data: st.DataObject) -> None:
        """No matter what happened in between, a file that was proven unneeded stays unneeded."""
        look = data.draw(st.sampled_from(self.looks))
        self.looks.remove(look)
        self.act(look)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.come_to_rest()
            for _ in range(2):
                self.case.later_ms += GRACE_MS
                self.act(self.look())
            sink = self.case.open_sink(self.root)
            store = self.case.table_store(self.root)
            assert {stat.key for stat in store.list(DATA)} - set(FOREIGN) == self.needed()
            assert list(store.list(GARBAGE)) == []
            assert all(store.get(key) == b"?" for key in FOREIGN)
            assert [mark.number for mark in sink.marks(above=0)] == [self.number]
            stored = {stat.key for stat in self.case.job_store(self.root).list("chk-")}
            assert stored == self.needed_records()
        super().teardown()

    def come_to_rest(self) -> None:
        """The table follows the newest switch, then shows the live head, which is above checkpoint 0."""
        writer = self.writer()
        if self.decided > self.number:
            self.take_as_expected(self.steps[self.decided], writer)
        checkpoint_id = self.manifest.next_id
        done = self.complete_live(writer.sink, self.staged(writer.sink, [[2]]), ((2, checkpoint_id),))
        for one in self.lineage(done.checkpoint_id):
            due = self.done[one]
            if due.timeline == self.manifest.live and due.version > max(self.number, self.decided):
                assert self.take_as_expected(due.target, writer)

    def needed(self) -> set[str]:
        """The files of the table, now and as of each retained checkpoint."""
        sink = self.case.open_sink(self.root)
        kept = [self.done[one].contents for one in self.retained]
        return {file.key for one in (sink.position().contents, *kept) for file in sink.files(one)}


def _id(done: Completed | None) -> CheckpointId:
    return NO_CHECKPOINT if done is None else CheckpointId(done.checkpoint_id)


class ParquetLater(LaterCase, LocalParquet):
    pass


class UpsertLater(ParquetLater):
    mode = SinkMode.UPSERT


class ListedLater(LaterCase, LocalListed):
    pass


class PrunedAppend(PrunedMachine):
    case = ParquetLater()


class PrunedUpsert(PrunedMachine):
    case = UpsertLater()


class PrunedListed(PrunedMachine):
    case = ListedLater()


@pytest.mark.deep
@pytest.mark.hypothesis
@pytest.mark.parametrize("machine", [PrunedAppend, PrunedUpsert, PrunedListed])
def test_after_any_history_every_retained_checkpoint_reads_as_it_did_and_nothing_else_stays(
    machine: type[PrunedMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8, I14. At most 3 records for one table and compaction from 4 files on, so that short histories meet both."""
    monkeypatch.setattr(contents, "MAX_RECORDS", 3)
    monkeypatch.setattr(compaction, "COMPACT_FILES", 4)
    run_state_machine_as_test(machine, settings=profiles.examples(share=0.12))
