"""A table of others becomes a job's, in every format that others write."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from milepost.errors import CommitOutcomeUnknown
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.sinks.formats.delta.delta_format import DeltaFormat
from milepost.sinks.formats.delta.locations import delta_location
from milepost.tables.delta.retentions import FILE_RETENTION, LOG_RETENTION
from milepost_testkit import wording
from milepost_testkit.formats.played_manifest import PlayedManifest
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from tests.conformance.sinks.contract.adoption import SinkAdoptionTests, UpsertAdoptionTests
from tests.conformance.sinks.contract.case import LIFE, SinkCase, Story, pairs, rows
from tests.conformance.sinks.formats.delta_sink import WEEK_MS, ForeignDelta
from tests.conformance.sinks.formats.iceberg_sink import ForeignIceberg
from tests.conformance.sinks.formats.local_cases import LocalCase, LocalListed


class TestListed(LocalListed, SinkAdoptionTests):
    pass


class TestDelta(LocalCase, ForeignDelta, SinkAdoptionTests):
    def test_a_longer_retention_is_raised_before_the_next_commit_point(self, tmp_path: Path) -> None:
        """More checkpoints retained: Delta's own is never shorter than ours."""
        job = self.begin(tmp_path)
        job.go_on(1)
        longer = LongerDelta()
        done = Story(longer.open_sink(tmp_path), job.manifest).complete(job.row())
        assert longer.retentions(tmp_path) == {f"interval {2 * WEEK_MS // 1000} seconds"}
        assert job.sink.move(done.target) is True
        job.go_on(1)
        assert longer.retentions(tmp_path) == {f"interval {2 * WEEK_MS // 1000} seconds"}, "nobody lowers it"

    def test_properties_that_cannot_be_set_are_reported_with_the_command(self, tmp_path: Path) -> None:
        """Nothing is published, and the table is as it was."""
        job = self.begin(tmp_path)
        job.go_on(1)

        def refuse(operation: str, subject: str) -> None:
            if operation == "format.claim":
                raise CommitOutcomeUnknown("the library does not do that.")

        sink = LongerDelta().open_sink(tmp_path, before=refuse)
        with wording.raises(CommitOutcomeUnknown):
            Story(sink, job.manifest).complete(job.row())
        assert self.engine_rows(tmp_path) == [(1, "main")]


class TestEngines(ForeignDelta, SinkCase):
    """DuckDB and Polars; of paths with a space Polars finds not every file."""

    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / part))

    @pytest.mark.parametrize("engine", ENGINES)
    def test_engines_read_their_rows_and_ours(
        self, tmp_path: Path, engine: str, reading_engines: ReadingEngines
    ) -> None:
        self.make_foreign(tmp_path, rows((90, "theirs")))
        sink = self.open_sink(tmp_path, adopts=True)
        sink.reserve(LIFE)
        job = Story(sink, PlayedManifest(self.job_store(tmp_path)))
        first, _ = job.go_on(2)
        assert pairs(reading_engines.read(engine, tmp_path / "table")) == [(1, "main"), (2, "main"), (90, "theirs")]
        job.back_to(first)
        assert pairs(reading_engines.read(engine, tmp_path / "table")) == [(1, "main"), (90, "theirs")]


class LongerDelta(LocalCase, ForeignDelta):
    """The same table, whose job retains more."""

    def table_format(self, store: ObjectStore) -> DeltaFormat:
        return DeltaFormat("table", store, 2 * WEEK_MS)

    def retentions(self, root: Path) -> set[str]:
        location = delta_location("others", self.table_store(root).config)
        return {
            value
            for name, value in DeltaTable(location.uri).metadata().configuration.items()
            if name in (FILE_RETENTION, LOG_RETENTION)
        }


class TestDeltaUpsert(LocalCase, ForeignDelta, UpsertAdoptionTests):
    pass


class TestIceberg(LocalCase, ForeignIceberg, SinkAdoptionTests):
    pass


class TestIcebergUpsert(LocalCase, ForeignIceberg, UpsertAdoptionTests):
    pass
