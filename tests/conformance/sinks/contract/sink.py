"""What every sink guarantees when its table goes forward (I14), whatever its format and store."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.codec.records import from_json, to_json
from milepost.errors import (
    CommitOutcomeUnknown,
    InvalidRequest,
    QualityGateFailed,
    StateCorrupt,
    Superseded,
)
from milepost.tables.records.committables import Committable
from milepost_testkit import wording
from tests.conformance.sinks.contract.case import (
    SCHEMA,
    WAIT_S,
    SinkCase,
    Stall,
    at_commit,
    format_decides,
    meeting,
    pairs,
    rows,
)


class SinkTests(SinkCase):
    """Keys of one epoch are distinct, so append and upsert pass the same tests."""

    @format_decides
    def test_staged_prepared_and_completed_rows_are_invisible_until_the_move(self, tmp_path: Path) -> None:
        """I14: the move is the only moment at which rows appear."""
        job = self.begin(tmp_path)
        committable = job.staged(rows((1, "a")), rows((2, "b")))
        assert self.published(tmp_path) == []
        done = job.manifest.completed(job.sink, committable)
        assert self.published(tmp_path) == []
        assert job.sink.position().number == 0
        assert job.sink.move(done.target) is True
        assert self.published(tmp_path) == [(1, "a"), (2, "b")]
        position = self.open_sink(tmp_path).position()
        assert (position.number, position.contents) == (done.version, done.contents)
        assert position.mark is not None and position.mark.timeline == "main"

    def test_the_gate_judges_exactly_the_published_rows(self, tmp_path: Path) -> None:
        """DESIGN 4.4."""
        job = self.begin(tmp_path)
        job.publish(rows((1, "a")))
        committable = job.staged(rows((2, "b")), rows((3, "c")))
        judged = pairs(job.sink.staged_table(committable))
        job.sink.move(job.manifest.completed(job.sink, committable).target)
        assert judged == [(2, "b"), (3, "c")] and committable.rows == 2
        assert self.published(tmp_path) == [(1, "a"), *judged]

    @format_decides
    def test_a_commit_that_is_repeated_publishes_once(self, tmp_path: Path) -> None:
        """I14: the mark, or one that came after it, is there: done."""
        job = self.begin(tmp_path)
        first = job.publish(rows((1, "a")))
        assert job.sink.move(first.target) is False
        second = job.publish(rows((2, "b")))
        assert self.open_sink(tmp_path).move(first.target) is False
        assert self.open_sink(tmp_path).move(second.target) is False
        assert self.published(tmp_path) == [(1, "a"), (2, "b")]
        assert job.sink.position().number == second.version

    @format_decides
    def test_a_stalled_commit_lands_neither_after_a_newer_one_nor_twice(self, tmp_path: Path) -> None:
        """I14: the commit of 1 is held right before it becomes visible; 1 and 2 are committed by another meanwhile."""
        stall = Stall()
        job = self.begin(tmp_path)
        first = job.complete(rows((1, "a")))
        slow = self.open_sink(tmp_path, before=at_commit(stall))
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(slow.move, first.target)
            stall.wait_until_reached()
            assert job.sink.move(first.target) is True
            second = job.publish(rows((1, "newer")))
            before = self.published(tmp_path)
            stall.release()
            assert late.result(WAIT_S) is False
        assert self.published(tmp_path) == before
        assert job.sink.position().number == second.version

    @format_decides
    def test_of_two_that_commit_the_same_checkpoint_the_slower_one_finds_it_done(self, tmp_path: Path) -> None:
        """I14: both carry the record's write id, so the slower one takes the commit that landed for its own."""
        stall = Stall()
        job = self.begin(tmp_path)
        first = job.complete(rows((1, "a")))
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(self.open_sink(tmp_path, before=at_commit(stall)).move, first.target)
            stall.wait_until_reached()
            assert job.sink.move(first.target) is True
            stall.release()
            late.result(WAIT_S)
        assert self.published(tmp_path) == [(1, "a")]
        job.publish(rows((2, "b")))
        assert self.published(tmp_path) == [(1, "a"), (2, "b")]

    def test_a_commit_out_of_order_is_refused(self, tmp_path: Path) -> None:
        """I14: no "highest id wins": a commit that skips its predecessor would lose it."""
        job = self.begin(tmp_path)
        first = job.complete(rows((1, "a")))
        second = job.complete(rows((2, "b")), waits=True)
        with pytest.raises(Superseded):
            job.sink.move(second.target)
        assert self.published(tmp_path) == []
        assert job.sink.move(first.target) is True
        third = job.complete(rows((3, "c")), waits=True)
        with pytest.raises(Superseded):
            job.sink.move(third.target)
        assert self.published(tmp_path) == [(1, "a")]
        assert job.sink.move(second.target) is True and job.sink.move(third.target) is True
        assert self.published(tmp_path) == [(1, "a"), (2, "b"), (3, "c")]

    @format_decides
    def test_six_that_race_for_one_checkpoint_publish_it_once(self, tmp_path: Path) -> None:
        """I14: of several writers at the atomic step one gets through, and all agree on the outcome."""
        job = self.begin(tmp_path)
        done = job.complete(rows((1, "a")))
        landed: list[str] = []

        def land(operation: str, subject: str) -> None:
            if operation == "format.commit":
                landed.append(subject)

        meet = meeting(6)
        with ThreadPoolExecutor(6) as pool:
            sinks = [self.open_sink(tmp_path, before=at_commit(meet), after=land) for _ in range(6)]
            outcomes = [pool.submit(sink.move, done.target) for sink in sinks]
            assert any(outcome.result(WAIT_S) for outcome in outcomes)
        assert landed == [str(done.version)], "the format took it once"
        assert self.published(tmp_path) == [(1, "a")]
        assert job.sink.move(done.target) is False

    @format_decides
    def test_a_lost_reply_of_a_commit_that_landed_is_recognised(self, tmp_path: Path) -> None:
        """I1, I14: the write id tells our own commit from another's."""

        def lose() -> None:
            raise CommitOutcomeUnknown("no answer")

        job = self.begin(tmp_path)
        done = job.complete(rows((1, "a")))
        assert self.open_sink(tmp_path, after=at_commit(lose)).move(done.target) is True
        assert self.open_sink(tmp_path).move(done.target) is False
        assert self.published(tmp_path) == [(1, "a")]

    @format_decides
    def test_a_commit_that_did_not_land_is_unknown_and_another_process_takes_over_its_write_id(
        self, tmp_path: Path
    ) -> None:
        """I1: unknown deletes nothing; the record of the first try counts."""

        def fail() -> None:
            raise CommitOutcomeUnknown("no answer")

        job = self.begin(tmp_path)
        done = job.complete(rows((1, "a")))
        with wording.raises(CommitOutcomeUnknown):
            self.open_sink(tmp_path, before=at_commit(fail)).move(done.target)
        assert self.published(tmp_path) == []
        (recorded,) = job.sink.marks(above=0)
        assert self.open_sink(tmp_path).move(done.target) is True
        position = job.sink.position()
        assert position.mark == recorded and position.number == done.version
        assert self.published(tmp_path) == [(1, "a")]

    @format_decides
    def test_an_epoch_without_rows_moves_the_mark(self, tmp_path: Path) -> None:
        """I14: also the first one; the next commit follows it."""
        job = self.begin(tmp_path)
        empty = job.publish()
        assert self.published(tmp_path) == []
        assert job.sink.read(empty.contents).schema.equals(SCHEMA)
        job.publish(rows((1, "a")))
        last = job.publish()
        assert self.published(tmp_path) == [(1, "a")]
        position = job.sink.position()
        assert (position.number, position.checkpoint_id) == (last.version, 3)
        with pytest.raises(Superseded):
            job.sink.move(replace(job.complete(rows((2, "b"))).target, follows=2))

    @format_decides
    def test_a_reader_that_polls_never_sees_a_part_of_an_epoch(self, tmp_path: Path) -> None:
        """I14: each epoch writes the keys 0..2 with its own number, over three files."""
        job, reader = self.begin(tmp_path), self.open_sink(tmp_path)
        epochs, subtasks = 12, 3
        job.publish(*(rows((i, "1")) for i in range(subtasks)))
        seen: list[list[str]] = []
        polling, done = threading.Event(), threading.Event()

        def poll() -> None:
            while True:
                last = done.is_set()
                contents = reader.position().contents
                assert contents is not None
                seen.append(reader.read(contents).column("v").to_pylist())
                polling.set()
                if last:
                    return

        with ThreadPoolExecutor(1) as pool:
            polled = pool.submit(poll)
            assert polling.wait(WAIT_S)
            for epoch in range(2, epochs + 1):
                job.publish(*(rows((i, str(epoch))) for i in range(subtasks)))
            done.set()
            polled.result(WAIT_S)
        for values in seen:
            counts = {value: values.count(value) for value in values}
            assert set(counts.values()) == {subtasks}
            assert sorted(map(int, counts)) in ([max(map(int, counts))], list(range(1, len(counts) + 1)))
        assert max(map(int, seen[-1])) == epochs

    def test_two_contents_for_one_number_stop_the_sink(self, tmp_path: Path) -> None:
        """I14: a number is one transition, which has one content; before its commit and after it."""
        job = self.begin(tmp_path)
        job.publish(rows((1, "a")))
        one = job.complete(rows((2, "b")))
        other = replace(one.target, contents=replace(one.contents, rows=99))

        def fail() -> None:
            raise CommitOutcomeUnknown("no answer")

        with pytest.raises(CommitOutcomeUnknown):
            self.open_sink(tmp_path, before=at_commit(fail)).move(one.target)
        with wording.raises(StateCorrupt):
            job.sink.move(other)
        assert self.published(tmp_path) == [(1, "a")]
        assert job.sink.move(one.target) is True
        with wording.raises(StateCorrupt):
            job.sink.move(other)
        assert self.published(tmp_path) == [(1, "a"), (2, "b")]

    def test_every_checkpoint_can_be_read_whatever_the_table_shows(self, tmp_path: Path) -> None:
        """Contents belong to the checkpoint."""
        job = self.begin(tmp_path)
        every = job.go_on(4)
        job.back_to(every[0])
        for count, done in enumerate(every, 1):
            assert pairs(self.open_sink(tmp_path).read(done.contents)) == [(n, "main") for n in range(1, count + 1)]
            assert job.sink.verify(done.contents, deep=True) == []

    @format_decides
    def test_a_new_nullable_column_is_taken_and_older_rows_have_no_value_for_it(self, tmp_path: Path) -> None:
        """Schema evolution: add. Going back to before it, the job's rows go on as they were then."""
        job = self.begin(tmp_path)
        first = job.publish(rows((1, "a")))
        wider = SCHEMA.append(pa.field("w", pa.float64()))
        second = job.publish(rows((2, "b", 0.5), schema=wider), schema=wider)
        assert sorted(job.sink.read(second.contents).to_pylist(), key=lambda row: row["k"]) == [
            {"k": 1, "v": "a", "w": None},
            {"k": 2, "v": "b", "w": 0.5},
        ]
        assert job.sink.read(first.contents).schema.equals(SCHEMA)
        job.back_to(first)
        job.publish(rows((3, "c")))
        assert self.published(tmp_path) == [(1, "a"), (3, "c")]
        job.back_to(second)
        assert self.published(tmp_path) == [(1, "a"), (2, "b")]

    @format_decides
    @pytest.mark.parametrize(
        "schema",
        [
            pa.schema([("k", pa.int64()), ("v", pa.int32())]),
            pa.schema([("k", pa.int64())]),
            SCHEMA.append(pa.field("w", pa.int64(), nullable=False)),
        ],
    )
    def test_a_schema_change_the_table_cannot_take_is_refused_by_name(self, tmp_path: Path, schema: pa.Schema) -> None:
        """Order of writes: known before the commit point, so nothing of the epoch is decided yet; on a fork too."""
        job = self.begin(tmp_path)
        first = job.publish(rows((1, "a")))
        committable = job.staged(schema=schema)
        with wording.raises(InvalidRequest):
            job.manifest.completed(job.sink, committable)
        with wording.raises(InvalidRequest):
            job.sink.prepare_fork(committable, first.contents)
        assert self.published(tmp_path) == [(1, "a")]

    def test_abort_removes_staged_files_and_they_are_never_published(self, tmp_path: Path) -> None:
        """No commit ever names a deleted file."""
        job = self.begin(tmp_path)
        job.publish(rows((1, "a")))
        committable = job.staged(rows((2, "b")))
        late = job.manifest.completed(job.sink, committable)
        for _ in range(2):
            job.sink.abort(checkpoint_id=2, token=1)
        assert job.sink.stored_sizes([file.key for file in committable.files]) == {}
        with wording.raises(StateCorrupt):
            job.sink.check_staged(committable)
        with wording.raises(StateCorrupt):
            job.sink.move(late.target)
        with wording.raises(StateCorrupt):
            job.sink.check(late.contents)
        assert self.published(tmp_path) == [(1, "a")]

    def test_a_table_is_not_made_before_its_epoch_may_change_it(self, tmp_path: Path) -> None:
        """An epoch is prepared while its gate judges: of one that is vetoed no reader of the table may see anything."""

        def vetoed() -> None:
            raise QualityGateFailed("planned")

        job = self.begin(tmp_path)
        ways: dict[str, Any] = {"waits": False, "read_table": job.sink.read_table}
        before, committable = job.sink.read_table()[0], job.staged(rows((1, "a")))
        with nullcontext() if before is not None else pytest.raises(QualityGateFailed):
            job.sink.prepare(committable, None, **ways, before_change=vetoed)
        after = job.sink.read_table()[0]
        assert (before is None) == (after is None) and getattr(before, "version", 0) == getattr(after, "version", 0)
        job.sink.prepare(committable, None, **ways)
        assert job.sink.read_table()[0] is not None

    def test_abort_touches_no_other_token(self, tmp_path: Path) -> None:
        """A zombie's abort reaches only its own token's files."""
        job = self.begin(tmp_path)
        job.publish(rows((1, "a")))
        zombie = job.staged(rows((2, "zombie")), token=6)
        kept = job.staged(rows((2, "b")))
        job.sink.abort(checkpoint_id=2, token=6)
        sizes = job.sink.stored_sizes([file.key for file in (*zombie.files, *kept.files)])
        assert sizes == {file.key: file.size for file in kept.files}
        assert job.sink.move(job.manifest.completed(job.sink, kept).target) is True
        assert self.published(tmp_path) == [(1, "a"), (2, "b")]

    def test_staging_the_same_rows_again_gives_the_same_file(self, tmp_path: Path) -> None:
        """I12: attempts of one subtask are equal; a repeated one leaves nothing behind."""
        job = self.begin(tmp_path)
        again = job.manifest.staged(self.open_sink(tmp_path), rows((1, "a")), schema=SCHEMA)
        assert job.staged(rows((1, "a"))) == again

    def test_staged_files_survive_a_round_trip_through_the_metadata(self, tmp_path: Path) -> None:
        """A committable is stored with its epoch."""
        committable = self.begin(tmp_path).staged(rows((1, "a")), rows((2, "b")))
        assert from_json(Committable, to_json(committable), "committable") == committable

    def test_the_objects_below_a_table_say_who_staged_them_and_the_log_is_permanent(self, tmp_path: Path) -> None:
        """I8: what is not known to be staged is never deleted."""
        job = self.begin(tmp_path)
        first = job.staged(rows((1, "a")))
        job.publish(rows((1, "a")))
        waiting = job.staged(rows((2, "b")), token=7)
        files, more = ((*one.files, *one.buckets) for one in (first, waiting))
        found = {item.stat.key: item for item in job.sink.objects()}
        staged = {key: item.staged_by for key, item in found.items() if item.staged_by is not None}
        assert staged == {file.key: (1, 1) for file in files} | {file.key: (2, 7) for file in more}
        others = [item for item in found.values() if item.staged_by is None]
        assert others and all(item.permanent for item in others)
        assert not any(found[key].permanent for key in staged)
