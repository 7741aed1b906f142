"""A table that differs from its job's, or is another's: refused, waited for, and repaired by a decision (I14)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from milepost.codec.records import encode
from milepost.errors import CommitOutcomeUnknown, InvalidRequest, StateCorrupt
from milepost.protocol.records.layout import mark_key
from milepost.tables.records.marks import Mark
from milepost_testkit import wording
from tests.conformance.sinks.contract.case import LIFE, SinkCase, at_commit, format_decides, rows

REALIGN = "milepost realign job table"


class SinkStrangerTests(SinkCase):
    """What is refused changes nothing; where the job's state may count instead, the command is named."""

    @format_decides
    @pytest.mark.parametrize(("job", "name"), [("another", "table"), ("job", "another")])
    def test_a_table_of_another_owner_is_refused(self, tmp_path: Path, job: str, name: str) -> None:
        """A path has one owner permanently: two jobs on one path would publish over each other."""
        self.begin(tmp_path).publish(rows((1, "a")))
        foreign = self.open_sink(tmp_path, job=job, name=name)
        with wording.raises(InvalidRequest):
            foreign.reserve(LIFE)
        assert foreign.belongs_to_other(LIFE)
        assert self.published(tmp_path) == [(1, "a")]

    def test_a_job_of_the_same_name_and_another_life_is_another_owner(self, tmp_path: Path) -> None:
        """The identity is that of the manifest, not the name: dev and prod, or a job made anew."""
        job = self.begin(tmp_path)
        job.sink.reserve(LIFE)
        assert not job.sink.belongs_to_other(LIFE)
        with wording.raises(InvalidRequest):
            job.sink.reserve("1" * 32)
        assert job.sink.belongs_to_other("1" * 32)

    def test_an_unreserved_table_has_no_other_owner_and_accepts_nothing(self, tmp_path: Path) -> None:
        """The reservation comes before anything is staged."""
        sink = self.open_sink(tmp_path)
        assert not sink.belongs_to_other(LIFE)
        assert sink.position().number == 0
        other = self.begin(tmp_path / "other")
        with wording.raises(InvalidRequest):
            sink.prepare(other.manifest.staged(sink, schema=rows((1, "a")).schema), None, waits=False)

    def test_a_table_that_a_copy_of_the_job_moved_waits_and_realign_is_named(self, tmp_path: Path) -> None:
        """Nobody here knows what its mark means; the job's own head is not lost, and a decision brings it back."""
        job = self.begin(tmp_path)
        job.go_on(2)
        copy = self.copy_of(tmp_path, job)
        copy.go_on(1)
        copy.back_to(copy.manifest.head and copy.manifest.head.base)
        assert not job.sink.position().is_known
        wording.matches("position", str(job.sink.position()))
        late = job.staged(rows((3, "late")))
        with pytest.raises(InvalidRequest) as refused:
            job.manifest.completed(job.sink, late)
        assert REALIGN in refused.value.hint
        done = job.manifest.completed(job.sink, late, waits=True)
        shown = job.sink.position().number
        for target in (done.target, *(job.manifest.switched(done) for _ in range(2))):
            with pytest.raises(InvalidRequest) as refused:
                job.sink.move(target)
            assert REALIGN in refused.value.hint
        assert target.number > shown, "and not because a later decision is there"
        assert job.sink.move(job.manifest.realigned()) is True
        assert self.published(tmp_path) == [(1, "main"), (2, "main"), (3, "late")]
        assert not copy.sink.position().is_known
        job.go_on(1)

    @format_decides
    def test_a_table_whose_mark_has_our_number_and_another_write_id_is_not_ours(self, tmp_path: Path) -> None:
        """A copy of the job counts versions like this one: the write id tells them apart."""
        job = self.begin(tmp_path)
        job.go_on(1)
        copy = self.copy_of(tmp_path, job)
        ours, theirs = job.complete(rows((2, "ours"))), copy.complete(rows((2, "theirs")))
        assert ours.version == theirs.version

        def die() -> None:
            raise CommitOutcomeUnknown("no answer")

        with pytest.raises(CommitOutcomeUnknown):
            self.open_sink(tmp_path, before=at_commit(die)).move(ours.target)
        assert [mark.number for mark in job.sink.marks(above=2)] == [ours.version], "so the number is known here"
        copy.sink.move(theirs.target)
        position = job.sink.position()
        assert position.number == ours.version and not position.is_known
        with pytest.raises(InvalidRequest) as refused:
            job.sink.move(ours.target)
        assert REALIGN in refused.value.hint
        assert job.sink.move(job.manifest.realigned()) is True
        assert (2, "ours") in self.published(tmp_path) and (2, "theirs") not in self.published(tmp_path)

    @format_decides
    def test_a_commit_of_a_copy_that_comes_between_is_not_taken_for_our_own(self, tmp_path: Path) -> None:
        """Right before ours, under the same number."""
        job = self.begin(tmp_path)
        job.go_on(1)
        copy = self.copy_of(tmp_path, job)
        ours, theirs = job.complete(rows((2, "ours"))), copy.complete(rows((2, "theirs")))

        def faster(operation: str, subject: str) -> None:
            if operation == "format.commit":
                copy.sink.move(theirs.target)

        with pytest.raises(InvalidRequest):
            self.open_sink(tmp_path, before=faster).move(ours.target)
        assert not job.sink.position().is_known

    def test_a_table_with_a_number_above_the_jobs_waits(self, tmp_path: Path) -> None:
        """The job's storage was put back to an older state: what the table shows is not known here."""
        job = self.begin(tmp_path)
        job.go_on(1)
        copy = self.copy_of(tmp_path, job)
        job.go_on(3)
        with pytest.raises(InvalidRequest) as refused:
            copy.complete(rows((2, "again")))
        assert REALIGN in refused.value.hint
        with pytest.raises(InvalidRequest) as refused:
            copy.sink.move(copy.manifest.switched(copy.manifest.head))
        assert REALIGN in refused.value.hint
        assert [key for key, _ in self.published(tmp_path)] == [1, 2, 3, 4]

    @format_decides
    def test_a_table_that_was_dropped_and_made_anew_waits_and_realign_fills_it(self, tmp_path: Path) -> None:
        """The table's identity is in the contents."""
        job = self.begin(tmp_path)
        job.go_on(2)
        late = job.complete(job.row())
        self.drop(tmp_path)
        with wording.raises(InvalidRequest):
            job.sink.move(late.target)
        again = self.open_sink(tmp_path)
        again.reserve(LIFE)
        with wording.raises(InvalidRequest):
            job.complete(job.row())
        again.prepare(job.staged(job.row()), None, waits=False)  # the refusal made none
        with wording.raises(InvalidRequest) as refused:
            again.move(job.manifest.switched(late))
        assert REALIGN in refused.value.hint
        assert again.move(job.manifest.realigned()) is True
        assert [key for key, _ in self.published(tmp_path)] == [1, 2, 3]
        job.go_on(1)
        assert [key for key, _ in self.published(tmp_path)] == [1, 2, 3, 4]

    @format_decides
    def test_a_table_that_was_dropped_is_made_and_filled_by_a_realignment(self, tmp_path: Path) -> None:
        """What the message names must help, once the table is reserved again."""
        job = self.begin(tmp_path)
        job.go_on(2)
        self.drop(tmp_path)
        again = self.open_sink(tmp_path)
        again.reserve(LIFE)
        assert again.move(job.manifest.realigned()) is True
        assert [key for key, _ in self.published(tmp_path)] == [1, 2]
        job.go_on(1)

    def test_abort_deletes_nothing_where_the_table_carries_a_mark_that_is_not_ours(self, tmp_path: Path) -> None:
        """A copy of the job counts checkpoints and tokens like this one: the files may be its own."""
        job = self.begin(tmp_path)
        job.go_on(1)
        copy = self.copy_of(tmp_path, job)
        copy.go_on(1)
        theirs = [item.stat.key for item in copy.sink.objects() if item.staged_by == (2, 1)]
        with wording.raises(InvalidRequest) as refused:
            job.sink.abort(checkpoint_id=2, token=1)
        assert REALIGN in refused.value.hint
        assert len(job.sink.stored_sizes(theirs)) == len(theirs) >= 1
        job.sink.abort(checkpoint_id=9, token=1)  # there is nothing of it, so nothing to be told

    def test_a_realignment_of_a_table_that_is_right_moves_its_mark_alone(self, tmp_path: Path) -> None:
        """It may be called at any time."""
        job = self.begin(tmp_path)
        job.go_on(2)
        decided = job.manifest.realigned()
        assert job.sink.move(decided) is True and job.sink.move(decided) is False
        assert self.published(tmp_path) == [(1, "main"), (2, "main")]
        job.go_on(1)

    @pytest.mark.parametrize("damage", ["torn", "of another number", "another format", "leading out of the job"])
    def test_a_mark_that_cannot_be_read_is_corrupt_by_name(self, tmp_path: Path, damage: str) -> None:
        """DESIGN 9: what is read from the store is validated; nothing is guessed, nothing is moved.

        In the process that wrote a mark nothing is read; here it is another one each time.
        """
        job = self.begin(tmp_path)
        first, second = job.go_on(2)
        store, key = self.job_store(tmp_path), mark_key("table", second.version)
        body = store.get(key)
        spoiled = {
            "torn": body[:-5],
            "of another number": store.get(mark_key("table", first.version)),
            "another format": body.replace(b"milepost.table-mark/1", b"milepost.table-mark/9"),
            "leading out of the job": body.replace(b'"key":"chk-', b'"key":"../chk-'),
        }[damage]
        assert spoiled != body
        store.put(key, spoiled)
        late = job.staged(rows((3, "late")))
        for attempt in (
            self.open_sink(tmp_path).position,
            lambda: job.manifest.completed(self.open_sink(tmp_path), late),
            lambda: self.open_sink(tmp_path).move(job.manifest.switched(first)),
            lambda: self.open_sink(tmp_path).abort(checkpoint_id=3, token=1),
        ):
            with wording.raises(StateCorrupt):
                attempt()
        assert len(job.sink.stored_sizes([file.key for file in late.files])) == 1
        store.put(key, body)
        assert self.published(tmp_path) == [(1, "main"), (2, "main")]

    @pytest.mark.parametrize("damage", ["gone", "changed"])
    def test_a_record_of_the_contents_that_cannot_be_read_is_corrupt_by_name(self, tmp_path: Path, damage: str) -> None:
        """I7: each is named with its digest."""
        job = self.begin(tmp_path)
        (done,) = job.go_on(1)
        (record,) = done.contents.records
        store = self.job_store(tmp_path)
        if damage == "gone":
            store.delete([record.key])
        else:
            store.put(record.key, store.get(record.key).replace(b'"rows":1', b'"rows":2'))
        sink = self.open_sink(tmp_path)
        with wording.raises(StateCorrupt) as refused:
            sink.files(done.contents)
        assert record.key in str(refused.value)
        with wording.raises(StateCorrupt) as refused:
            sink.move(job.manifest.switched(done))
        assert record.key in str(refused.value)
        (problem,) = sink.verify(done.contents)
        assert record.key in problem

    def test_a_mark_that_another_hand_made_first_stops_the_sink(self, tmp_path: Path) -> None:
        """The record of one transition is created once, and it is unknown which of two contents is right."""
        job = self.begin(tmp_path)
        done = job.complete(job.row())
        other = replace(done.contents, rows=99)
        forged = Mark(done.version, 0, "f" * 32, done.contents.table_id or "", "main", other)
        self.job_store(tmp_path).create(mark_key("table", done.version), encode(forged))
        with wording.raises(StateCorrupt):
            job.sink.move(done.target)
        assert self.published(tmp_path) == []
