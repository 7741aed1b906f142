"""A table in Iceberg keeps the sinks' contract on a local store."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.dataflow.sinks.contract import SinkMode
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from tests.conformance.iceberg_sink import IcebergCase
from tests.conformance.sink import SinkTests
from tests.conformance.sink_faults import SinkFaultTests
from tests.conformance.sink_small_files import SmallFilesTests
from tests.conformance.sink_strangers import SinkStrangerTests
from tests.conformance.sink_timelines import SinkTimelineTests


class LocalCase(IcebergCase):
    mode = SinkMode.APPEND

    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / f"a {part}"))


class TestAppend(LocalCase, SmallFilesTests, SinkStrangerTests, SinkTimelineTests, SinkTests):
    pass


@pytest.mark.long
class TestFaults(LocalCase, SinkFaultTests):
    every_call = False


@pytest.mark.long
class TestUpsert(LocalCase, SinkTimelineTests, SinkTests):
    mode = SinkMode.UPSERT
