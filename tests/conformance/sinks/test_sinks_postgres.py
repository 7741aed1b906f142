"""A table in Postgres keeps the sinks' contract, on a real server."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis.stateful import run_state_machine_as_test

from milepost.errors import InvalidRequest
from milepost.sinks.formats.postgres import row_changes
from milepost.sinks.staging import compaction
from milepost.sinks.staging.compaction import COMPACT_FILES
from milepost_testkit import profiles, wording
from tests.conformance.sinks.contract.case import deleting, rows
from tests.conformance.sinks.contract.deletes import SinkDeleteTests
from tests.conformance.sinks.contract.faults import SinkDeleteFaultTests, SinkFaultTests
from tests.conformance.sinks.contract.sink import SinkTests
from tests.conformance.sinks.contract.sink_machine import SinkMachine
from tests.conformance.sinks.contract.strangers import SinkStrangerTests
from tests.conformance.sinks.contract.timelines import SinkTimelineTests
from tests.conformance.sinks.formats.postgres_sink import PostgresCase


@pytest.mark.long
class TestUpsert(PostgresCase, SinkStrangerTests, SinkTimelineTests, SinkTests):
    pass


@pytest.mark.long
class TestManyEpochs(PostgresCase):
    @pytest.mark.parametrize(
        ("epochs", "most_files"), [(24, 16), pytest.param(300, COMPACT_FILES, marks=pytest.mark.deep)]
    )
    def test_many_epochs_leave_one_head_and_no_more_than_their_rows(
        self, epochs: int, most_files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """TABLES 6: no growth; compaction of the files on the way, and back over all of it."""
        monkeypatch.setattr(compaction, "COMPACT_FILES", most_files)
        job = self.begin(tmp_path)
        first = job.publish(rows((0, "first")))
        for number in range(1, epochs):
            job.publish(rows((number % 7, f"epoch {number}")))
        assert [row[0] for row in self.sql_rows(tmp_path)] == list(range(7))
        assert len(self.published(tmp_path)) == 7
        table = self.table(tmp_path)
        heads = "SELECT count(*), max(version) FROM milepost_tables WHERE table_oid = %s::regclass"
        assert self.database.run(heads, table) == [(1, epochs)]
        assert self.database.run("SELECT count(*) FROM pg_class WHERE relpersistence = 't'") == [(0,)]
        contents = job.sink.position().contents
        assert contents is not None and contents.files < most_files
        self.database.run(f"VACUUM FULL {table}")
        assert self.database.run("SELECT pg_relation_size(%s::regclass)", table) == [(8192,)]
        job.back_to(first)
        assert self.published(tmp_path) == [(0, "first")]


@pytest.mark.long
@pytest.mark.hypothesis
class TestAnyHistory(PostgresCase):
    def test_any_history_of_epochs_switches_crashes_and_late_commits_equals_the_model(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """I14. Compaction from 4 files on, few rows compared in memory: short histories meet both, and the others."""
        monkeypatch.setattr(compaction, "COMPACT_FILES", 4)
        monkeypatch.setattr(row_changes, "MOST_ROWS", 4)

        class Machine(SinkMachine):
            case = self

        run_state_machine_as_test(Machine, settings=profiles.examples(share=0.1))


@pytest.mark.long
class TestFaults(PostgresCase, SinkDeleteFaultTests, SinkFaultTests):
    every_call = False


@pytest.mark.long
class TestDeletes(PostgresCase, SinkDeleteTests):
    """SQL reads the table, in addition to our own reader."""

    def test_a_delete_leaves_the_row_of_another_writer(self, tmp_path: Path) -> None:
        """Nobody could bring it back."""
        job = self.begin(tmp_path)
        job.publish(rows((1, "a"), (2, "b")))
        self.database.run(f"INSERT INTO {self.table(tmp_path)} (k, v) VALUES (9, 'theirs')")
        self.deleting(job, 1, 9)
        assert self.sql_rows(tmp_path) == [(2, "b"), (9, "theirs")]

    @pytest.mark.deep
    def test_a_key_that_the_database_cannot_hold_is_refused_in_a_delete_too(self, tmp_path: Path) -> None:
        """Beyond the commit point its transaction would fail permanently."""
        schema = pa.schema([("k", pa.string()), ("v", pa.string())])
        job = self.begin(tmp_path)
        job.publish(rows(("1", "a"), schema=schema), schema=schema)
        marked = deleting(rows(("1\0", ""), schema=schema), ["1\0"])
        with wording.raises(InvalidRequest):
            job.complete(marked, schema=marked.schema)
