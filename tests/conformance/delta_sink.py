"""A Delta table in the tests of sinks, on whatever store a subclass names."""

from __future__ import annotations

from milepost.dataflow.sinks.delta.delta_format import DeltaFormat
from milepost.protocol.records.object_store import ObjectStore
from tests.conformance.sink_case import SinkCase

WEEK_MS = 7 * 24 * 3_600_000


class DeltaCase(SinkCase):
    """Mixed into what a subclass tests."""

    format_name = "delta"

    def table_format(self, store: ObjectStore) -> DeltaFormat:
        return DeltaFormat("table", store, WEEK_MS)
