"""What every sink guarantees when the live timeline is switched (I14), whatever its format."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.dataflow.sinks.committables import Committable, SinkMark
from milepost.dataflow.sinks.contract import Sink
from milepost.protocol.records.errors import (
    CommitOutcomeUnknown,
    InvalidRequest,
    NotFound,
    ProtocolViolation,
    Superseded,
)
from milepost.protocol.records.ids import CheckpointId
from tests.conformance.sink import SCHEMA, WAIT_S, mark, rows, stage

Pairs = list[tuple[int, str]]


def publish(sink: Sink, checkpoint_id: int, predecessor: int | None, timeline: str = "main") -> Committable:
    """Commit the one row (checkpoint id, timeline); the commit must be this call's own."""
    committable = staged(sink, checkpoint_id, timeline)
    sink.prepare(committable, mark=mark(checkpoint_id, predecessor, timeline))
    assert sink.commit(committable, mark(checkpoint_id, predecessor, timeline)) is True
    return committable


def staged(sink: Sink, checkpoint_id: int, timeline: str = "main") -> Committable:
    return stage(sink, checkpoint_id, rows((checkpoint_id, timeline)))


def switch(
    sink: Sink, to: SinkMark | None, timeline: str, decision: int, *more: tuple[int, Committable]
) -> tuple[bool, SinkMark]:
    """Follow a decision: back to `to`, with the committables that were never published. Returns also the new mark."""
    ids = [to.checkpoint_id if to else 0, *(checkpoint_id for checkpoint_id, _ in more)]
    here = mark(ids[-1], None, timeline)
    missing = [(CheckpointId(checkpoint_id), committable) for checkpoint_id, committable in more]
    return sink.follow(base=to, committables=missing, mark=here, decision=decision), here


class SinkSwitchTests:
    """What is worth the time of a remote store too. Mixed into a subclass of `SinkTests`, whose `open_sink` it uses."""

    open_sink: Callable[..., Sink]
    published: Callable[..., Pairs]

    def main_up_to(self, root: Path, last: int) -> Sink:
        """Checkpoints 38 to `last` on the timeline main."""
        sink = self.open_sink(root)
        for checkpoint_id in range(38, last + 1):
            publish(sink, checkpoint_id, checkpoint_id - 1 if checkpoint_id > 38 else None)
        return sink

    def found(self, sink: Sink, checkpoint_id: int) -> SinkMark:
        position = sink.find(checkpoint_id)
        assert position is not None and position.checkpoint_id == checkpoint_id
        return position

    def test_no_checkpoint_after_a_rewind_is_skipped_because_the_table_has_seen_a_higher_id(
        self, tmp_path: Path
    ) -> None:
        """apache/iceberg#10892: "highest committed id wins" silently drops the commits of a job that was rewound.

        42 is published; the job goes back to 40; everything the new timeline completes is published once, also
        checkpoints of a fork whose ids are below the highest id that the table has seen.
        """
        sink = self.main_up_to(tmp_path, 42)
        assert switch(sink, self.found(sink, 40), "t50", 50)[0] is True
        assert self.published(sink) == [(38, "main"), (39, "main"), (40, "main")]
        for checkpoint_id, predecessor in ((45, 40), (47, 45)):
            publish(sink, checkpoint_id, predecessor, "t50")
            assert self.published(sink)[-1] == (checkpoint_id, "t50")
        forked = [(checkpoint_id, staged(sink, checkpoint_id, "t43")) for checkpoint_id in (43, 44, 46)]
        assert switch(sink, self.found(sink, 39), "t43", 60, *forked)[0] is True
        publish(sink, 48, 46, "t43")
        expected = [(38, "main"), (39, "main"), (43, "t43"), (44, "t43"), (46, "t43"), (48, "t43")]
        assert self.published(self.open_sink(tmp_path)) == expected
        assert sink.verify(deep=True) == []

    @pytest.mark.parametrize("follow_first", [True, False], ids=["the follow lands first", "the commit lands first"])
    def test_a_commit_that_stalls_at_its_atomic_step_while_the_table_follows(
        self, tmp_path: Path, follow_first: bool
    ) -> None:
        """Whichever of the two lands first, the table ends where the decision put it."""
        stalled, release = threading.Event(), threading.Event()

        def hold() -> None:
            stalled.set()
            assert release.wait(WAIT_S)

        sink = self.main_up_to(tmp_path, 40)
        late = staged(sink, 41)
        to = self.found(sink, 40)
        held = self.open_sink(tmp_path, before_publish=hold)
        with ThreadPoolExecutor(1) as pool:
            if follow_first:
                commit = pool.submit(held.commit, late, mark(41, 40))
                assert stalled.wait(WAIT_S)
                assert switch(sink, to, "t50", 50)[0] is True
                release.set()
                with pytest.raises(Superseded):
                    commit.result(WAIT_S)
            else:
                follow = pool.submit(switch, held, to, "t50", 50)
                assert stalled.wait(WAIT_S)
                assert sink.commit(late, mark(41, 40)) is True
                release.set()
                assert follow.result(WAIT_S)[0] is True
        assert [key for key, _ in self.published(sink)] == [38, 39, 40]
        publish(sink, 43, 40, "t50")


