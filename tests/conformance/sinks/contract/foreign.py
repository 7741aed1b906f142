"""Other writers of a table: their rows stay, their compactions are taken over, what they did to our rows is refused."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.errors import InvalidRequest
from milepost.sinks.contract import Sink
from milepost_testkit import wording
from tests.conformance.sinks.contract.case import SCHEMA, Pairs, SinkCase, Story, format_decides, rows

REALIGN = "milepost realign job table"


class SinkForeignTests(SinkCase):
    """For formats that have other writers. Subclasses say what those do, and read the table as any engine does."""

    @abstractmethod
    def append_foreign(self, root: Path, table: pa.Table) -> None:
        """Another writer adds rows."""

    @abstractmethod
    def compact_foreign(self, root: Path) -> None:
        """Another writer rewrites all live files into one, and says that no row has changed."""

    @abstractmethod
    def delete_foreign(self, root: Path, key: int) -> None:
        """Another writer deletes the rows with this `k`."""

    @abstractmethod
    def undo_foreign(self, root: Path) -> None:
        """Another writer takes the table back to before its newest commit, as its own history can."""

    @abstractmethod
    def engine_rows(self, root: Path) -> Pairs:
        """Return the live rows, sorted, as an engine reads them that knows nothing of us."""

    @format_decides
    def test_rows_that_others_appended_stay_also_when_going_back(self, tmp_path: Path) -> None:
        """TABLES 1.7."""
        job = self.begin(tmp_path)
        (first,) = job.go_on(1)
        self.append_foreign(tmp_path, rows((90, "theirs")))
        job.go_on(1)
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), (90, "theirs")]
        self.append_foreign(tmp_path, rows((91, "theirs")))
        job.back_to(first)
        assert self.engine_rows(tmp_path) == [(1, "main"), (90, "theirs"), (91, "theirs")]
        job.back_to(None)
        assert self.engine_rows(tmp_path) == [(90, "theirs"), (91, "theirs")]
        job.back_to(first)
        assert self.engine_rows(tmp_path) == [(1, "main"), (90, "theirs"), (91, "theirs")]

    @format_decides
    def test_rows_that_others_appended_while_a_commit_stalls_make_it_decide_again(self, tmp_path: Path) -> None:
        """A compare-and-set on what the handle shows; our number is unchanged, so the same commit is tried again."""
        job = self.begin(tmp_path)
        job.go_on(1)
        done = job.complete(job.row())
        came: list[bool] = []

        def between(operation: str, subject: str) -> None:
            if operation == "format.commit" and not came:
                came.append(True)
                self.append_foreign(tmp_path, rows((90, "theirs")))

        assert self.open_sink(tmp_path, before=between).move(done.target) is True
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), (90, "theirs")]

    @format_decides
    def test_a_compaction_of_our_files_counts_as_our_content(self, tmp_path: Path) -> None:
        """The next epoch records it; going back to before it removes its output and adds its inputs again."""
        job = self.begin(tmp_path)
        main = job.go_on(3)
        self.compact_foreign(tmp_path)
        assert self._files(job.sink, tmp_path) == 1
        (fourth,) = job.go_on(1)
        assert fourth.contents.files == 2
        assert self.engine_rows(tmp_path) == [(n, "main") for n in (1, 2, 3, 4)]
        assert self.published(tmp_path) == self.engine_rows(tmp_path), "another process reads its records"
        job.back_to(main[1])
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main")]
        assert self._files(job.sink, tmp_path) == 2
        job.back_to(fourth)
        assert self.engine_rows(tmp_path) == [(n, "main") for n in (1, 2, 3, 4)]

    @format_decides
    def test_a_compaction_between_prepare_and_commit_can_be_rolled_back(self, tmp_path: Path) -> None:
        """What the epoch's contents say is what the table shows after its commit: no row twice, none lost."""
        job = self.begin(tmp_path)
        job.go_on(2)
        done = job.complete(job.row())
        self.compact_foreign(tmp_path)
        assert job.sink.move(done.target) is True
        assert self.engine_rows(tmp_path) == [(n, "main") for n in (1, 2, 3)]
        job.go_on(1)
        assert self.engine_rows(tmp_path) == [(n, "main") for n in (1, 2, 3, 4)]

    @format_decides
    def test_a_compaction_while_the_sink_was_down_loses_nothing(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        main = job.go_on(2)
        waiting = [job.complete(job.row()), job.complete(job.row(), waits=True)]
        self.compact_foreign(tmp_path)
        for done in waiting:
            assert job.sink.move(done.target) is True
        assert self.engine_rows(tmp_path) == [(n, "main") for n in (1, 2, 3, 4)]
        job.back_to(main[0])
        assert self.engine_rows(tmp_path) == [(1, "main")]

    @format_decides
    def test_a_compaction_that_mixed_foreign_rows_in_waits_until_it_is_undone(self, tmp_path: Path) -> None:
        """Nobody could take the two apart again, a realignment neither: so the message does not name it."""
        job = self.begin(tmp_path)
        job.go_on(1)
        self.append_foreign(tmp_path, rows((90, "theirs")))
        self.compact_foreign(tmp_path)
        with wording.raises(InvalidRequest) as refused:
            job.complete(job.row())
        assert REALIGN not in refused.value.hint and "RESTORE" in refused.value.hint
        with wording.raises(InvalidRequest):
            job.sink.move(job.manifest.realigned())
        self.undo_foreign(tmp_path)
        (second,) = job.go_on(1)
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), (90, "theirs")]
        job.back_to(None)
        assert self.engine_rows(tmp_path) == [(90, "theirs")]
        job.back_to(second)
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), (90, "theirs")]

    @format_decides
    @pytest.mark.parametrize("what", ["a compaction", "a deletion", "a deletion of the rest of a file"])
    def test_what_others_did_to_our_rows_and_undid_is_nothing_to_us(self, tmp_path: Path, what: str) -> None:
        """The message says "put it back", so that must help."""
        job = self.begin(tmp_path)
        job.publish(rows((1, "main"), (3, "main")))
        job.publish(rows((2, "main")))
        if what == "a compaction":
            self.compact_foreign(tmp_path)
        else:
            self.delete_foreign(tmp_path, 2 if what == "a deletion" else 3)
            with wording.raises(InvalidRequest):
                job.complete(job.row())
        self.undo_foreign(tmp_path)
        job.publish(rows((4, "main")))
        assert self.engine_rows(tmp_path) == [(n, "main") for n in (1, 2, 3, 4)]
        assert self.published(tmp_path) == self.engine_rows(tmp_path), "another process reads its records"

    @format_decides
    def test_columns_that_are_added_while_others_commit_make_it_decide_again(self, tmp_path: Path) -> None:
        """The same race as of a commit, one step before it: that commit, too, only has to look again."""
        job = self.begin(tmp_path)
        job.go_on(1)
        wider = SCHEMA.append(pa.field("w", pa.int64()))
        done = job.complete(rows((2, "main", 7), schema=wider), schema=wider)
        came: list[bool] = []

        def between(operation: str, subject: str) -> None:
            if operation == "format.widen" and not came:
                came.append(True)
                self.append_foreign(tmp_path, rows((90, "theirs")))

        assert self.open_sink(tmp_path, before=between).move(done.target) is True
        assert came and self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), (90, "theirs")]

    @format_decides
    def test_a_foreign_delete_of_our_rows_is_refused_before_the_commit_point(self, tmp_path: Path) -> None:
        """TABLES 1.7: `prepare` always compares our live files with the contents."""
        job = self.begin(tmp_path)
        job.go_on(2)
        self.delete_foreign(tmp_path, 2)
        with wording.raises(InvalidRequest) as refused:
            job.complete(job.row())
        assert REALIGN in refused.value.hint

    @format_decides
    def test_after_a_foreign_delete_of_our_rows_the_sink_waits(self, tmp_path: Path) -> None:
        """Found after the commit point: with the command to type; nothing is moved."""
        job = self.begin(tmp_path)
        main = job.go_on(2)
        done = job.complete(job.row())
        self.delete_foreign(tmp_path, 2)
        for target in (done.target, job.manifest.switched(main[0])):
            with wording.raises(InvalidRequest) as refused:
                job.sink.move(target)
            assert REALIGN in refused.value.hint
        assert self.engine_rows(tmp_path) == [(1, "main")]

    @format_decides
    def test_a_foreign_delete_of_foreign_rows_is_nothing_to_us(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        job.go_on(1)
        self.append_foreign(tmp_path, rows((90, "theirs")))
        self.delete_foreign(tmp_path, 90)
        job.go_on(1)
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main")]

    @format_decides
    def test_a_realignment_repairs_a_foreign_delete(self, tmp_path: Path) -> None:
        """The message names it, so it must help."""
        job = self.begin(tmp_path)
        job.go_on(1)
        job.publish(rows((2, "deleted"), (3, "rewritten")))
        self.append_foreign(tmp_path, rows((90, "theirs")))
        self.delete_foreign(tmp_path, 2)
        assert self.engine_rows(tmp_path) == [(1, "main"), (3, "rewritten"), (90, "theirs")]
        assert job.sink.move(job.manifest.realigned()) is True
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "deleted"), (3, "rewritten"), (90, "theirs")]
        job.go_on(1)

    @format_decides
    @pytest.mark.parametrize("what", ["a compaction", "a deletion"])
    def test_what_others_made_of_our_files_is_known_by_the_log_where_the_mark_is_lost(
        self, tmp_path: Path, what: str
    ) -> None:
        """The job's storage was restored to an earlier time: later rows of the table must not stay as foreign ones."""
        job = self.begin(tmp_path)
        main = job.go_on(2)
        if what == "a compaction":
            self.compact_foreign(tmp_path)
            job.go_on(1)
        else:
            job.publish(rows((3, "main"), (4, "main")))
            self.delete_foreign(tmp_path, 4)
        self.append_foreign(tmp_path, rows((90, "theirs")))
        self.lose_marks(tmp_path, job)
        job.manifest.head = main[1]
        assert job.sink.move(job.manifest.realigned()) is True
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), (90, "theirs")]
        job.go_on(1)
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), (4, "main"), (90, "theirs")]

    @format_decides
    def test_a_mixture_in_the_log_is_not_realigned_if_the_mark_is_lost(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        job.go_on(2)
        self.append_foreign(tmp_path, rows((90, "theirs")))
        self.compact_foreign(tmp_path)
        self.lose_marks(tmp_path, job)
        with wording.raises(InvalidRequest):
            job.sink.move(job.manifest.realigned())
        assert self.engine_rows(tmp_path) == [(1, "main"), (2, "main"), (90, "theirs")]

    def lose_marks(self, root: Path, job: Story) -> None:
        """Lose the records of the job's marks; the job goes on in another process, which knows none of them."""
        store = self.job_store(root)
        store.delete([stat.key for stat in store.list("sinks/table/marks/")])
        job.sink = self.open_sink(root)

    def _files(self, sink: Sink, root: Path) -> int:
        table = self.table_format(self.table_store(root)).open()
        assert table is not None
        live = table.live_files()
        assert live is not None
        return len(live)
