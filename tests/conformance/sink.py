"""What every sink guarantees (I14), whatever its format: subclass `SinkTests` and say how to open a sink."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.dataflow.sinks.committables import Committable, SinkMark
from milepost.dataflow.sinks.contract import Sink
from milepost.protocol.codec.records import from_json, to_json
from milepost.protocol.records.errors import CommitOutcomeUnknown, InvalidRequest, NotFound, StateCorrupt, Superseded

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
WAIT_S = 240


def rows(*pairs: tuple[int, str], schema: pa.Schema = SCHEMA) -> pa.Table:
    """A table of (k, v, …) rows."""
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(zip(*pairs, strict=True), schema, strict=True)],
        schema=schema,
    )


def mark(checkpoint_id: int, predecessor: int | None, timeline: str = "main") -> SinkMark:
    return SinkMark(timeline, checkpoint_id, predecessor)


def stage(sink: Sink, checkpoint_id: int, *tables: pa.Table, token: int = 1, schema: pa.Schema = SCHEMA) -> Committable:
    """Stage one table per subtask."""
    files = [sink.stage(table, checkpoint_id=checkpoint_id, token=token, subtask=i) for i, table in enumerate(tables)]
    return sink.committable(files, schema)


def publish(sink: Sink, checkpoint_id: int, predecessor: int | None, *tables: pa.Table) -> Committable:
    """Stage, prepare and commit; the commit must be this call's own."""
    committable = stage(sink, checkpoint_id, *tables)
    sink.prepare(committable, mark=mark(checkpoint_id, predecessor))
    assert sink.commit(committable, mark(checkpoint_id, predecessor)) is True
    return committable