class SinkTimelineTests(SinkSwitchTests):
    """All of it; mixed in like `SinkSwitchTests`."""

    def test_the_table_shows_the_target_and_stands_on_the_new_timeline(self, tmp_path: Path) -> None:
        sink = self.main_up_to(tmp_path, 42)
        switched, here = switch(sink, self.found(sink, 40), "t50", 50)
        assert switched is True
        assert sink.head() == here
        assert sink.is_committed(here) and sink.is_committed(mark(40, 39)) and sink.is_committed(mark(38, None))
        assert not sink.is_committed(mark(41, 40)) and not sink.is_committed(mark(42, 41))

    def test_a_commit_of_the_timeline_that_was_left_never_lands_again(self, tmp_path: Path) -> None:
        """Also the one that follows exactly the checkpoint that the new timeline starts at."""
        sink = self.main_up_to(tmp_path, 40)
        after, stalled = staged(sink, 41), staged(sink, 42)
        switch(sink, self.found(sink, 40), "t50", 50)
        for committable, late in ((after, mark(41, 40)), (stalled, mark(42, 41))):
            with pytest.raises(Superseded):
                sink.commit(committable, late)
            with pytest.raises(Superseded):
                sink.prepare(committable, mark=late)
        publish(sink, 43, 40, "t50")
        with pytest.raises(Superseded):
            sink.commit(after, mark(41, 40))
        assert [key for key, _ in self.published(sink)] == [38, 39, 40, 43]

    def test_of_two_decisions_the_newer_one_counts_in_either_order(self, tmp_path: Path) -> None:
        sink = self.main_up_to(tmp_path, 42)
        older, newer = self.found(sink, 40), self.found(sink, 39)
        assert switch(sink, newer, "t60", 60)[0] is True
        with pytest.raises(Superseded):
            switch(sink, older, "t50", 50)
        assert [key for key, _ in self.published(sink)] == [38, 39]
        publish(sink, 43, 39, "t60")
        with pytest.raises(Superseded):
            switch(sink, older, "t50", 50)
        assert [key for key, _ in self.published(sink)] == [38, 39, 43]

    def test_an_older_decision_that_stalls_at_its_atomic_step_never_undoes_a_newer_one(self, tmp_path: Path) -> None:
        stalled, release = threading.Event(), threading.Event()

        def hold() -> None:
            stalled.set()
            assert release.wait(WAIT_S)

        sink = self.main_up_to(tmp_path, 42)
        older, newer = self.found(sink, 40), self.found(sink, 39)
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(switch, self.open_sink(tmp_path, before_publish=hold), older, "t50", 50)
            assert stalled.wait(WAIT_S)
            assert switch(sink, newer, "t60", 60)[0] is True
            release.set()
            with pytest.raises(Superseded):
                late.result(WAIT_S)
        assert [key for key, _ in self.published(sink)] == [38, 39]
        assert sink.head() == mark(39, None, "t60")

    def test_racing_follows_of_one_decision_change_the_table_once(self, tmp_path: Path) -> None:
        together = threading.Barrier(3)
        arrived = threading.local()

        def meet() -> None:
            if not getattr(arrived, "once", False):
                arrived.once = True
                together.wait(WAIT_S)

        to = self.found(self.main_up_to(tmp_path, 42), 40)
        with ThreadPoolExecutor(3) as pool:
            sinks = [self.open_sink(tmp_path, before_publish=meet) for _ in range(3)]
            outcomes = [pool.submit(switch, sink, to, "t50", 50) for sink in sinks]
            assert sorted(outcome.result(WAIT_S)[0] for outcome in outcomes) == [False, False, True]
        assert [key for key, _ in self.published(self.open_sink(tmp_path))] == [38, 39, 40]

    def test_a_follow_that_is_repeated_undoes_nothing_that_came_since(self, tmp_path: Path) -> None:
        sink = self.main_up_to(tmp_path, 42)
        to = self.found(sink, 40)
        switch(sink, to, "t50", 50)
        assert switch(sink, to, "t50", 50)[0] is False
        publish(sink, 43, 40, "t50")
        publish(sink, 44, 43, "t50")
        assert switch(self.open_sink(tmp_path), to, "t50", 50)[0] is False
        assert [key for key, _ in self.published(sink)] == [38, 39, 40, 43, 44]
        assert sink.head() == mark(44, 43, "t50")

    def test_a_lost_reply_of_a_follow_that_landed_is_recognised(self, tmp_path: Path) -> None:
        def lose() -> None:
            raise CommitOutcomeUnknown("no answer")

        to = self.found(self.main_up_to(tmp_path, 42), 40)
        sink = self.open_sink(tmp_path, after_publish=lose)
        assert switch(sink, to, "t50", 50)[0] is True
        assert switch(self.open_sink(tmp_path), to, "t50", 50)[0] is False

    def test_a_follow_that_did_not_land_is_unknown_and_can_be_tried_again(self, tmp_path: Path) -> None:
        def fail() -> None:
            raise CommitOutcomeUnknown("no answer")

        sink = self.main_up_to(tmp_path, 42)
        to = self.found(sink, 40)
        with pytest.raises(CommitOutcomeUnknown):
            switch(self.open_sink(tmp_path, before_publish=fail), to, "t50", 50)
        assert [key for key, _ in self.published(sink)] == [38, 39, 40, 41, 42]
        assert switch(sink, to, "t50", 50)[0] is True
        assert [key for key, _ in self.published(sink)] == [38, 39, 40]

    def test_what_was_completed_and_never_published_comes_with_the_follow(self, tmp_path: Path) -> None:
        """The sink was down for 41 and 42; the job goes back from 43 to 42. Late commits find themselves done."""
        sink = self.main_up_to(tmp_path, 40)
        c41, c42, c43 = (staged(sink, checkpoint_id) for checkpoint_id in (41, 42, 43))
        assert switch(sink, self.found(sink, 40), "t50", 50, (41, c41), (42, c42))[0] is True
        expected = [(checkpoint_id, "main") for checkpoint_id in range(38, 43)]
        assert self.published(sink) == expected
        for committable, late in ((c41, mark(41, 40)), (c42, mark(42, 41))):
            assert sink.commit(committable, late) is False
            assert sink.is_committed(late)
        with pytest.raises(Superseded):
            sink.commit(c43, mark(43, 42))
        publish(sink, 44, 42, "t50")
        assert self.published(sink) == [*expected, (44, "t50")]

    def test_a_late_commit_of_what_the_lineage_has_is_already_done(self, tmp_path: Path) -> None:
        """Of the target itself too, which the new timeline's mark names once more."""
        sink = self.open_sink(tmp_path)
        done = {39: publish(sink, 39, None), 40: publish(sink, 40, 39)}
        publish(sink, 41, 40)
        switch(sink, self.found(sink, 40), "t50", 50)
        assert sink.commit(done[39], mark(39, None)) is False
        assert sink.commit(done[40], mark(40, 39)) is False
        done[43] = publish(sink, 43, 40, "t50")
        assert sink.commit(done[40], mark(40, 39)) is False
        assert sink.commit(done[43], mark(43, 40, "t50")) is False
        assert [key for key, _ in self.published(sink)] == [39, 40, 43]

    def test_other_content_under_a_checkpoint_of_the_lineage_is_never_called_done(self, tmp_path: Path) -> None:
        """A table of an earlier life of the job, also when that life was rolled back."""
        sink = self.main_up_to(tmp_path, 42)
        switch(sink, self.found(sink, 40), "t50", 50)
        anew = stage(sink, 39, rows((39, "anew")))
        for late in (mark(39, 38), mark(39, None, "t50")):
            with pytest.raises(InvalidRequest, match="earlier life"):
                sink.commit(anew, late)
            with pytest.raises(InvalidRequest, match="earlier life"):
                sink.prepare(anew, mark=late)
        with pytest.raises(InvalidRequest, match="earlier life"):
            switch(sink, self.found(sink, 39), "t50", 50)

    def test_a_rollback_can_be_rolled_back(self, tmp_path: Path) -> None:
        """Nothing of a lineage that was left is gone: not for readers of its checkpoints, not for a way back."""
        sink = self.main_up_to(tmp_path, 42)
        switch(sink, self.found(sink, 39), "t50", 50)
        publish(sink, 43, 39, "t50")
        publish(sink, 44, 43, "t50")
        assert [key for key, _ in self.published(sink, 41)] == [38, 39, 40, 41]
        assert sink.verify(42, deep=True) == []
        assert switch(sink, self.found(sink, 42), "t60", 60)[0] is True
        assert [key for key, _ in self.published(sink)] == [38, 39, 40, 41, 42]
        publish(sink, 45, 42, "t60")
        assert switch(sink, self.found(sink, 43), "t70", 70)[0] is True
        assert [key for key, _ in self.published(sink)] == [38, 39, 43]
        assert [key for key, _ in self.published(sink, 45)] == [38, 39, 40, 41, 42, 45]
        assert [key for key, _ in self.published(sink, 44)] == [38, 39, 43, 44]
        assert all(sink.verify(checkpoint_id, deep=True) == [] for checkpoint_id in range(38, 46))

    def test_every_checkpoint_that_a_follow_brought_can_be_read_and_gone_back_to(self, tmp_path: Path) -> None:
        """A fork's checkpoints reach the table together; their committables may be gone when they are needed again."""
        sink = self.main_up_to(tmp_path, 40)
        wider = SCHEMA.append(pa.field("w", pa.int64()))
        last = stage(sink, 44, rows((44, "t41", 7), schema=wider), schema=wider)
        forked = [(42, staged(sink, 42, "t41")), (43, stage(sink, 43)), (44, last)]
        switch(sink, self.found(sink, 39), "t41", 50, *forked)
        assert [key for key, _ in self.published(sink, 42)] == [38, 39, 42]
        assert self.published(sink, 43) == self.published(sink, 42)
        assert sink.read(43).schema.equals(SCHEMA) and sink.read(44).schema.equals(wider)
        assert self.found(sink, 43) == mark(43, 42, "t41")
        publish_wider = stage(sink, 45, rows((45, "t41", 8), schema=wider), schema=wider)
        assert sink.commit(publish_wider, mark(45, 44, "t41"))
        switch(sink, self.found(sink, 42), "t60", 60)
        assert self.published(sink) == [(38, "main"), (39, "main"), (42, "t41")]
        assert sink.read().schema.equals(SCHEMA)
        publish(sink, 46, 42, "t60")
        assert all(sink.verify(checkpoint_id, deep=True) == [] for checkpoint_id in (42, 43, 44, 45, 46))

    def test_back_to_the_empty_table_and_on_with_other_columns(self, tmp_path: Path) -> None:
        """Checkpoint 0 is always a target; what was published before stays readable."""
        sink = self.main_up_to(tmp_path, 39)
        late = staged(sink, 40)
        assert switch(sink, None, "t50", 50)[0] is True
        assert self.published(sink) == []
        assert sink.head() == mark(0, None, "t50")
        with pytest.raises(Superseded):
            sink.commit(late, mark(40, 39))
        other = pa.schema([("k", pa.int64()), ("x", pa.float64())])
        begun = stage(sink, 41, rows((41, 0.5), schema=other), schema=other)  # type: ignore[arg-type]
        sink.prepare(begun, mark=mark(41, None, "t50"))
        assert sink.commit(begun, mark(41, None, "t50")) is True
        assert sink.read().to_pylist() == [{"k": 41, "x": 0.5}]
        assert [key for key, _ in self.published(sink, 39)] == [38, 39]

    def test_a_table_that_was_never_published_follows_too(self, tmp_path: Path) -> None:
        """Else a stalled first commit of the timeline that was left would land on it."""
        sink = self.open_sink(tmp_path)
        late = staged(sink, 41)
        assert switch(sink, None, "t50", 50)[0] is True
        assert sink.head() == mark(0, None, "t50")
        with pytest.raises(NotFound, match="nothing has been published"):
            sink.read()
        assert sink.verify() == []
        with pytest.raises(Superseded):
            sink.commit(late, mark(41, None))
        publish(sink, 43, None, "t50")
        assert self.published(sink) == [(43, "t50")]

    def test_a_comparison_says_what_the_follow_then_does_and_writes_nothing(self, tmp_path: Path) -> None:
        sink = self.main_up_to(tmp_path, 42)
        never = staged(sink, 43)
        to = self.found(sink, 39)
        before = len(sink.walk().objects)
        change = sink.compare(to, [(CheckpointId(43), never)])
        assert len(sink.walk().objects) == before
        assert (change.rows_now, change.rows_then) == (5, 3)
        assert (change.files_now, change.files_then) == (5, 3)
        switch(sink, to, "t50", 50, (43, never))
        assert sink.read().num_rows == change.rows_then
        assert sink.compare(None, []).rows_then == 0
        assert all(isinstance(line, str) and line for line in sink.undo_limits())

    def test_what_a_follow_cannot_take_is_refused_by_the_comparison_as_well(self, tmp_path: Path) -> None:
        """Known before the decision, so that a switch which a table cannot follow is never made."""
        sink = self.main_up_to(tmp_path, 39)
        other = pa.schema([("k", pa.int64()), ("v", pa.int32())])
        wrong = [(CheckpointId(40), stage(sink, 40, schema=other))]
        unknown = mark(17, 16)
        here = mark(40, None, "t50")
        with pytest.raises(InvalidRequest, match="'v' has the type int32"):
            sink.compare(self.found(sink, 39), wrong)
        with pytest.raises(InvalidRequest, match="'v' has the type int32"):
            sink.follow(base=self.found(sink, 39), committables=wrong, mark=here, decision=50)
        with pytest.raises(NotFound, match="checkpoint 17 of timeline main"):
            sink.compare(unknown, [])
        with pytest.raises(NotFound, match="checkpoint 17 of timeline main"):
            switch(sink, unknown, "t50", 50)
        assert sink.head() == mark(39, 38)

    def test_a_follow_that_names_another_checkpoint_than_its_content_is_refused(self, tmp_path: Path) -> None:
        sink = self.main_up_to(tmp_path, 40)
        to = self.found(sink, 39)
        for base, here, decision in (
            (to, mark(40, None, "t50"), 50),
            (None, mark(39, None, "t50"), 50),
            (to, mark(39, None, "t50"), 0),
        ):
            with pytest.raises(ProtocolViolation):
                sink.follow(base=base, committables=[], mark=here, decision=decision)
        never = (CheckpointId(39), staged(sink, 41))
        with pytest.raises(ProtocolViolation):
            sink.follow(base=to, committables=[never], mark=mark(39, None, "t50"), decision=50)
        assert sink.head() == mark(40, 39)

    def test_an_abort_keeps_what_any_lineage_published(self, tmp_path: Path) -> None:
        """Publish before delete: a timeline that was left is still there to go back to."""
        sink = self.main_up_to(tmp_path, 42)
        never = staged(sink, 43, "t41")
        switch(sink, self.found(sink, 39), "t50", 50, (43, never))
        switch(sink, self.found(sink, 40), "t60", 60)
        for checkpoint_id in (39, 41, 42, 43):
            sink.abort(checkpoint_id=checkpoint_id, token=1)
        assert all(sink.verify(checkpoint_id, deep=True) == [] for checkpoint_id in (39, 41, 42, 43))

    def test_what_the_lineages_that_were_left_published_is_known_and_so_is_what_each_checkpoint_needs(
        self, tmp_path: Path
    ) -> None:
        """I8: a root is a checkpoint, of whatever lineage; what it needs of the table is asked of the history."""
        sink = self.main_up_to(tmp_path, 42)
        never = staged(sink, 43, "t41")
        switch(sink, self.found(sink, 39), "t50", 50, (43, never))
        publish(sink, 44, 43, "t50")
        found = sink.walk()
        assert found.problems == ()
        data = {item.stat.key for item in found.objects if item.staged_by is not None}
        assert data == found.published and len(data) == 7
        sizes = {item.stat.key: item.stat.size for item in found.objects}
        assert {item.key: item.size for item in found.references}.items() <= sizes.items()
        history = sink.history()
        needed = {checkpoint_id: history.as_of(checkpoint_id) for checkpoint_id in (38, 39, 40, 41, 42, 43, 44)}
        for checkpoint_id, files in needed.items():
            assert files is not None
            assert {item.key: item.size for item in files}.items() <= sizes.items()
            base = sink.find(checkpoint_id)
            assert {item.key for item in files} & data == {file.key for file in sink.contents(base, []).files}
        assert history.as_of(17) is None
        assert {item.key for item in history.links()} <= sizes.keys()
        assert history.live() == tuple(replace(item, chain=("head 7 of checkpoint 44",)) for item in needed[44] or ())
