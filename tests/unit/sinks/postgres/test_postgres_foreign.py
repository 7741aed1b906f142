"""Other writers of a table in Postgres: their rows stay, never under a key of ours; what they did to ours is seen."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from milepost.errors import CommitOutcomeUnknown, InvalidRequest
from milepost_testkit import wording
from tests.conformance.sinks.contract.case import at_commit, rows
from tests.conformance.sinks.formats.postgres_sink import PostgresCase


class TestForeign(PostgresCase):
    @pytest.mark.deep
    def test_rows_that_others_inserted_stay_also_when_going_back(self, tmp_path: Path) -> None:
        """TABLES 1.7."""
        job = self.begin(tmp_path)
        (first,) = job.go_on(1)
        self._insert(tmp_path, 90)
        job.go_on(1)
        job.back_to(first)
        self._insert(tmp_path, 91)
        job.back_to(None)
        assert self.sql_rows(tmp_path) == [(90, "theirs"), (91, "theirs")]
        job.sink.move(job.manifest.realigned())
        job.back_to(first)
        assert self.sql_rows(tmp_path) == [(1, "main"), (90, "theirs"), (91, "theirs")]

    @pytest.mark.deep
    def test_a_row_of_others_under_a_key_to_be_published_is_refused_before_the_commit_point(
        self, tmp_path: Path
    ) -> None:
        """Written over, it would be lost when the job goes back."""
        job = self.begin(tmp_path)
        job.go_on(1)
        self._insert(tmp_path, 2)
        with wording.raises(InvalidRequest):
            job.complete(rows((2, "ours"), (3, "ours")))
        assert self.sql_rows(tmp_path) == [(1, "main"), (2, "theirs")]
        self.database.run(f"DELETE FROM {self.table(tmp_path)} WHERE k = 2")
        job.publish(rows((2, "ours")))

    @pytest.mark.deep
    def test_a_row_of_others_that_comes_between_prepare_and_commit_makes_the_sink_wait(self, tmp_path: Path) -> None:
        """Nothing of the move is there: it is one transaction; then it is done again."""
        job = self.begin(tmp_path)
        job.go_on(1)
        done = job.complete(rows((2, "ours"), (3, "ours")))
        with wording.raises(InvalidRequest):
            self.open_sink(tmp_path, before=at_commit(lambda: self._insert(tmp_path, 3))).move(done.target)
        assert self.sql_rows(tmp_path) == [(1, "main"), (3, "theirs")]
        self.database.run(f"DELETE FROM {self.table(tmp_path)} WHERE k = 3")
        assert job.sink.move(done.target) is True
        assert self.sql_rows(tmp_path) == [(1, "main"), (2, "ours"), (3, "ours")]

    def test_a_fork_and_a_rollback_stop_at_rows_of_others_too(self, tmp_path: Path) -> None:
        """Whatever moves the table."""
        job = self.begin(tmp_path)
        first, second = job.go_on(2)
        job.back_to(first)
        self._insert(tmp_path, 2)
        for target in (
            job.manifest.switched(second),
            job.manifest.switched(job.fork(first, rows((2, "fork"))), "fork"),
        ):
            with wording.raises(InvalidRequest):
                job.sink.move(target)
        assert self.sql_rows(tmp_path) == [(1, "main"), (2, "theirs")]

    @pytest.mark.parametrize(
        ("statement", "said"),
        [
            ("DELETE FROM {} WHERE k = 1", "1 row is missing"),
            ("UPDATE {} SET v = 'x' WHERE k < 3", "2 rows were changed"),
            ("UPDATE {} SET v = NULL WHERE k = 1", "1 row was changed"),
            ("UPDATE {} SET k = 50 WHERE k = 1", "1 row is missing, 1 row is in no checkpoint"),
            ("UPDATE {} SET _milepost = NULL WHERE k = 1", "1 row of another writer has a key of this job"),
            ("TRUNCATE {}", "3 rows are missing"),
        ],
    )
    def test_foreign_changes_of_our_rows_are_found_by_comparison_and_repaired(
        self, tmp_path: Path, statement: str, said: str
    ) -> None:
        """TABLES 1.8: `realign --dry-run` asks for the fault, and `realign` writes what differs."""
        job = self.begin(tmp_path)
        job.go_on(3)
        contents = job.sink.position().contents
        assert job.sink.fault(contents) is None
        self.database.run(statement.format(self.table(tmp_path)))
        fault = job.sink.fault(contents)
        assert fault is not None and said in fault
        if "_milepost" in statement:  # somebody said that it is theirs: nobody takes it from them
            with wording.raises(InvalidRequest):
                job.sink.move(job.manifest.realigned())
            return
        assert job.sink.move(job.manifest.realigned()) is True
        assert job.sink.fault(job.sink.position().contents) is None
        assert self.published(tmp_path) == [(1, "main"), (2, "main"), (3, "main")]

    def test_a_table_that_is_dropped_between_prepare_and_commit_is_not_written(self, tmp_path: Path) -> None:
        """Nor one that took its name: the commit locks the table by name, and compares its identity."""
        job = self.begin(tmp_path)
        job.go_on(1)
        done = job.complete(job.row())
        table = self.table(tmp_path)

        def make_anew() -> None:
            self.database.run(f"CREATE TABLE other (LIKE {table} INCLUDING ALL)")
            self.database.run(f"DROP TABLE {table}")
            self.database.run(f"ALTER TABLE other RENAME TO {table.partition('.')[2]}")

        with wording.raises(InvalidRequest):
            self.open_sink(tmp_path, before=at_commit(make_anew)).move(done.target)
        assert self.sql_rows(tmp_path) == []
        self.database.run(f"DROP TABLE {table}")
        with wording.raises(InvalidRequest):
            job.sink.move(done.target)

    @pytest.mark.deep
    def test_an_older_state_of_the_database_is_noticed_and_realigned(self, tmp_path: Path) -> None:
        """As after a failover to a standby that lacked the newest commits: head and rows go back together."""
        job = self.begin(tmp_path)
        first, _, _ = job.go_on(3)
        table = self.table(tmp_path)
        self.database.run(f"DELETE FROM {table} WHERE k > 1")
        (mark,) = [one for one in job.sink.marks(above=0) if one.number == first.version]
        older = "UPDATE milepost_tables SET number = %s, write_id = %s WHERE table_oid = %s::regclass"
        self.database.run(older, mark.number, mark.write_id, table)
        with wording.raises(InvalidRequest):
            job.complete(job.row())
        assert job.sink.move(job.manifest.realigned()) is True
        assert self.published(tmp_path) == [(1, "main"), (2, "main"), (3, "main")]

    def test_a_column_that_came_back_from_a_wider_time_is_empty_in_rows_of_before(self, tmp_path: Path) -> None:
        """TABLES 1.11: the table keeps it; what a narrower checkpoint shows has no value there."""
        job = self.begin(tmp_path)
        first = job.publish(rows((1, "a"), (2, "b")))
        wider = rows((1, "a")).schema.append(pa.field("w", pa.float64()))
        second = job.publish(rows((1, "A", 0.5), schema=wider), schema=wider)
        assert self.sql_rows(tmp_path, "k, v, w") == [(1, "A", 0.5), (2, "b", None)]
        job.back_to(first)
        assert self.sql_rows(tmp_path, "k, v, w") == [(1, "a", None), (2, "b", None)]
        job.back_to(second)
        assert self.sql_rows(tmp_path, "k, v, w") == [(1, "A", 0.5), (2, "b", None)]

    def test_a_lost_answer_is_no_reason_to_write_over_rows_of_others(self, tmp_path: Path) -> None:
        """The commit did not land, and while this was unknown, another writer took the key."""

        def fail() -> None:
            raise CommitOutcomeUnknown("no answer")

        job = self.begin(tmp_path)
        done = job.complete(job.row())
        with pytest.raises(CommitOutcomeUnknown):
            self.open_sink(tmp_path, before=at_commit(fail)).move(done.target)
        self._insert(tmp_path, 1)
        with wording.raises(InvalidRequest):
            job.sink.move(done.target)

    def _insert(self, root: Path, key: int) -> None:
        self.database.run(f"INSERT INTO {self.table(root)} (k, v) VALUES (%s, 'theirs')", key)
