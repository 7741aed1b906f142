"""A move of a table in Postgres is one transaction, despite a lost COMMIT or another session's locks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.errors import CommitOutcomeUnknown, StoreUnavailable
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.formats.postgres import database, row_changes
from milepost.sinks.formats.postgres.postgres_format import PostgresFormat
from milepost_testkit import wording
from milepost_testkit.proxies.cutting_proxy import Cut, CuttingProxy
from milepost_testkit.servers.postgres_server import Database, PostgresServer, new_directory
from tests.conformance.sinks.contract.case import deleting, rows
from tests.conformance.sinks.formats.postgres_sink import PostgresCase


class TestCommits(PostgresCase):
    port: int | None = None

    @pytest.fixture
    def proxy(self) -> Iterator[CuttingProxy]:
        proxy = CuttingProxy(self.database.server.port)
        yield proxy
        proxy.stop()

    def table_format(self, store: ObjectStore) -> PostgresFormat:
        through = self.database if self.port is None else self.database.through(self.port)
        return self.format_through(through, store)

    @pytest.mark.parametrize("cut", list(Cut), ids=lambda cut: cut.value)
    def test_a_commit_whose_answer_is_lost_is_settled_by_the_head(
        self, tmp_path: Path, proxy: CuttingProxy, cut: Cut
    ) -> None:
        """One that landed is recognised, one that did not is sent again; one under way is waited for."""
        job = self.begin(tmp_path)
        job.go_on(1)
        done = job.complete(job.row())
        landed: list[str] = []

        def land(operation: str, subject: str) -> None:
            if operation == "format.commit":
                landed.append(subject)

        self.port = proxy.port
        sink = self.open_sink(tmp_path, after=land)
        proxy.cut(cut)
        assert sink.move(done.target) is True
        assert (proxy.cuts, landed) == (1, [str(done.version)])
        assert self.published(tmp_path) == [(1, "main"), (2, "main")]
        assert self.database.run("SELECT max(version) FROM milepost_tables WHERE table_oid = %s::regclass",
                                 self.table(tmp_path)) == [(2,)]  # fmt: skip

    def test_a_commit_that_cannot_be_verified_is_unknown_and_found_later(
        self, tmp_path: Path, proxy: CuttingProxy
    ) -> None:
        """I1: nothing is deleted; another process finds it done."""
        job = self.begin(tmp_path)
        done = job.complete(job.row())
        self.port = proxy.port
        sink = self.open_sink(tmp_path)
        proxy.cut(Cut.LOSE_ANSWER)

        proxy.down_after_cut()
        with wording.raises(CommitOutcomeUnknown):
            sink.move(done.target)
        self.port = None
        assert self.open_sink(tmp_path).move(done.target) is False
        assert self.published(tmp_path) == [(1, "main")]

    def test_a_transaction_is_read_committed_durable_and_bounded_whatever_the_defaults_are(self) -> None:
        """Roles and databases may have others; `synchronous_commit` off would lose what was confirmed."""
        names = ("transaction_isolation", "synchronous_commit", "row_security", "TimeZone", "lock_timeout")
        own = self.database.server.new_database()
        for setting in (
            "default_transaction_isolation = 'serializable'",
            "synchronous_commit = off",
            "TimeZone = 'Asia/Tokyo'",
            "search_path = 'nowhere'",
            "default_transaction_read_only = on",
        ):
            own.run(f'ALTER ROLE "{own.user}" SET {setting}')
        place = database.Database("table", self._access(own))
        with place.transaction("nothing was asked") as connection:
            said = [connection.execute(f"SHOW {name}".encode()).fetchone() for name in names]
        assert said == [("read committed",), ("on",), ("off",), ("UTC",), (f"{database.LOCK_WAIT_S}s",)]

    def test_what_another_holds_is_waited_for_a_while_and_no_longer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A person's open transaction must not block a driver indefinitely; nothing has moved."""
        monkeypatch.setattr(database, "LOCK_WAIT_S", 1)
        job = self.begin(tmp_path)
        job.go_on(1)
        done = job.complete(job.row())
        with self.database.connect() as holder:
            holder.execute(f"LOCK TABLE {self.table(tmp_path)} IN SHARE ROW EXCLUSIVE MODE".encode())
            with wording.raises(CommitOutcomeUnknown):
                job.sink.move(done.target)
        assert self.published(tmp_path) == [(1, "main")]
        assert job.sink.move(done.target) is True

    def test_a_server_that_is_killed_and_comes_up_again_has_the_old_table_or_the_new_one(
        self, postgres: PostgresServer, tmp_path: Path
    ) -> None:
        """A server of its own: others are in use."""
        server = PostgresServer(new_directory())
        server.start()
        try:
            self.database = server.new_database()
            job = self.begin(tmp_path)
            job.go_on(2)
            done = job.complete(job.row())
            server.stop(kill=True)
            with wording.raises(StoreUnavailable):
                job.sink.move(done.target)
            server.start()
            assert self.published(tmp_path) == [(1, "main"), (2, "main")]
            assert job.sink.move(done.target) is True
            assert self.published(tmp_path) == [(1, "main"), (2, "main"), (3, "main")]
        finally:
            server.remove()

    @pytest.mark.deep
    def test_of_a_rollback_the_rows_that_differ_are_written_and_no_others(self, tmp_path: Path) -> None:
        """Each row has the number of the move that wrote it last: later changes are read from the table itself."""
        job = self.begin(tmp_path)
        first = job.publish(rows((1, "a"), (2, "b"), (3, "c")))
        second = job.publish(rows((2, "B"), (4, "d")))
        assert self.sql_rows(tmp_path, "k, v, _milepost") == [
            (1, "a", first.version), (2, "B", second.version), (3, "c", first.version), (4, "d", second.version),
        ]  # fmt: skip
        back = job.manifest.switched(first)
        assert job.sink.move(back) is True
        assert self.sql_rows(tmp_path, "k, v, _milepost") == [
            (1, "a", first.version), (2, "b", back.number), (3, "c", first.version),
        ]  # fmt: skip
        again = job.manifest.realigned()
        assert job.sink.move(again) is True
        assert self.sql_rows(tmp_path, "k, _milepost")[1] == (2, back.number), (
            "a realignment writes no row that is right"
        )

    def test_a_comparison_of_the_whole_table_knows_what_later_files_delete(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A key that one file has and a later one deletes is in no table: when it is judged, and when it is repaired.

        Files are sent to the database one after another, as large ones are.
        """
        monkeypatch.setattr(row_changes, "TOGETHER_BYTES", 1)
        job = self.begin(tmp_path)
        for files, left in (
            (rows((1, "a"), (2, "b"), (3, "c")), [(1, "a"), (2, "b"), (3, "c")]),
            (deleting(rows((2, "B"), (4, "d"), (3, "")), [3]), [(1, "a"), (2, "B"), (4, "d")]),
            (deleting(rows((3, "back"), (1, "")), [1]), [(2, "B"), (3, "back"), (4, "d")]),
        ):
            done = job.publish(files)
            assert job.sink.fault(done.contents) is None
            assert job.sink.move(job.manifest.realigned()) is True
            assert self.sql_rows(tmp_path) == left
        self.database.run(f"UPDATE {self.table(tmp_path)} SET k = 1 WHERE k = 2")
        assert "1 row is missing, 1 row is in no checkpoint" in str(job.sink.fault(done.contents))
        assert job.sink.move(job.manifest.realigned()) is True
        assert self.sql_rows(tmp_path) == left

    def _access(self, own: Database) -> object:
        from milepost.jobspec.job.connections import PostgresAccess

        return lambda: PostgresAccess("the test", dsn=own.dsn)
