"""A table against a plain model: two writers, forks and rollbacks, and steps that are late, repeated or interrupted."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from milepost.errors import CommitOutcomeUnknown, StateCorrupt, Superseded
from milepost.sinks.contract import Sink, SinkMode, TableTarget
from milepost.tables.records.committables import Committable
from milepost.tables.records.contents import TableContents
from milepost_testkit.formats.played_manifest import Completed, PlayedManifest
from tests.conformance.sinks.contract.case import LIFE, SinkCase, deleting, nothing

SCHEMA = pa.schema([("k", pa.int64()), pa.field("e", pa.int64(), nullable=False)])
WRITERS = 2
OUTCOMES = ["", "", "", "killed before", "killed after", "unknown before", "unknown after"]

Rows = tuple[tuple[int, int | None], ...]
"""Keys, each with its epoch; None: it is deleted."""


class Killed(BaseException):
    """The process died here; nothing of it runs on."""


@dataclass(eq=False)
class Writer:
    """A process that has had the table open for long; `before` and `after` are called around its commits."""

    sink: Sink
    before: Callable[[], None] = lambda: None
    after: Callable[[], None] = lambda: None

    def calm(self) -> None:
        self.before = self.after = lambda: None


class SinkMachine(RuleBasedStateMachine):
    """The model is the number that the table carries, and what each decision left there.

    Attributes:
        steps: every move that was ever decided, by number; a writer may be late to take one.
        number, shown: what the table carries, and the checkpoint that it shows, 0 for nothing.
        links: by number of a mark that is kept: the number that the table carried when it was first tried.
    """

    case: ClassVar[SinkCase]

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.manifest = PlayedManifest(self.case.job_store(self.root))
        self.case.open_sink(self.root).reserve(LIFE)
        self.writers = [self.writer() for _ in range(WRITERS)]
        self.done: dict[int, Completed] = {}
        self.rows: dict[int, Rows] = {}
        self.forks: dict[str, Completed | None] = {}
        self.steps: dict[int, TableTarget] = {}
        self.number = self.shown = 0
        self.links: dict[int, int] = {}

    def teardown(self) -> None:
        if hasattr(self, "root"):
            sink = self.case.open_sink(self.root)
            for checkpoint_id in self.readable():
                contents = self.done[checkpoint_id].contents
                assert self.pairs(sink.read(contents, verify=True)) == self.model(checkpoint_id)
                assert sink.verify(contents) == []
            shutil.rmtree(self.root, ignore_errors=True)

    def writer(self) -> Writer:
        """A process that has just come up."""

        def before(operation: str, subject: str) -> None:
            if operation == "format.commit":
                found.before()

        def after(operation: str, subject: str) -> None:
            if operation == "format.commit":
                found.after()

        found = Writer(self.case.open_sink(self.root, before=before, after=after))
        return found

    # -- the model ---------------------------------------------------------------------------------------------------

    def readable(self) -> list[int]:
        """The checkpoints whose tables can be read."""
        return sorted(self.done)

    def targets(self) -> list[Completed | None]:
        """The checkpoints that a timeline may begin at."""
        return [None, *self.done.values()]

    def lineage(self, checkpoint_id: int) -> list[int]:
        """The checkpoints that lead to this one, itself last; [] for 0."""
        ids: list[int] = []
        at = self.done.get(checkpoint_id)
        while at is not None:
            ids.append(at.checkpoint_id)
            at = at.base
        return ids[::-1]

    def model(self, checkpoint_id: int) -> list[tuple[int, int]]:
        rows = [row for one in self.lineage(checkpoint_id) for row in self.rows[one]]
        latest = sorted(dict(rows).items()) if self.case.mode is SinkMode.UPSERT else rows
        return [(key, epoch) for key, epoch in latest if epoch is not None]

    def expected(self, step: TableTarget) -> bool | None:
        """What the step answers where the table stands now; None: superseded."""
        if self.number < step.number and step.contents is None and not self.is_made():
            return False  # nothing is to be shown, and there is nothing
        if self.number < step.number:
            return True if step.follows in (None, self.shown) else None
        at: int | None = self.number
        while at is not None and at > step.number:
            previous = self.links[at]
            at = previous if previous >= step.number and previous in self.links else None
        return None if at is None else False

    def is_made(self) -> bool:
        """Whether the table is there."""
        return self.case.table_format(self.case.table_store(self.root)).open() is not None

    def recorded(self, step: TableTarget) -> None:
        """The mark's record of a step is there from now on."""
        self.links.setdefault(step.number, self.number)

    def apply(self, step: TableTarget) -> None:
        self.recorded(step)
        self.number, self.shown = step.number, step.checkpoint_id

    def take(self, step: TableTarget, writer: Writer) -> bool | None:
        """Do it; None when it is superseded."""
        try:
            return writer.sink.move(step)
        except Superseded:
            return None

    def take_as_expected(self, step: TableTarget, writer: Writer) -> bool:
        """Do it. Returns: whether it moved the table."""
        expected = self.expected(step)
        assert self.take(step, writer) is expected
        if expected:
            self.apply(step)
        return bool(expected)

    def drawn_step(self, data: st.DataObject, kind: str) -> TableTarget | None:
        """One of the steps; `useful`: one that moves the table on; `tempting`: one that fits but for its number."""
        steps = list(self.steps.values())
        if kind == "useful":
            steps = [step for step in steps if self.expected(step)]
        if kind == "tempting":
            steps = [step for step in steps if step.follows == self.shown and step.number < self.number]
        return data.draw(st.sampled_from(steps)) if steps else None

    # -- the job -----------------------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        keys=st.lists(st.sets(st.integers(0, 5), max_size=3), min_size=1, max_size=2),
        skip=st.integers(0, 2),
        who=st.integers(0, WRITERS - 1),
        at_once=st.booleans(),
    )
    def complete_an_epoch(self, data: st.DataObject, keys: list[set[int]], skip: int, who: int, at_once: bool) -> None:
        """On the live timeline or a fork: stage, prepare, and pass the commit point. Aborted ids leave gaps.

        Of the latest rows some epochs may delete; their rows say so also where none does.
        """
        deleted = data.draw(st.none() | st.sets(st.integers(0, 5))) if self.case.mode is SinkMode.UPSERT else None
        fork = data.draw(st.sampled_from([None, None, *self.forks]))
        self.manifest.next_id += skip
        checkpoint_id = self.manifest.next_id
        owned = [sorted(key for key in part if key % len(keys) == i) for i, part in enumerate(keys)]
        sink = self.writers[who].sink
        committable = self.staged(sink, owned, fork=fork, deleted=deleted)
        rows = tuple((key, None if key in (deleted or ()) else checkpoint_id) for part in owned for key in part)
        if fork is None:
            done = self.complete_live(sink, committable, rows)
            if at_once:
                self.take_as_expected(done.target, self.writers[who])
        else:
            done = self.manifest.completed_on_fork(sink, committable, self.forks[fork], fork)
            self.forks[fork] = done
            self.complete(done, rows)

    def complete_live(self, sink: Sink, committable: Committable, rows: Rows) -> Completed:
        """The next checkpoint of the live timeline is prepared, and passes its commit point."""
        left = 0 if self.manifest.head is None else self.manifest.head.checkpoint_id
        done = self.manifest.completed(sink, committable, waits=self.shown != left)
        self.steps[done.version] = done.target
        self.complete(done, rows)
        return done

    def complete(self, done: Completed, rows: Rows) -> None:
        """A checkpoint passes its commit point."""
        self.done[done.checkpoint_id], self.rows[done.checkpoint_id] = done, rows

    def staged(
        self,
        sink: Sink,
        parts: list[list[int]],
        token: int = 1,
        fork: str | None = None,
        deleted: set[int] | None = None,
    ) -> Committable:
        """Stage an epoch of these keys. Args: deleted: those that it deletes; None: its rows cannot say it."""
        number, schema = self.manifest.next_id, SCHEMA
        tables = [pa.table({"k": part, "e": [number] * len(part)}, schema=schema) for part in parts]
        if deleted is not None:
            tables = [deleting(table, deleted) for table in tables]
            schema = tables[0].schema
        tip = None if fork is None else self.forks[fork]
        return self.manifest.staged(sink, *tables, schema=schema, token=token, forked=fork is not None, on=tip)

    @rule(data=st.data(), who=st.integers(0, WRITERS - 1), at_once=st.booleans())
    def roll_back(self, data: st.DataObject, who: int, at_once: bool) -> None:
        """To any checkpoint that ever was, or to none, as a new live timeline; the one that was live is left."""
        self.switch(data.draw(st.sampled_from(self.targets())), None, who, at_once)

    @precondition(lambda self: len(self.forks) < 2)
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        self.forks[f"t{self.manifest.next_version()}"] = data.draw(st.sampled_from(self.targets()))

    @precondition(lambda self: self.forks)
    @rule(data=st.data(), who=st.integers(0, WRITERS - 1), at_once=st.booleans())
    def fast_forward(self, data: st.DataObject, who: int, at_once: bool) -> None:
        """A fork becomes live, with checkpoints that the table has never seen."""
        fork = data.draw(st.sampled_from(sorted(self.forks)))
        self.switch(self.forks.pop(fork), fork, who, at_once)

    def switch(self, to: Completed | None, timeline: str | None, who: int, at_once: bool) -> None:
        step = self.manifest.switched(to, timeline)
        self.steps[step.number] = step
        if at_once:
            self.take_as_expected(step, self.writers[who])

    # -- the table ---------------------------------------------------------------------------------------------------

    @rule(
        data=st.data(),
        who=st.integers(0, WRITERS - 1),
        end=st.sampled_from(OUTCOMES),
        kind=st.sampled_from(["useful", "tempting", "any"]),
    )
    def somebody_takes_a_step(self, data: st.DataObject, who: int, end: str, kind: str) -> None:
        """In any order, also much too late or too early, in a process that may end badly."""
        step = self.drawn_step(data, kind)
        if step is None:
            return
        writer = self.writers[who]
        error = {"k": Killed(), "u": CommitOutcomeUnknown("no answer")}.get(end[:1])

        def fail() -> None:
            if error is not None:
                raise error

        setattr(writer, "before" if end.endswith("before") else "after", fail)
        if not self.expected(step) or end in ("", "unknown after"):
            self.take_as_expected(step, writer)
        else:
            with pytest.raises((Killed, CommitOutcomeUnknown)):
                self.take(step, writer)
            self.recorded(step)
            if end.endswith("after"):
                self.apply(step)
        writer.calm()
        if end.startswith("killed"):
            self.writers[who] = self.writer()

    @rule(data=st.data(), who=st.integers(0, WRITERS - 1), kind=st.sampled_from(["useful", "any"]))
    def one_stalls_right_before_its_commit_and_the_other_is_faster(
        self, data: st.DataObject, who: int, kind: str
    ) -> None:
        """The stalled one decides again, on what the other one left."""
        stalled, faster = self.drawn_step(data, "useful"), self.drawn_step(data, kind)
        if stalled is None or faster is None:
            return
        writer, other = self.writers[who], self.writers[who - 1]
        moved: list[bool] = []

        def overtake() -> None:
            if not moved:
                self.recorded(stalled)
                moved.append(self.take_as_expected(faster, other))

        writer.before = overtake
        outcome = self.take(stalled, writer)
        writer.calm()
        if moved == [True] and faster.number == stalled.number:
            assert outcome is True, "both carry the write id of one record"
            return
        assert moved and outcome is self.expected(stalled)
        if outcome:
            self.apply(stalled)

    @rule(who=st.integers(0, WRITERS - 1))
    def somebody_forgets_the_marks_that_the_table_is_beyond(self, who: int) -> None:
        self.writers[who].sink.delete_marks(below=self.number)
        self.links = {number: previous for number, previous in self.links.items() if number >= self.number}

    @rule(who=st.integers(0, WRITERS - 1), key=st.integers(0, 5))
    def a_zombie_prepares_what_is_aborted(self, who: int, key: int) -> None:
        """Its files were deleted, so it passes no commit point."""
        sink = self.writers[who].sink
        committable = self.staged(sink, [[key]], token=9)
        sink.abort(checkpoint_id=self.manifest.next_id, token=9)
        with pytest.raises(StateCorrupt):
            self.manifest.completed(sink, committable, waits=True)
        self.manifest.next_id += 1

    @precondition(lambda self: self.done)
    @rule(data=st.data(), who=st.integers(0, WRITERS - 1))
    def somebody_reads_any_checkpoint(self, data: st.DataObject, who: int) -> None:
        """Whatever the table shows."""
        known = self.readable()
        if not known:
            return
        checkpoint_id = data.draw(st.sampled_from(known))
        sink, contents = self.writers[who].sink, self.done[checkpoint_id].contents
        assert self.pairs(sink.read(contents)) == self.model(checkpoint_id)
        change = sink.compare(contents)
        assert (change.rows_now, change.rows_then) == (len(self.model(self.shown)), len(self.model(checkpoint_id)))

    @invariant()
    def the_table_is_where_the_model_stands(self) -> None:
        position = self.case.open_sink(self.root, before=nothing).position()
        assert position.is_known and (position.number, position.checkpoint_id) == (self.number, self.shown)
        assert self.live_files(position.contents)
        if position.contents is not None:
            sink = self.case.open_sink(self.root)
            assert self.pairs(sink.read(position.contents)) == self.model(self.shown)
            if sink.by_buckets:
                assert sorted(self.plain_rows(sink, position.contents)) == self.model(self.shown)

    def plain_rows(self, sink: Sink, contents: TableContents) -> Iterator[tuple[int, int]]:
        """Yield the rows of a table's files, as an engine reads them that knows of no marks."""
        for file in sink.files(contents):
            table = pq.ParquetFile(pa.BufferReader(sink.store.get(file.key))).read()
            assert table.column_names == SCHEMA.names
            yield from self.pairs(table)

    def live_files(self, contents: TableContents | None) -> bool:
        """Return whether just the files of these contents are live, as far as the format says."""
        table = self.case.table_format(self.case.table_store(self.root)).open()
        live = None if table is None else table.live_files()
        return live is None or set(live) == {file.key for file in self.case.open_sink(self.root).files(contents)}

    def pairs(self, table: pa.Table) -> list[tuple[int, int]]:
        return list(zip(table.column("k").to_pylist(), table.column("e").to_pylist(), strict=True))
