"""The Parquet sink keeps the sink contract on a local store, in both modes."""

from __future__ import annotations

from pathlib import Path

from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from tests.conformance.parquet_sink import ParquetSinkTests
from tests.conformance.sink_timelines import SinkTimelineTests


class LocalTests(SinkTimelineTests, ParquetSinkTests):
    def store_config(self, root: Path) -> StoreConfig:
        return StoreConfig(file_url(root / "a lake"))


class TestAppend(LocalTests):
    mode = "append"


class TestUpsert(LocalTests):
    mode = "upsert"
