"""Our own Parquet table in the tests of sinks, on whatever store a subclass names."""

from __future__ import annotations

from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.formats.parquet.parquet_format import ParquetFormat
from tests.conformance.sinks.contract.case import SinkCase


class ParquetCase(SinkCase):
    """Mixed into what a subclass tests."""

    format_name = "parquet"

    def table_format(self, store: ObjectStore) -> ParquetFormat:
        return ParquetFormat(store)