class SinkTests:
    """Subclasses give `open_sink`; keys of one epoch are distinct, so append and upsert pass the same tests."""

    def open_sink(
        self,
        root: Path,
        *,
        job: str = "job",
        name: str = "table",
        before_publish: Callable[[], None] = lambda: None,
        after_publish: Callable[[], None] = lambda: None,
    ) -> Sink:
        """A new handle on the table at `root`, with hooks around the one atomic step that makes a commit visible."""
        raise AssertionError("a subclass of SinkTests opens its sink")

    def published(self, sink: Sink, checkpoint_id: int | None = None) -> list[tuple[int, str]]:
        """The table's rows, sorted."""
        table = sink.read(checkpoint_id)
        return sorted(zip(table.column("k").to_pylist(), table.column("v").to_pylist(), strict=True))

    def test_what_is_staged_or_prepared_is_invisible_until_the_commit(self, tmp_path: Path) -> None:
        """I14: the commit is the only moment at which rows appear."""
        sink = self.open_sink(tmp_path)
        committable = stage(sink, 1, rows((1, "a")), rows((2, "b")))
        sink.prepare(committable, mark=mark(1, None))
        assert sink.head() is None
        with pytest.raises(NotFound):
            sink.read()
        assert not sink.is_committed(mark(1, None))
        assert sink.commit(committable, mark(1, None)) is True
        assert self.published(self.open_sink(tmp_path)) == [(1, "a"), (2, "b")]
        assert sink.head() == mark(1, None)

    def test_the_gate_sees_exactly_what_a_commit_would_publish(self, tmp_path: Path) -> None:
        """DESIGN 4.4."""
        sink = self.open_sink(tmp_path)
        publish(sink, 1, None, rows((1, "a")))
        committable = stage(sink, 2, rows((2, "b")), rows((3, "c")))
        assert sink.staged_table(committable).to_pylist() == [{"k": 2, "v": "b"}, {"k": 3, "v": "c"}]
        assert committable.rows == 2

    def test_a_commit_that_is_repeated_publishes_once(self, tmp_path: Path) -> None:
        """I14: the mark, or a descendant of it, is there: done."""
        sink = self.open_sink(tmp_path)
        first = publish(sink, 1, None, rows((1, "a")))
        assert sink.commit(first, mark(1, None)) is False
        publish(sink, 2, 1, rows((2, "b")))
        assert self.open_sink(tmp_path).commit(first, mark(1, None)) is False
        sink.prepare(first, mark=mark(1, None))
        assert self.published(sink) == [(1, "a"), (2, "b")]
        assert sink.is_committed(mark(1, None)) and sink.is_committed(mark(2, 1))
        assert sink.head() == mark(2, 1)

    def test_a_stalled_commit_lands_neither_after_a_newer_one_nor_twice(self, tmp_path: Path) -> None:
        """I14: the commit of 1 is held right before it becomes visible; 1 and 2 are committed by another meanwhile."""
        stalled, release = threading.Event(), threading.Event()

        def hold() -> None:
            stalled.set()
            assert release.wait(WAIT_S)

        slow, other = self.open_sink(tmp_path, before_publish=hold), self.open_sink(tmp_path)
        first = stage(other, 1, rows((1, "a")))
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(slow.commit, first, mark(1, None))
            assert stalled.wait(WAIT_S)
            assert other.commit(first, mark(1, None)) is True
            publish(other, 2, 1, rows((1, "newer")))
            before = self.published(other)
            release.set()
            assert late.result(WAIT_S) is False
        assert self.published(other) == before
        assert other.head() == mark(2, 1)

    def test_a_stalled_commit_whose_place_was_taken_is_superseded(self, tmp_path: Path) -> None:
        """I14: 2 is held; 3 follows 1 instead. 2 must never land, however often it is tried."""
        stalled, release = threading.Event(), threading.Event()

        def hold() -> None:
            stalled.set()
            assert release.wait(WAIT_S)

        slow, other = self.open_sink(tmp_path, before_publish=hold), self.open_sink(tmp_path)
        publish(other, 1, None, rows((1, "a")))
        lost = stage(other, 2, rows((2, "lost")))
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(slow.commit, lost, mark(2, 1))
            assert stalled.wait(WAIT_S)
            publish(other, 3, 1, rows((3, "c")))
            release.set()
            with pytest.raises(Superseded):
                late.result(WAIT_S)
        with pytest.raises(Superseded):
            other.commit(lost, mark(2, 1))
        with pytest.raises(Superseded):
            other.prepare(lost, mark=mark(2, 1))
        assert self.published(other) == [(1, "a"), (3, "c")]
        assert not other.is_committed(mark(2, 1))

    def test_a_commit_out_of_order_is_refused(self, tmp_path: Path) -> None:
        """I14: no "highest id wins": a commit that skips its predecessor would lose it."""
        sink = self.open_sink(tmp_path)
        with pytest.raises(Superseded):
            sink.commit(stage(sink, 2, rows((2, "b"))), mark(2, 1))
        publish(sink, 1, None, rows((1, "a")))
        with pytest.raises(Superseded):
            sink.commit(stage(sink, 3, rows((3, "c"))), mark(3, 2))
        assert self.published(sink) == [(1, "a")]

    def test_racing_commits_of_one_checkpoint_publish_it_once(self, tmp_path: Path) -> None:
        """I14: of several writers at the atomic step exactly one gets through, and all agree on the outcome."""
        together = threading.Barrier(3)
        arrived = threading.local()

        def meet() -> None:
            if not getattr(arrived, "once", False):
                arrived.once = True
                together.wait(WAIT_S)

        committable = stage(self.open_sink(tmp_path), 1, rows((1, "a")))
        with ThreadPoolExecutor(3) as pool:
            sinks = [self.open_sink(tmp_path, before_publish=meet) for _ in range(3)]
            outcomes = [pool.submit(sink.commit, committable, mark(1, None)) for sink in sinks]
            assert sorted(outcome.result(WAIT_S) for outcome in outcomes) == [False, False, True]
        assert self.published(self.open_sink(tmp_path)) == [(1, "a")]

    def test_a_lost_reply_of_a_commit_that_landed_is_recognised(self, tmp_path: Path) -> None:
        """I1, I14: the write id tells our own commit from another's."""

        def lose() -> None:
            raise CommitOutcomeUnknown("no answer")

        sink = self.open_sink(tmp_path, after_publish=lose)
        committable = stage(sink, 1, rows((1, "a")))
        assert sink.commit(committable, mark(1, None)) is True
        assert self.open_sink(tmp_path).commit(committable, mark(1, None)) is False
        assert self.published(sink) == [(1, "a")]

    def test_a_commit_that_did_not_land_is_unknown_and_can_be_tried_again(self, tmp_path: Path) -> None:
        """I1: unknown deletes nothing."""

        def fail() -> None:
            raise CommitOutcomeUnknown("no answer")

        failing, sink = self.open_sink(tmp_path, before_publish=fail), self.open_sink(tmp_path)
        committable = stage(sink, 1, rows((1, "a")))
        with pytest.raises(CommitOutcomeUnknown):
            failing.commit(committable, mark(1, None))
        assert sink.head() is None
        assert sink.commit(committable, mark(1, None)) is True
        assert self.published(sink) == [(1, "a")]

    def test_an_epoch_without_rows_moves_the_mark(self, tmp_path: Path) -> None:
        """I14: also the first one; the next commit follows it."""
        sink = self.open_sink(tmp_path)
        assert sink.stage(SCHEMA.empty_table(), checkpoint_id=1, token=1, subtask=0) is None
        publish(sink, 1, None)
        assert sink.head() == mark(1, None)
        assert sink.read().schema.equals(SCHEMA) and sink.read().num_rows == 0
        publish(sink, 2, 1, rows((1, "a")))
        publish(sink, 3, 2)
        assert self.published(sink) == [(1, "a")]
        assert sink.head() == mark(3, 2)

    def test_a_reader_that_polls_never_sees_a_part_of_an_epoch(self, tmp_path: Path) -> None:
        """I14: each epoch writes the keys 0..3 with its own number, over three files."""
        writer, reader = self.open_sink(tmp_path), self.open_sink(tmp_path)
        epochs, subtasks = 25, 3
        publish(writer, 1, None, *(rows((i, "1")) for i in range(subtasks)))
        seen: list[list[str]] = []
        polling, done = threading.Event(), threading.Event()

        def poll() -> None:
            while True:
                last = done.is_set()
                seen.append(reader.read().column("v").to_pylist())
                polling.set()
                if last:
                    return

        with ThreadPoolExecutor(1) as pool:
            polled = pool.submit(poll)
            assert polling.wait(WAIT_S)
            for epoch in range(2, epochs + 1):
                publish(writer, epoch, epoch - 1, *(rows((i, str(epoch))) for i in range(subtasks)))
            done.set()
            polled.result(WAIT_S)
        for values in seen:
            counts = {value: values.count(value) for value in values}
            assert set(counts.values()) == {subtasks}
            assert sorted(map(int, counts)) in ([max(map(int, counts))], list(range(1, len(counts) + 1)))
        assert max(map(int, seen[-1])) == epochs

    @pytest.mark.parametrize(("job", "name"), [("another", "table"), ("job", "another")])
    def test_a_table_of_another_owner_is_refused(self, tmp_path: Path, job: str, name: str) -> None:
        """A path has one owner for ever: two jobs on one path would publish over each other."""
        publish(self.open_sink(tmp_path), 1, None, rows((1, "a")))
        foreign = self.open_sink(tmp_path, job=job, name=name)
        committable = stage(foreign, 1, rows((2, "b")))
        for attempt in (
            lambda: foreign.prepare(committable),
            lambda: foreign.commit(committable, mark(1, None)),
            lambda: foreign.commit(committable, mark(2, 1)),
            foreign.read,
            foreign.head,
        ):
            with pytest.raises(InvalidRequest, match="already belongs to sink table of job job"):
                attempt()
        assert self.published(self.open_sink(tmp_path)) == [(1, "a")]

    def test_the_same_checkpoint_with_other_content_is_never_called_done(self, tmp_path: Path) -> None:
        """A job that began again on an old path would else lose every epoch up to the old head, silently."""
        sink = self.open_sink(tmp_path)
        publish(sink, 1, None, rows((1, "old")))
        publish(sink, 2, 1, rows((2, "old")))
        anew = stage(sink, 1, rows((1, "new")))
        with pytest.raises(InvalidRequest, match="earlier life"):
            sink.prepare(anew, mark=mark(1, None))
        with pytest.raises(InvalidRequest, match="earlier life"):
            sink.commit(anew, mark(1, None))
        assert self.published(sink) == [(1, "old"), (2, "old")]

    def test_the_table_can_be_read_as_of_every_mark(self, tmp_path: Path) -> None:
        """A mark that never was is NotFound, and the message names the known ones."""
        sink = self.open_sink(tmp_path)
        publish(sink, 3, None, rows((1, "a")))
        publish(sink, 5, 3, rows((2, "b")))
        publish(sink, 9, 5, rows((3, "c")))
        assert self.published(sink, 3) == [(1, "a")]
        assert self.published(sink, 5) == [(1, "a"), (2, "b")]
        assert self.published(sink, 9) == self.published(sink)
        with pytest.raises(NotFound, match="3, 5, 9"):
            sink.read(4)

    def test_a_new_nullable_column_is_taken_and_older_rows_have_no_value_for_it(self, tmp_path: Path) -> None:
        """Schema evolution: add."""
        sink = self.open_sink(tmp_path)
        publish(sink, 1, None, rows((1, "a")))
        wider = SCHEMA.append(pa.field("w", pa.float64()))
        committable = stage(sink, 2, rows((2, "b", 0.5), schema=wider), schema=wider)
        sink.prepare(committable)
        assert sink.commit(committable, mark(2, 1))
        assert sorted(sink.read().to_pylist(), key=lambda row: row["k"]) == [
            {"k": 1, "v": "a", "w": None},
            {"k": 2, "v": "b", "w": 0.5},
        ]
        assert sink.read(1).schema.equals(SCHEMA)

    @pytest.mark.parametrize(
        ("schema", "named"),
        [
            (pa.schema([("k", pa.int64()), ("v", pa.int32())]), "'v' has the type int32, in the table it is string"),
            (pa.schema([("k", pa.int64())]), "'v' of the table is missing"),
            (SCHEMA.append(pa.field("w", pa.int64(), nullable=False)), "'w' is declared not null"),
        ],
    )
    def test_a_schema_change_the_table_cannot_take_is_refused_by_name(
        self, tmp_path: Path, schema: pa.Schema, named: str
    ) -> None:
        """Order of writes: known before the commit point, so nothing of the epoch is decided yet."""
        sink = self.open_sink(tmp_path)
        publish(sink, 1, None, rows((1, "a")))
        committable = stage(sink, 2, schema=schema)
        with pytest.raises(InvalidRequest, match=named):
            sink.prepare(committable)
        with pytest.raises(InvalidRequest, match=named):
            sink.commit(committable, mark(2, 1))
        assert sink.head() == mark(1, None)

    def test_abort_removes_what_was_staged_and_its_late_commit_publishes_nothing(self, tmp_path: Path) -> None:
        """A head never names a file that is gone."""
        sink = self.open_sink(tmp_path)
        publish(sink, 1, None, rows((1, "a")))
        committable = stage(sink, 2, rows((2, "b")))
        sink.abort(checkpoint_id=2, token=1)
        sink.abort(checkpoint_id=2, token=1)
        for attempt in (lambda: sink.prepare(committable), lambda: sink.commit(committable, mark(2, 1))):
            with pytest.raises(StateCorrupt, match="missing"):
                attempt()
        assert self.published(sink) == [(1, "a")]

    def test_abort_touches_neither_published_files_nor_another_token(self, tmp_path: Path) -> None:
        """Publish before delete; a zombie's abort reaches only its own token's files."""
        sink = self.open_sink(tmp_path)
        publish(sink, 1, None, rows((1, "a")))
        publish(sink, 2, 1, rows((2, "b")))
        newer = stage(sink, 3, rows((3, "c")), token=7)
        stage(sink, 3, rows((3, "zombie")), token=6)
        for checkpoint_id, token in ((1, 1), (2, 1), (3, 6)):
            sink.abort(checkpoint_id=checkpoint_id, token=token)
        assert sink.commit(newer, mark(3, 2)) is True
        assert self.published(sink) == [(1, "a"), (2, "b"), (3, "c")]

    def test_staging_the_same_rows_again_gives_the_same_file(self, tmp_path: Path) -> None:
        """I12: attempts of one subtask are equal; a repeated one leaves nothing behind."""
        sink = self.open_sink(tmp_path)
        assert stage(sink, 1, rows((1, "a"))) == stage(self.open_sink(tmp_path), 1, rows((1, "a")))

    def test_a_committable_survives_its_journey_through_the_metadata(self, tmp_path: Path) -> None:
        """What `_metadata` holds commits exactly like what was staged."""
        sink = self.open_sink(tmp_path)
        committable = stage(sink, 1, rows((1, "a")), rows((2, "b")))
        again = from_json(Committable, to_json(committable), "committable")
        assert again == committable
        assert sink.commit(again, mark(1, None)) is True
        assert sink.commit(committable, mark(1, None)) is False

    def test_a_walk_finds_what_the_table_needs_and_who_staged_what(self, tmp_path: Path) -> None:
        """I8: published files are needed by name; staged ones say by which token; the chain itself is permanent."""
        sink = self.open_sink(tmp_path)
        assert self.open_sink(tmp_path).walk().heads == 0
        published = [*publish(sink, 1, None, rows((1, "a"))).files, *publish(sink, 2, 1, rows((2, "b"))).files]
        waiting = stage(sink, 3, rows((3, "c")), token=7).files
        found = sink.walk()
        assert (found.heads, found.problems) == (2, ())
        assert {item.key for item in found.references} == {file.key for file in published}
        assert {item.key: item.size for item in found.references} == {file.key: file.size for file in published}
        staged = {item.stat.key: item.staged_by for item in found.objects if item.staged_by is not None}
        assert staged == {file.key: (number, 1) for number, file in enumerate(published, 1)} | {
            file.key: (3, 7) for file in waiting
        }
        others = [item for item in found.objects if item.staged_by is None]
        assert others
        assert all(item.permanent for item in others)
        assert not any(item.permanent for item in found.objects if item.staged_by is not None)

    def test_sizes_are_told_of_what_exists(self, tmp_path: Path) -> None:
        sink = self.open_sink(tmp_path)
        (file,) = stage(sink, 1, rows((1, "a"))).files
        assert sink.stored_sizes([file.key, file.key + "x"]) == {file.key: file.size}
