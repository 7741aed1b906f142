"""A format that lists its live files, beside other writers, keeps the sinks' contract."""

from __future__ import annotations

from pathlib import Path

from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from tests.conformance.sink import SinkTests
from tests.conformance.sink_faults import SinkFaultTests
from tests.conformance.sink_strangers import SinkStrangerTests
from tests.conformance.sink_timelines import SinkTimelineTests
from tests.harness.stores.listed_format import LOG, ListedFormat


class TestListed(SinkFaultTests, SinkStrangerTests, SinkTimelineTests, SinkTests):
    format_name = "listed"

    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / part))

    def table_format(self, store: ObjectStore) -> ListedFormat:
        return ListedFormat(store)

    def is_log(self, key: str) -> bool:
        return key.startswith(LOG)
