"""What every sink guarantees when the live timeline is switched (I14), whatever its format and store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.errors import CommitOutcomeUnknown, StateCorrupt, Superseded
from milepost_testkit import wording
from tests.conformance.sinks.contract.case import (
    WAIT_S,
    Pairs,
    SinkCase,
    Stall,
    Story,
    at_commit,
    format_decides,
    meeting,
    rows,
)


def of_main(last: int) -> Pairs:
    """The rows of main's first checkpoints."""
    return [(checkpoint_id, "main") for checkpoint_id in range(1, last + 1)]


class SinkSwitchTests(SinkCase):
    """What is worth the time of a remote store too."""

    def test_no_checkpoint_after_a_rewind_is_skipped_because_the_table_has_seen_a_higher_id(
        self, tmp_path: Path
    ) -> None:
        """apache/iceberg#10892: "highest committed id wins" silently drops the commits of a job that was rewound.

        5 is published; the job goes back to 3; everything the new timeline completes is published once, also
        checkpoints of a fork whose ids are below the highest id that the table has seen.
        """
        job = self.begin(tmp_path)
        main = job.go_on(5)
        forked = [job.fork(main[1], rows((6, "fork")))]
        forked.append(job.fork(forked[0], rows((7, "fork"))))
        job.back_to(main[2])
        assert self.published(tmp_path) == of_main(3)
        (eighth,) = job.go_on(1)
        assert self.published(tmp_path) == [*of_main(3), (8, eighth.timeline)]
        assert job.sink.move(job.manifest.switched(forked[1], "fork")) is True
        assert self.published(tmp_path) == [*of_main(2), (6, "fork"), (7, "fork")]
        job.go_on(1)
        assert self.published(tmp_path) == [*of_main(2), (6, "fork"), (7, "fork"), (9, "fork")]

    @format_decides
    @pytest.mark.parametrize("switch_first", [True, False], ids=["the switch lands first", "the commit lands first"])
    def test_a_commit_that_stalls_at_its_atomic_step_while_the_table_follows_a_switch(
        self, tmp_path: Path, switch_first: bool
    ) -> None:
        """apache/iceberg#14425: whichever of the two lands first, the table ends where the decision put it."""
        stall = Stall()
        job = self.begin(tmp_path)
        main = job.go_on(3)
        late = job.complete(job.row()).target
        decided = job.manifest.switched(main[2])
        slow, fast = (late, decided) if switch_first else (decided, late)
        with ThreadPoolExecutor(1) as pool:
            held = pool.submit(self.open_sink(tmp_path, before=at_commit(stall)).move, slow)
            stall.wait_until_reached()
            assert job.sink.move(fast) is True
            stall.release()
            if switch_first:
                with pytest.raises(Superseded):
                    held.result(WAIT_S)
            else:
                assert held.result(WAIT_S) is True
        assert self.published(tmp_path) == of_main(3)
        with pytest.raises(Superseded):
            job.sink.move(late)
        job.go_on(1)
        assert self.published(tmp_path) == [*of_main(3), (5, job.manifest.live)]


