"""Pruning beside a plain model: whatever happened, what retained checkpoints need stays, and nothing else does (I8)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test
from milepost.dataflow.sinks.parquet import ParquetSink
from milepost.dataflow.sinks.sink_head import SinkHead

from milepost.dataflow.sinks import parquet, sink_chain
from milepost.dataflow.sinks.committables import Committable, SinkMark
from milepost.dataflow.sinks.contract import SinkMode
from milepost.epoch.metadata import SinkPosition, SinkSnapshot
from milepost.jobmaster.retention.table_pruning import PrunePlan, carry_out, plan_pruning
from milepost.jobmaster.retention.table_references import TableShare, staged_files, table_needs
from milepost.protocol.records.checkpoints import CompletedCheckpoint, Holder, ObjectHandle, PendingCheckpoint, Run
from milepost.protocol.records.ids import NO_CHECKPOINT, CheckpointId, Epoch, FencingToken, SessionId, TimelineId
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.manifest_state import (
    Failures,
    JobStatus,
    ManifestState,
    Reconciliation,
    Timeline,
    TimelineRole,
)
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.retention.lineage import still_listed
from milepost.protocol.retention.retention import RetentionPolicy, minimum_grace_ms, subsumable
from milepost.storage.open import open_store
from tests.harness.jobs.job_log import KEY_HASH_SECRET
from tests.harness.stores.hooked_store import HookedStore
from tests.harness.stores.sink_machine import Commit, Completed, Follow, Killed, SinkMachine

TIMEOUT_MS = 600_000
GRACE_MS = minimum_grace_ms(TIMEOUT_MS)
_HANDLE = ObjectHandle("chk-00000000000000000001/t00000000000000000001/x", 1, "0" * 64)
_HOLDER = Holder("cli", "host", 1, 1)
_PENDING = PendingCheckpoint(
    CheckpointId(1), Epoch(1), FencingToken(1), NO_CHECKPOINT, _HANDLE, (), 0, 1, Run(), "c", "s", (FencingToken(1),)
)
_COMPLETED = CompletedCheckpoint(
    CheckpointId(1), Epoch(1), TimelineId("main"), NO_CHECKPOINT, FencingToken(1), SessionId("cli:x"), _HOLDER, _HANDLE,
    _HANDLE, 0, 0, Run(), "c", "s", ("table",), (),
)  # fmt: skip


@dataclass(eq=False)
class Later(HookedStore):
    """The same objects, so much later."""

    later_ms: int = 0

    def clock_ms(self) -> int:
        return self.inner.clock_ms() + self.later_ms


class PrunedMachine(SinkMachine):
    """The machine of a sink, whose job retains some checkpoints and looks at its table now and then.

    What is retained, and what nobody can come back to, the real protocol says; the tables are the model's.
    """

    @initialize()
    def begin(self) -> None:
        super().begin()
        self.now_ms = 0
        self.retained: set[int] = set()
        self.parents: dict[str, tuple[str, int] | None] = {"main": None}
        self.plans: list[PrunePlan] = []
        self.foreign = [
            "notes.txt",
            "data/mine.parquet",
            f"data/chk-{1:020d}/t1/readme.md",
            f"data/chk-{1:020d}/t1/0-1.parquet",
        ]
        for key in self.foreign:
            open_store(StoreConfig(file_url(self.root))).put(key, b"?")

    def store(self, before: Callable[[str, str], None] = lambda operation, key: None) -> HookedStore:
        return Later(open_store(StoreConfig(file_url(self.root))), before=before, later_ms=self.now_ms)

    def table_at(self, store: HookedStore) -> ParquetSink:
        key = ("k",) if self.mode is SinkMode.UPSERT else ()
        return ParquetSink("table", job="job", mode=self.mode, key=key, store=store)

    # -- the manifest ------------------------------------------------------------------------------------------------

    def state(self, pending: int | None = None) -> ManifestState:
        """What the manifest says. Args: pending: an id that is pending on the live timeline."""
        aligned = not self.decisions or self.followed == self.decisions[-1][0]
        checkpoints = []
        for checkpoint_id in sorted(self.retained):
            mark = self.completed[checkpoint_id].mark
            shown = checkpoint_id in self.history
            due = aligned and mark.timeline == self.live and not shown
            checkpoints.append(
                replace(
                    _COMPLETED,
                    checkpoint_id=CheckpointId(checkpoint_id),
                    timeline=TimelineId(mark.timeline),
                    parent=CheckpointId(mark.predecessor or 0),
                    trigger_time_ms=checkpoint_id,
                    unconfirmed=("table",) if due else (),
                    unpublished=() if shown else ("table",),
                )
            )
        timelines = []
        for name, parent in self.parents.items():
            role = TimelineRole.LIVE if name == self.live else TimelineRole.FORK
            own = [one for one, entry in self.completed.items() if entry.mark.timeline == name]
            head = self.heads.get(name, max(own, default=0))
            waiting = None
            if pending is not None and name == self.live:
                token = FencingToken(self.next_version)
                waiting = replace(
                    _PENDING,
                    checkpoint_id=CheckpointId(pending),
                    base=CheckpointId(head),
                    token=token,
                    prefixes=(token,),
                )
            timelines.append(
                Timeline(
                    TimelineId(name),
                    None if parent is None else (TimelineId(parent[0]), CheckpointId(parent[1])),
                    None,
                    waiting,
                    CheckpointId(head),
                    role if name in self.heads else TimelineRole.ABANDONED,
                )
            )
        switch = None
        if not aligned:
            decision, timeline, target = self.decisions[-1]
            switch = Reconciliation(decision, TimelineId(timeline), CheckpointId(target), ("table",))
        return ManifestState(
            "job", self.next_version, CheckpointId(self.next_id), 1, JobStatus.RUNNING, TimelineId(self.live),
            still_listed(tuple(timelines), checkpoints), tuple(checkpoints), Failures(), (),
            KEY_HASH_SECRET, reconciliation=switch,
        )  # fmt: skip

    def shares(self) -> dict[CheckpointId, TableShare]:
        found = {}
        for checkpoint_id in self.retained:
            entry = self.completed[checkpoint_id]
            snapshot = SinkSnapshot(entry.committable, entry.mark.predecessor, "here")
            found[CheckpointId(checkpoint_id)] = TableShare(
                {"table": SinkPosition(checkpoint_id, "here")}, {"table": snapshot}
            )
        return found

    # -- what the job does -------------------------------------------------------------------------------------------

    def complete(self, mark: SinkMark, committable: Committable, rows: tuple[tuple[int, int], ...]) -> None:
        super().complete(mark, committable, rows)
        self.retained.add(mark.checkpoint_id)

    def targets(self) -> list[int]:
        return [0, *sorted(self.retained)]

    def may_commit(self, entry: Completed) -> bool:
        """No line commits before the table has followed the switch to it (I14: whoever commits reconciles first)."""
        followed = {timeline for decision, timeline, _ in self.decisions if decision <= self.followed}
        return entry.mark.timeline in {"main", *followed}

    def bases(self, target: int) -> list[int]:
        return super().bases(target)[-1:]

    def open_timeline(self, timeline: str, target: int) -> None:
        owner = self.completed[target].mark.timeline if target else self.live
        self.parents.setdefault(timeline, (owner, target))
        super().open_timeline(timeline, target)

    def readable(self) -> set[int]:
        return self.history & self.retained

    @rule(last=st.integers(1, 3))
    def retention_takes_what_it_may(self, last: int) -> None:
        self.next_version += 1
        self.retained -= set(subsumable(self.state(), RetentionPolicy(last)))

    @precondition(lambda self: len(self.heads) > 1)
    @rule(data=st.data())
    def a_fork_is_disposed_of(self, data: st.DataObject) -> None:
        self.next_version += 1
        del self.heads[data.draw(st.sampled_from([timeline for timeline in self.heads if timeline != self.live]))]

    @rule(key=st.integers(0, 5))
    def a_zombie_stages_for_an_aborted_epoch(self, key: int) -> None:
        self.next_id += 1
        self.next_version += 1
        self._stage(self.next_id - 1, [[key]], token=1)

    # -- looks at the table ------------------------------------------------------------------------------------------

    def look(self, pending: int | None = None, between: Callable[[], None] = lambda: None) -> PrunePlan:
        """One look. Args: between: what happens between the listing and the reading of the manifest."""
        sink = self.table_at(self.store())
        listing = [item.stat.key for item in sink.objects()]
        between()
        state = self.state(pending)
        needs = table_needs(state, self.shares(), "table", "here", sink.history())
        lists, now_ms = sink.garbage().lists(), sink.garbage().clock_ms()
        return plan_pruning(
            state, "table", needs, lists, listing, session_id=None, now_ms=now_ms, timeout_ms=TIMEOUT_MS
        )

    @rule(hours=st.sampled_from([0, 1, 2]), stopped_at=st.integers(0, 6))
    def somebody_looks(self, hours: int, stopped_at: int) -> None:
        """Its process may end before any of its writes; 0: it does not."""
        self.now_ms += hours * 3_600_000
        left = [stopped_at]

        def count(operation: str, key: str) -> None:
            if operation in ("put", "delete"):
                left[0] -= 1
                if left[0] == 0:
                    raise Killed

        plan = self.look()
        with suppress(Killed):
            carry_out(self.table_at(self.store(count)), plan)

    @rule(data=st.data())
    def somebody_looks_while_an_epoch_runs(self, data: st.DataObject) -> None:
        """Its files lie there, and nothing refers to them before its commit point, which comes at any moment."""
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        self.next_version += 1
        mark = SinkMark(self.live, checkpoint_id, self.heads[self.live] or None)
        committable = self._stage(checkpoint_id, [[1]], token=1)
        completed = lambda: self.complete(mark, committable, ((1, checkpoint_id),))  # noqa: E731
        at_once = data.draw(st.booleans())
        plan = self.look(None if at_once else checkpoint_id, between=completed if at_once else lambda: None)
        assert plan.fresh is None or not {file.key for file in committable.files} & set(plan.fresh.files)
        carry_out(self.table_at(self.store()), plan)
        if not at_once:
            completed()

    @rule()
    def somebody_looks_and_stalls(self) -> None:
        self.plans.append(self.look())

    @precondition(lambda self: self.plans)
    @rule(data=st.data())
    def the_stalled_one_goes_on(self, data: st.DataObject) -> None:
        """Whatever came in between: what was proven unneeded is unneeded for ever."""
        plan = data.draw(st.sampled_from(self.plans))
        self.plans.remove(plan)
        carry_out(self.table_at(self.store()), plan)

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.come_to_rest()
            for _ in range(2):
                self.now_ms += GRACE_MS
                carry_out(self.table_at(self.store()), self.look())
            store = self.store()
            stored = {stat.key for stat in store.list("data/")} - set(self.foreign)
            assert stored == self.needed()
            assert list(store.list("_garbage/")) == []
            follows = sum(head.followed is not None for head in self.all_heads())
            assert len(list(store.list("_snapshots/"))) <= 1 + 2 * follows + len(self.retained)
            assert all(store.get(key) == b"?" for key in self.foreign)
        super().teardown()

    def all_heads(self) -> list[SinkHead]:
        history = self.table_at(self.store()).history()
        return [history.at(version) for version in range(1, history.version + 1)]

    def come_to_rest(self) -> None:
        """The table follows the newest switch, then shows the live head, which is above checkpoint 0."""
        if self.decisions and self.followed < self.decisions[-1][0]:
            decision, timeline, target = self.decisions[-1]
            self.take_as_expected(Follow(decision, timeline, target, self.bases(target)[-1]))
        checkpoint_id, self.next_id = self.next_id, self.next_id + 1
        mark = SinkMark(self.live, checkpoint_id, self.heads[self.live] or None)
        self.complete(mark, self._stage(checkpoint_id, [[2]], token=1), ((2, checkpoint_id),))
        for one in self.lineage(checkpoint_id):
            if one not in self.history:
                self.take_as_expected(Commit(self.completed[one]))

    def needed(self) -> set[str]:
        """The files of the table, now and as of each retained checkpoint, and those that may yet be published."""
        sink = self.sink()
        files = {file.key for file in sink.contents(sink.head(), []).files}
        for checkpoint_id in self.retained:
            while checkpoint_id and checkpoint_id not in self.history:
                files |= {file.key for file in staged_files(self.completed[checkpoint_id].committable)}
                checkpoint_id = self.completed[checkpoint_id].mark.predecessor or 0
            if checkpoint_id:
                files |= {file.key for file in sink.contents(sink.find(checkpoint_id), []).files}
        return files


class PrunedAppend(PrunedMachine):
    mode = SinkMode.APPEND


class PrunedUpsert(PrunedMachine):
    mode = SinkMode.UPSERT


@pytest.mark.parametrize("machine", [PrunedAppend, PrunedUpsert])
def test_after_any_history_every_retained_checkpoint_reads_as_it_did_and_nothing_else_stays(
    machine: type[PrunedMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I8, I14. Snapshots every 3 heads and compaction from 4 files on, so that short histories meet both."""
    monkeypatch.setattr(sink_chain, "SNAPSHOT_EVERY", 3)
    monkeypatch.setattr(parquet, "COMPACT_FILES", 4)
    run_state_machine_as_test(machine, settings=settings(max_examples=12, stateful_step_count=25, deadline=None))
