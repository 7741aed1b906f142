"""A machine that leads a Parquet sink through any history, beside a plain model of what its table must hold."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from milepost.dataflow.sinks.parquet import ParquetSink

from milepost.dataflow.sinks.committables import Committable, SinkMark
from milepost.dataflow.sinks.contract import SinkMode
from milepost.protocol.codec.records import from_json, to_json
from milepost.protocol.records.errors import CommitOutcomeUnknown, NotFound, StateCorrupt, Superseded
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from tests.harness.stores.hooked_store import HookedStore

SCHEMA = pa.schema([("k", pa.int64()), ("e", pa.int64())])


class Killed(BaseException):
    """The process died here; nothing of it runs on."""


@dataclass(frozen=True)
class Completed:
    """A checkpoint past its commit point in the manifest."""

    mark: SinkMark
    committable: Committable
    rows: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Commit:
    """Somebody commits this checkpoint, now or late."""

    entry: Completed


@dataclass(frozen=True)
class Follow:
    """Somebody lets the table follow a decision, now or late.

    Attributes:
        base: what its content is built on, among what the table had seen when this was decided; 0 for nothing.
    """

    decision: int
    timeline: str
    target: int
    base: int


Step = Commit | Follow

OUTCOMES = ["", "", "", "killed before", "killed after", "unknown before", "unknown after"]


class SinkMachine(RuleBasedStateMachine):
    """The table's model is where it stands: its rows are those of the checkpoints that lead there."""

    mode: ClassVar[SinkMode]

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.next_id = self.next_version = 1
        self.completed: dict[int, Completed] = {}
        self.heads = {"main": 0}  # of the live timeline and of the forks
        self.live = "main"
        self.decisions: list[tuple[int, str, int]] = []
        self.table: tuple[str, int] | None = None
        self.followed = 0
        self.history: set[int] = set()

    def teardown(self) -> None:
        if hasattr(self, "root"):
            sink = self.sink()
            for checkpoint_id in self.readable():
                assert self.pairs(sink.read(checkpoint_id, verify=True)) == self.model(checkpoint_id)
            assert sink.walk().problems == ()
            shutil.rmtree(self.root, ignore_errors=True)

    def sink(
        self, *, before: Callable[[], None] = lambda: None, after: Callable[[], None] = lambda: None
    ) -> ParquetSink:
        """A handle as a new process opens it; the hooks run around the creation of a head."""
        store = HookedStore(
            open_store(StoreConfig(file_url(self.root))),
            before=lambda operation, key: before() if operation == "create" else None,
            after=lambda operation, key: after() if operation == "create" else None,
        )
        key = ("k",) if self.mode is SinkMode.UPSERT else ()
        return ParquetSink("table", job="job", mode=self.mode, key=key, store=store)

    def complete(self, mark: SinkMark, committable: Committable, rows: tuple[tuple[int, int], ...]) -> None:
        """A checkpoint passes its commit point."""
        self.completed[mark.checkpoint_id] = Completed(
            mark, from_json(Committable, to_json(committable), "committable"), rows
        )
        self.heads[mark.timeline] = mark.checkpoint_id

    def open_timeline(self, timeline: str, target: int) -> None:
        """A timeline is at this checkpoint, from which it goes on."""
        self.heads[timeline] = target

    def targets(self) -> list[int]:
        """The checkpoints that a timeline may begin at."""
        return [0, *self.completed]

    def may_commit(self, entry: Completed) -> bool:
        """Whether somebody may commit it."""
        return True

    def bases(self, target: int) -> list[int]:
        """The checkpoints that the content of a follow to this one may be built on, oldest first."""
        return [0, *(one for one in self.lineage(target) if one in self.history)]

    def readable(self) -> set[int]:
        """The checkpoints whose tables can be read."""
        return self.history

    def lineage(self, checkpoint_id: int) -> list[int]:
        """The checkpoints that lead to this one, itself last; [] for 0."""
        ids: list[int] = []
        while checkpoint_id:
            ids.append(checkpoint_id)
            checkpoint_id = self.completed[checkpoint_id].mark.predecessor or 0
        return ids[::-1]

    def model(self, checkpoint_id: int) -> list[tuple[int, int]]:
        rows = [row for one in self.lineage(checkpoint_id) for row in self.completed[one].rows]
        return sorted(dict(rows).items()) if self.mode is SinkMode.UPSERT else rows

    def expected(self, step: Step) -> bool | None:
        """What the step answers where the table stands now; None: superseded."""
        if isinstance(step, Follow):
            return None if step.decision < self.followed else step.decision > self.followed
        mark = step.entry.mark
        if self.table is not None and mark.checkpoint_id in self.lineage(self.table[1]):
            return False
        fits = mark.predecessor is None if self.table is None else self.table == (mark.timeline, mark.predecessor or 0)
        return True if fits else None

    def apply(self, step: Step) -> None:
        if isinstance(step, Follow):
            self.table, self.followed = (step.timeline, step.target), step.decision
        else:
            self.table = (step.entry.mark.timeline, step.entry.mark.checkpoint_id)
        self.history |= set(self.lineage(self.table[1]))

    def take(self, step: Step, sink: ParquetSink) -> bool | None:
        """Do it; None when it is superseded."""
        try:
            if isinstance(step, Commit):
                return sink.commit(step.entry.committable, step.entry.mark)
            base = self.sink().find(step.base) if step.base else None
            assert (base is not None) == (step.base > 0)
            missing = [one for one in self.lineage(step.target) if one > step.base]
            return sink.follow(
                base=base,
                committables=[(CheckpointId(one), self.completed[one].committable) for one in missing],
                mark=SinkMark(step.timeline, step.target, step.base or None),
                decision=step.decision,
            )
        except Superseded:
            return None

    def take_as_expected(self, step: Step, sink: ParquetSink | None = None) -> None:
        assert self.take(step, sink or self.sink()) is self.expected(step)
        if self.expected(step):
            self.apply(step)

    def drawn_step(self, data: st.DataObject, kind: str) -> Step | None:
        """One of these steps that somebody may still take.

        Args:
            kind: any; useful: it moves the table on; tempting: a commit right after the checkpoint that the table
                shows, of another timeline than it is on.
        """
        steps: list[Step] = [Commit(entry) for entry in self.completed.values() if self.may_commit(entry)]
        for decision, timeline, target in self.decisions:
            bases = self.bases(target)
            steps += [Follow(decision, timeline, target, base) for base in {bases[-1], bases[len(bases) // 2]}]
        if kind == "useful":
            steps = [step for step in steps if self.expected(step)]
        if kind == "tempting":
            steps = [step for step in steps if isinstance(step, Commit) and self._tempts(step.entry.mark)]
        return data.draw(st.sampled_from(steps)) if steps else None

    def _tempts(self, mark: SinkMark) -> bool:
        return self.table is not None and self.table[1] == (mark.predecessor or 0) and self.table[0] != mark.timeline

    @rule(
        data=st.data(),
        keys=st.lists(st.sets(st.integers(0, 5), max_size=3), min_size=1, max_size=2),
        skip=st.integers(0, 2),
        compact=st.booleans(),
    )
    def complete_an_epoch(self, data: st.DataObject, keys: list[set[int]], skip: int, compact: bool) -> None:
        """On the live timeline or a fork: stage, prepare, maybe compact, and pass the commit point.

        Ids of aborted checkpoints leave gaps.
        """
        timeline = data.draw(st.sampled_from([self.live, *self.heads]))
        checkpoint_id = self.next_id + skip
        self.next_id = checkpoint_id + 1
        mark = SinkMark(timeline, checkpoint_id, self.heads[timeline] or None)
        owned = [sorted(key for key in part if key % len(keys) == i) for i, part in enumerate(keys)]
        committable = self._stage(checkpoint_id, owned, token=1)
        sink = self.sink()
        at_its_place = self.table == (timeline, mark.predecessor or 0)
        sink.prepare(committable, mark=mark if at_its_place else None)
        if compact:
            committable = sink.compact(committable, predecessor=mark.predecessor, checkpoint_id=checkpoint_id, token=1)
        rows = tuple((key, checkpoint_id) for part in owned for key in part)
        self.complete(mark, committable, rows)

    def _stage(self, checkpoint_id: int, parts: list[list[int]], token: int) -> Committable:
        sink = self.sink()
        tables = [
            pa.table([pa.array(p, pa.int64()), pa.array([checkpoint_id] * len(p), pa.int64())], schema=SCHEMA)
            for p in parts
        ]
        return sink.committable(
            (sink.stage(t, checkpoint_id=checkpoint_id, token=token, subtask=i) for i, t in enumerate(tables)), SCHEMA
        )

    @rule(data=st.data(), follow_at_once=st.booleans())
    def roll_back(self, data: st.DataObject, follow_at_once: bool) -> None:
        """To any checkpoint that ever was, or to none, as a new live timeline; the one that was live is left."""
        target = data.draw(st.sampled_from(self.targets()))
        timeline = f"t{self._version()}"
        del self.heads[self.live]
        self._switch(timeline, target, follow_at_once)

    @precondition(lambda self: len(self.heads) < 3)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        self.open_timeline(f"t{self._version()}", data.draw(st.sampled_from(self.targets())))

    @precondition(lambda self: len(self.heads) > 1)
    @rule(data=st.data(), follow_at_once=st.booleans())
    def fast_forward(self, data: st.DataObject, follow_at_once: bool) -> None:
        """A fork becomes live, with checkpoints that the table has never seen."""
        fork = data.draw(st.sampled_from([timeline for timeline in self.heads if timeline != self.live]))
        del self.heads[self.live]
        self._switch(fork, self.heads[fork], follow_at_once)

    def _version(self) -> int:
        self.next_version += 1
        return self.next_version

    def _switch(self, timeline: str, target: int, follow_at_once: bool) -> None:
        self.open_timeline(timeline, target)
        self.live = timeline
        decision = self._version()
        self.decisions.append((decision, timeline, target))
        if follow_at_once:
            self.take_as_expected(Follow(decision, timeline, target, self.bases(target)[-1]))

    @rule(data=st.data(), end=st.sampled_from(OUTCOMES), kind=st.sampled_from(["useful", "tempting", "any"]))
    def somebody_takes_a_step(self, data: st.DataObject, end: str, kind: str) -> None:
        """Commit or follow, in any order, also much too late or too early, in a process that may end badly."""
        step = self.drawn_step(data, kind)
        if step is None:
            return
        error = {"k": Killed(), "u": CommitOutcomeUnknown("no answer")}.get(end[:1])

        def fail() -> None:
            if error is not None:
                raise error

        sink = self.sink(before=fail) if end.endswith("before") else self.sink(after=fail)
        if not self.expected(step) or end in ("", "unknown after"):
            self.take_as_expected(step, sink)
            return
        with pytest.raises((Killed, CommitOutcomeUnknown)):
            self.take(step, sink)
        if end.endswith("after"):
            self.apply(step)

    @rule(data=st.data())
    def one_stalls_right_before_its_head_and_another_is_faster(self, data: st.DataObject) -> None:
        """The stalled one decides again, on what the other one left."""
        stalled, faster = self.drawn_step(data, "useful"), self.drawn_step(data, "any")
        if stalled is None or faster is None:
            return
        arrived: list[bool] = []

        def other() -> None:
            if not arrived:
                arrived.append(True)
                self.take_as_expected(faster)

        outcome = self.take(stalled, self.sink(before=other))
        assert arrived
        assert outcome is self.expected(stalled)
        if outcome:
            self.apply(stalled)

    @rule(key=st.integers(0, 5))
    def abort_an_epoch_and_commit_it_late(self, key: int) -> None:
        """A zombie stages for an id that is aborted; its commit comes when its files are gone."""
        checkpoint_id = self.next_id
        self.next_id += 1
        committable = self._stage(checkpoint_id, [[key]], token=9)
        self.sink().abort(checkpoint_id=checkpoint_id, token=9)
        with pytest.raises((Superseded, StateCorrupt)):
            self.sink().commit(committable, SinkMark(self.live, checkpoint_id, self.heads[self.live] or None))

    @precondition(lambda self: self.history)
    @rule(data=st.data())
    def abort_a_published_one(self, data: st.DataObject) -> None:
        self.sink().abort(checkpoint_id=data.draw(st.sampled_from(sorted(self.history))), token=1)

    @precondition(lambda self: self.completed)
    @rule(data=st.data())
    def look_for_any_one(self, data: st.DataObject) -> None:
        """Whatever the table ever showed can be found, of whatever timeline, and read while it is kept."""
        checkpoint_id = data.draw(st.sampled_from(sorted(self.completed)))
        sink = self.sink()
        lineage = self.lineage(self.table[1]) if self.table else []
        assert sink.is_committed(self.completed[checkpoint_id].mark) is (checkpoint_id in lineage)
        found = sink.find(checkpoint_id)
        assert (found is not None) == (checkpoint_id in self.history)
        if found is None:
            with pytest.raises(NotFound):
                sink.read(checkpoint_id)
            return
        assert found.checkpoint_id == checkpoint_id
        if checkpoint_id in self.readable():
            assert self.pairs(sink.read(checkpoint_id, verify=True)) == self.model(checkpoint_id)
            assert sink.verify(checkpoint_id, deep=True) == []

    def pairs(self, table: pa.Table) -> list[tuple[int, int]]:
        return list(zip(table.column("k").to_pylist(), table.column("e").to_pylist(), strict=True))

    @invariant()
    def the_table_is_where_the_model_stands(self) -> None:
        sink = self.sink()
        head = sink.head()
        assert (head and (head.timeline, head.checkpoint_id)) == self.table
        lineage = self.lineage(self.table[1]) if self.table else []
        if lineage or (self.table and self.history):
            assert self.pairs(sink.read()) == self.model(lineage[-1] if lineage else 0)
        else:
            with pytest.raises(NotFound):
                sink.read()
        if head is not None:
            assert sink.verify() == []