class SinkTimelineTests(SinkSwitchTests):
    """All of it."""

    @format_decides
    def test_a_switch_is_one_commit_that_shows_the_target_on_the_new_timeline(self, tmp_path: Path) -> None:
        """I14: no reader sees a state between."""
        job = self.begin(tmp_path)
        main = job.go_on(5)
        landed: list[str] = []

        def land(operation: str, subject: str) -> None:
            if operation == "format.commit":
                landed.append(subject)

        decided = job.manifest.switched(main[2])
        assert self.open_sink(tmp_path, after=land).move(decided) is True
        assert landed == [str(decided.number)]
        assert self.published(tmp_path) == of_main(3)
        mark = job.sink.position().mark
        assert mark is not None and (mark.timeline, mark.contents) == (job.manifest.live, main[2].contents)

    @format_decides
    def test_a_commit_of_the_timeline_that_was_left_never_lands_again(self, tmp_path: Path) -> None:
        """Also the one that follows exactly the checkpoint that the new timeline starts at."""
        job = self.begin(tmp_path)
        main = job.go_on(3)
        late = [job.complete(job.row()).target, job.complete(job.row(), waits=True).target]
        job.back_to(main[2])
        for _ in range(2):
            for target in late:
                with pytest.raises(Superseded):
                    self.open_sink(tmp_path).move(target)
            job.go_on(1)
        assert [key for key, _ in self.published(tmp_path)] == [1, 2, 3, 6, 7]

    def test_of_two_decisions_the_newer_one_counts_in_either_order(self, tmp_path: Path) -> None:
        """I14: numbers rise over all timelines."""
        job = self.begin(tmp_path)
        main = job.go_on(5)
        older, newer = job.manifest.switched(main[2]), job.manifest.switched(main[1])
        assert job.sink.move(newer) is True
        for _ in range(2):
            with pytest.raises(Superseded):
                job.sink.move(older)
            job.go_on(1)
        assert [key for key, _ in self.published(tmp_path)] == [1, 2, 6, 7]

    @format_decides
    def test_an_older_decision_that_stalls_at_its_atomic_step_never_undoes_a_newer_one(self, tmp_path: Path) -> None:
        """I14: it decides again on what it finds."""
        stall = Stall()
        job = self.begin(tmp_path)
        main = job.go_on(4)
        older, newer = job.manifest.switched(main[2]), job.manifest.switched(main[1])
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(self.open_sink(tmp_path, before=at_commit(stall)).move, older)
            stall.wait_until_reached()
            assert job.sink.move(newer) is True
            stall.release()
            with pytest.raises(Superseded):
                late.result(WAIT_S)
        assert self.published(tmp_path) == of_main(2)

    @format_decides
    def test_six_that_race_to_follow_one_decision_change_the_table_once(self, tmp_path: Path) -> None:
        """I14: one gets through, all agree."""
        landed: list[str] = []
        job = self.begin(tmp_path)
        decided = job.manifest.switched(job.go_on(4)[1])
        meet = meeting(6)
        with ThreadPoolExecutor(6) as pool:
            sinks = [
                self.open_sink(
                    tmp_path,
                    before=at_commit(meet),
                    after=lambda operation, subject: landed.append(subject) if operation == "format.commit" else None,
                )
                for _ in range(6)
            ]
            outcomes = [pool.submit(sink.move, decided) for sink in sinks]
            assert any(outcome.result(WAIT_S) for outcome in outcomes)
        assert landed == [str(decided.number)]
        assert self.published(tmp_path) == of_main(2)

    def test_a_switch_that_is_repeated_undoes_nothing_that_came_since(self, tmp_path: Path) -> None:
        """I14: a session that follows again finds a mark that came after it."""
        job = self.begin(tmp_path)
        decided = job.manifest.switched(job.go_on(4)[1])
        assert job.sink.move(decided) is True
        assert job.sink.move(decided) is False
        job.go_on(2)
        assert self.open_sink(tmp_path).move(decided) is False
        assert [key for key, _ in self.published(tmp_path)] == [1, 2, 5, 6]

    @format_decides
    def test_a_lost_reply_of_a_switch_that_landed_is_recognised_and_one_that_did_not_land_is_tried_again(
        self, tmp_path: Path
    ) -> None:
        """I1, I14."""

        def lose() -> None:
            raise CommitOutcomeUnknown("no answer")

        job = self.begin(tmp_path)
        main = job.go_on(4)
        first = job.manifest.switched(main[1])
        with pytest.raises(CommitOutcomeUnknown):
            self.open_sink(tmp_path, before=at_commit(lose)).move(first)
        assert self.published(tmp_path) == of_main(4)
        assert self.open_sink(tmp_path, after=at_commit(lose)).move(first) is True
        assert self.open_sink(tmp_path).move(first) is False
        assert self.published(tmp_path) == of_main(2)

    def test_a_sink_that_was_down_catches_up_over_several_checkpoints_one_by_one(self, tmp_path: Path) -> None:
        """A table is never notified twice, and never skips a notification."""
        job = self.begin(tmp_path)
        job.go_on(1)
        waiting = [job.complete(job.row(), waits=True) for _ in range(3)]
        for done in waiting:
            assert job.sink.move(done.target) is True
        for done in waiting:
            assert self.open_sink(tmp_path).move(done.target) is False
        assert self.published(tmp_path) == of_main(4)

    def test_completed_but_unpublished_rows_appear_with_the_switch(self, tmp_path: Path) -> None:
        """The sink was down for 3 and 4; the job goes back from 5 to 4. Late commits are superseded, and land never."""
        job = self.begin(tmp_path)
        job.go_on(2)
        third, fourth, fifth = (job.complete(job.row(), waits=True) for _ in range(3))
        job.back_to(fourth)
        assert self.published(tmp_path) == of_main(4)
        for late in (third, fourth, fifth):
            with pytest.raises(Superseded):
                self.open_sink(tmp_path).move(late.target)
        job.go_on(1)
        assert self.published(tmp_path) == [*of_main(4), (6, job.manifest.live)]

    def test_a_late_commit_of_what_the_lineage_has_is_done(self, tmp_path: Path) -> None:
        """As long as the marks link back to it."""
        job = self.begin(tmp_path)
        main = job.go_on(3)
        job.back_to(main[1])
        job.go_on(1)
        for done in main[:2]:
            assert self.open_sink(tmp_path).move(done.target) is False
        assert [key for key, _ in self.published(tmp_path)] == [1, 2, 4]

    def test_a_rollback_can_be_rolled_back(self, tmp_path: Path) -> None:
        """Forward again, and back to what was left: the contents are the checkpoints' own."""
        job = self.begin(tmp_path)
        main = job.go_on(5)
        job.back_to(main[1])
        left = job.go_on(2)
        job.back_to(main[4])
        assert self.published(tmp_path) == of_main(5)
        job.go_on(1)
        job.back_to(left[0])
        assert [key for key, _ in self.published(tmp_path)] == [1, 2, 6]
        assert all(job.sink.verify(done.contents, deep=True) == [] for done in (*main, *left))

    def test_the_same_checkpoint_before_and_after_a_rollback_to_it_is_distinguished(self, tmp_path: Path) -> None:
        """I14: the number is of the transition, so a commit that saw 2 before does not land on 2 after."""
        job = self.begin(tmp_path)
        main = job.go_on(2)
        stale = job.complete(job.row()).target
        before = job.sink.position()
        job.back_to(main[1])
        after = job.sink.position()
        assert before.contents == after.contents and before.number < after.number
        with pytest.raises(Superseded):
            job.sink.move(stale)

    @format_decides
    def test_a_table_goes_back_to_nothing_and_on_from_there(self, tmp_path: Path) -> None:
        """A rollback to 0; also of a table that was never moved."""
        job = self.begin(tmp_path)
        main = job.go_on(3)
        job.back_to(None)
        assert self.published(tmp_path) == [] and job.sink.position().checkpoint_id == 0
        with pytest.raises(Superseded):
            job.sink.move(replace(main[0].target, number=job.manifest.next_version(), follows=3))
        job.go_on(2)
        assert [key for key, _ in self.published(tmp_path)] == [4, 5]
        job.back_to(main[2])
        assert self.published(tmp_path) == of_main(3)

    def test_a_table_that_was_never_published_follows_too(self, tmp_path: Path) -> None:
        """What was completed before the switch has missed it."""
        job = self.begin(tmp_path)
        never = job.complete(job.row())
        job.back_to(None)
        with pytest.raises(Superseded):
            job.sink.move(never.target)
        assert self.published(tmp_path) == []
        job.go_on(1)
        assert [key for key, _ in self.published(tmp_path)] == [2]

    def test_a_fork_of_an_empty_table_becomes_live(self, tmp_path: Path) -> None:
        """A fork knows nothing of the table, not even its identity."""
        job = self.begin(tmp_path)
        (first,) = job.go_on(1)
        forked = job.fork(None, rows((2, "fork")))
        assert forked.contents.table_id is None
        assert job.sink.move(job.manifest.switched(forked, "fork")) is True
        assert self.published(tmp_path) == [(2, "fork")]
        job.back_to(first)
        assert self.published(tmp_path) == of_main(1)

    def test_a_job_whose_first_checkpoints_are_a_forks_gets_its_table_at_the_switch(self, tmp_path: Path) -> None:
        """A backfill from the empty state: no epoch of the live timeline has made the table."""
        job = self.begin(tmp_path)
        forked = job.fork(job.fork(None, rows((1, "fork"))), rows((2, "fork")))
        assert job.sink.move(job.manifest.switched(forked, "fork")) is True
        job.go_on(1)
        assert self.published(tmp_path) == [(1, "fork"), (2, "fork"), (3, "fork")]

    def test_compare_says_what_a_move_would_change_and_writes_nothing(self, tmp_path: Path) -> None:
        """Plans of rollbacks show it."""
        job = self.begin(tmp_path)
        main = job.go_on(3)
        writes: list[str] = []

        def note(operation: str, subject: str) -> None:
            if operation.split(".")[1] in ("put", "create", "commit", "widen", "delete"):
                writes.append(operation)

        sink = self.open_sink(tmp_path, before=note)
        change = sink.compare(main[0].contents)
        assert (change.rows_now, change.rows_then) == (3, 1)
        assert (change.files_now, change.files_then) == tuple(
            len(sink.files(one.contents)) for one in (main[2], main[0])
        )
        change = sink.compare(None)
        assert (change.rows_now, change.rows_then, change.files_then) == (3, 0, 0)
        assert sink.undo_limits() and writes == []

    @format_decides
    def test_a_damaged_table_can_go_back_to_where_it_was_whole(self, tmp_path: Path) -> None:
        """The plan says what it can: the damage may be the reason to go back."""
        job = self.begin(tmp_path)
        main = job.go_on(3)
        self._lose_file_of(job, tmp_path, 3)
        if (
            self.mode.value == "upsert" and not job.sink.by_buckets
        ):  # of others the recorded rows are told, whatever became of its files
            assert job.sink.compare(main[1].contents).rows_now is None
        with wording.raises(StateCorrupt):
            job.sink.check(main[2].contents)
        with wording.raises(StateCorrupt):
            job.sink.compare(main[2].contents)
        job.back_to(main[1])
        assert self.published(tmp_path) == of_main(2)
        with wording.raises(StateCorrupt):
            job.sink.move(job.manifest.switched(main[2]))
        assert self.published(tmp_path) == of_main(2)

    def _lose_file_of(self, job: Story, root: Path, checkpoint_id: int) -> None:
        of_it = [item.stat.key for item in job.sink.objects() if item.staged_by == (checkpoint_id, 1)]
        assert of_it
        self.table_store(root).delete(of_it)
