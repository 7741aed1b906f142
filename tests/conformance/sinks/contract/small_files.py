"""What every sink that keeps its rows guarantees when an epoch joins small files of its table, whatever its format."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from milepost.errors import CommitOutcomeUnknown
from milepost.sinks.staging.small_files import GROWTH
from milepost_testkit.formats.played_manifest import Completed
from tests.conformance.sinks.contract.case import SCHEMA, SinkCase, at_commit, format_decides, pairs, rows


class SmallFilesTests(SinkCase):
    """Epochs of one file of one row: the one after `GROWTH` of them joins those."""

    @format_decides
    def test_joined_files_show_the_same_rows_in_their_order_at_every_checkpoint_back_and_forth(
        self, tmp_path: Path
    ) -> None:
        """TABLES 1.14: originals stay, so each checkpoint is read, and shown again, as it was."""
        job = self.begin(tmp_path)
        done = job.go_on(2 * GROWTH + 2)
        assert [one.contents.files for one in done[GROWTH - 1 : GROWTH + 2]] == [GROWTH, 2, 3]
        assert done[-1].contents.files == 4
        for at in (GROWTH, GROWTH + 1, 3, len(done), GROWTH + 2, 1):
            expected = [(one.checkpoint_id, "main") for one in done[:at]]
            contents = done[at - 1].contents
            assert in_order(job.sink.read(contents, verify=True)) == expected
            assert job.sink.verify(contents, deep=True) == [] and contents.rows == at
            job.back_to(done[at - 1])
            assert self.published(tmp_path) == expected
        job.go_on(1)
        assert len(self.published(tmp_path)) == 2

    def test_a_commit_that_is_lost_or_repeated_joins_once(self, tmp_path: Path) -> None:
        """I14: whether it landed is known by its write id, as always."""
        job = self.begin(tmp_path)
        job.go_on(GROWTH)
        last = job.complete(job.row())

        def lost() -> None:
            raise CommitOutcomeUnknown("no answer")

        for hook in ({"before": at_commit(lost)}, {"after": at_commit(lost)}):
            try:
                self.open_sink(tmp_path, **hook).move(last.target)
            except CommitOutcomeUnknown:
                assert "before" in hook
        assert job.sink.move(last.target) is False
        assert len(self.published(tmp_path)) == GROWTH + 1 and job.sink.fault(last.contents) is None

    def test_a_table_that_is_behind_catches_up_over_joined_files(self, tmp_path: Path) -> None:
        """The sink was down for some epochs, whose subtasks joined files that the table never showed."""
        job = self.begin(tmp_path)
        shown = job.go_on(2)
        waiting: list[Completed] = [job.complete(job.row(), waits=True) for _ in range(2 * GROWTH)]
        assert any(file.rows_of for file in job.sink.files(waiting[-1].contents))
        for one in waiting:
            assert job.sink.move(one.target) is True
        assert [key for key, _ in self.published(tmp_path)] == [one.checkpoint_id for one in (*shown, *waiting)]

    def test_a_new_column_is_null_in_joined_rows_of_before(self, tmp_path: Path) -> None:
        job = self.begin(tmp_path)
        wider = pa.schema([*SCHEMA, ("more", pa.int64())])
        job.go_on(GROWTH - 2)
        for _ in range(4):
            job.publish(rows((job.manifest.next_id, "main", 7), schema=wider), schema=wider)
        contents = job.manifest.head.contents if job.manifest.head is not None else None
        assert contents is not None and contents.files < GROWTH
        read = job.sink.read(contents, verify=True)
        assert read.column("more").to_pylist() == [None] * (GROWTH - 2) + [7] * 4
        assert pairs(read) == self.published(tmp_path)

    def test_a_small_file_that_is_lost_is_left_as_it_is_and_the_epoch_goes_on(self, tmp_path: Path) -> None:
        """Joining is nothing that an epoch needs; `verify` names what is lost."""
        job = self.begin(tmp_path)
        done = job.go_on(GROWTH)
        lost = job.sink.files(done[-1].contents)[2]
        self.table_store(tmp_path).delete([lost.key])
        after = job.publish(job.row())
        assert after.contents.files == GROWTH + 1
        assert [lost.key in problem for problem in job.sink.verify(after.contents)] == [True]


def in_order(table: pa.Table) -> list[tuple[int, str]]:
    return list(zip(table.column("k").to_pylist(), table.column("v").to_pylist(), strict=True))
