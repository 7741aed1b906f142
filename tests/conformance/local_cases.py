"""Tables in a folder of the test: our own Parquet table, and the tests' own format that lists its files."""

from __future__ import annotations

from pathlib import Path

from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from tests.conformance.parquet_sink import ParquetCase
from tests.conformance.sink_case import SinkCase
from tests.harness.stores.listed_format import LOG, ListedFormat


class LocalCase(SinkCase):
    """Of whatever format."""

    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(file_url(root / f"a {part}"))


class LocalParquet(LocalCase, ParquetCase):
    """Our own."""


class LocalListed(LocalCase):
    """One with other writers beside us."""

    format_name = "listed"

    def table_format(self, store: ObjectStore) -> ListedFormat:
        return ListedFormat(store)

    def is_log(self, key: str) -> bool:
        return key.startswith(LOG)
