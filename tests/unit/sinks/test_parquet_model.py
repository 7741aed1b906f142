"""The Parquet sink beside a plain model: any history of stage, compact, commit, late commit, crash, abort, read."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from pipeline.protocol.errors import CommitOutcomeUnknown, NotFound, StateCorrupt, Superseded
from pipeline.protocol.locations import file_url
from pipeline.protocol.object_store import StoreConfig
from pipeline.sinks import parquet, sink_chain
from pipeline.sinks.contract import Committable, SinkMark
from pipeline.sinks.parquet import ParquetSink, SinkMode
from pipeline.storage.open import open_store
from tests.harness.hooked_store import Hook, HookedStore

SCHEMA = pa.schema([("k", pa.int64()), ("e", pa.int64())])


class Killed(BaseException):
    """The process died here; nothing of it runs on."""


@dataclass(frozen=True)
class Completed:
    """A checkpoint past its commit point in the manifest."""

    mark: SinkMark
    committable: Committable
    rows: tuple[tuple[int, int], ...]


class SinkMachine(RuleBasedStateMachine):
    mode: ClassVar[SinkMode]

    @initialize()
    def begin(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.next_id = 1
        self.completed: list[Completed] = []
        self.committed = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def sink(self, *, before: BaseException | None = None, after: BaseException | None = None) -> ParquetSink:
        """A handle as a new process opens it; the hooks fire around the creation of a head."""

        def hook(error: BaseException | None) -> Hook:
            def run(operation: str, key: str) -> None:
                if error is not None and operation == "create":
                    raise error

            return run

        store = HookedStore(open_store(StoreConfig(file_url(self.root))), before=hook(before), after=hook(after))
        key = ("k",) if self.mode is SinkMode.UPSERT else ()
        return ParquetSink("table", job="job", mode=self.mode, key=key, store=store)

    def model(self, upto: int) -> list[tuple[int, int]]:
        rows = [row for entry in self.completed[:upto] for row in entry.rows]
        return sorted(dict(rows).items()) if self.mode is SinkMode.UPSERT else rows

    def predecessor(self) -> int | None:
        return self.completed[-1].mark.checkpoint_id if self.completed else None

    @rule(
        keys=st.lists(st.sets(st.integers(0, 5), max_size=3), min_size=1, max_size=2),
        skip=st.integers(0, 2),
        compact=st.booleans(),
    )
    def complete_an_epoch(self, keys: list[set[int]], skip: int, compact: bool) -> None:
        """Stage, prepare, maybe compact, and pass the commit point; ids of aborted checkpoints leave gaps."""
        checkpoint_id = self.next_id + skip
        self.next_id = checkpoint_id + 1
        mark = SinkMark("main", checkpoint_id, self.predecessor())
        owned = [sorted(key for key in part if key % len(keys) == i) for i, part in enumerate(keys)]
        committable = self._stage(checkpoint_id, owned, token=1)
        sink = self.sink()
        sink.prepare(committable, mark=mark)
        if compact:
            committable = sink.compact(committable, predecessor=mark.predecessor, checkpoint_id=checkpoint_id, token=1)
        rows = tuple((key, checkpoint_id) for part in owned for key in part)
        self.completed.append(Completed(mark, Committable.from_json(committable.to_json()), rows))

    def _stage(self, checkpoint_id: int, parts: list[list[int]], token: int) -> Committable:
        sink = self.sink()
        tables = [
            pa.table([pa.array(p, pa.int64()), pa.array([checkpoint_id] * len(p), pa.int64())], schema=SCHEMA)
            for p in parts
        ]
        return sink.committable(
            (sink.stage(t, checkpoint_id=checkpoint_id, token=token, subtask=i) for i, t in enumerate(tables)), SCHEMA
        )

    @precondition(lambda self: self.committed < len(self.completed))
    @rule(end=st.sampled_from(["", "killed before", "killed after", "unknown before", "unknown after"]))
    def commit_the_next(self, end: str) -> None:
        """Commit the oldest completed epoch that is not in the table yet, in a process that may end badly."""
        entry = self.completed[self.committed]
        error = {"": None, "k": Killed(), "u": CommitOutcomeUnknown("no answer")}[end[:1]]
        sink = self.sink(
            before=error if end.endswith("before") else None, after=error if end.endswith("after") else None
        )
        if end in ("", "unknown after"):
            assert sink.commit(entry.committable, entry.mark) is True
        else:
            with pytest.raises((Killed, CommitOutcomeUnknown)):
                sink.commit(entry.committable, entry.mark)
        if not end.endswith("before"):
            self.committed += 1

    @precondition(lambda self: self.committed > 0)
    @rule(data=st.data())
    def commit_an_old_one_again(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.completed[: self.committed]))
        assert self.sink().commit(entry.committable, entry.mark) is False

    @precondition(lambda self: self.committed + 1 < len(self.completed))
    @rule(data=st.data())
    def commit_too_early(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.completed[self.committed + 1 :]))
        with pytest.raises(Superseded):
            self.sink().commit(entry.committable, entry.mark)

    @rule(key=st.integers(0, 5))
    def abort_an_epoch_and_commit_it_late(self, key: int) -> None:
        """A zombie stages for an id that is aborted; its commit comes when its files are gone."""
        checkpoint_id = self.next_id
        self.next_id += 1
        committable = self._stage(checkpoint_id, [[key]], token=9)
        self.sink().abort(checkpoint_id=checkpoint_id, token=9)
        with pytest.raises((Superseded, StateCorrupt)):
            self.sink().commit(committable, SinkMark("main", checkpoint_id, self.predecessor()))

    @precondition(lambda self: self.committed > 0)
    @rule(data=st.data())
    def abort_a_published_one(self, data: st.DataObject) -> None:
        entry = data.draw(st.sampled_from(self.completed[: self.committed]))
        self.sink().abort(checkpoint_id=entry.mark.checkpoint_id, token=1)

    @precondition(lambda self: self.committed > 0)
    @rule(data=st.data())
    def read_an_older_one(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, self.committed - 1))
        found = self.sink().read(self.completed[index].mark.checkpoint_id, verify=True)
        assert self.pairs(found) == self.model(index + 1)

    def pairs(self, table: pa.Table) -> list[tuple[int, int]]:
        return list(zip(table.column("k").to_pylist(), table.column("e").to_pylist(), strict=True))

    @invariant()
    def the_head_is_what_was_committed(self) -> None:
        sink = self.sink()
        if self.committed == 0:
            assert sink.head() is None
            with pytest.raises(NotFound):
                sink.read()
            return
        assert sink.head() == self.completed[self.committed - 1].mark
        assert self.pairs(sink.read()) == self.model(self.committed)
        assert sink.verify(deep=True) == []
        for index, entry in enumerate(self.completed):
            assert sink.is_committed(entry.mark) is (index < self.committed)


class AppendMachine(SinkMachine):
    mode = SinkMode.APPEND


class UpsertMachine(SinkMachine):
    mode = SinkMode.UPSERT


@pytest.mark.parametrize("machine", [AppendMachine, UpsertMachine])
def test_any_history_of_commits_crashes_and_reads_equals_the_model(
    machine: type[SinkMachine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I14. Snapshots every 3 heads and compaction from 4 files on, so that short histories meet both."""
    monkeypatch.setattr(sink_chain, "SNAPSHOT_EVERY", 3)
    monkeypatch.setattr(parquet, "COMPACT_FILES", 4)
    run_state_machine_as_test(machine, settings=settings(max_examples=40, stateful_step_count=20, deadline=None))
