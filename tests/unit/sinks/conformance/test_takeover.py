"""A table is taken over from a savepoint, in every format."""

from __future__ import annotations

from milepost.sinks.contract import SinkMode
from tests.conformance.sinks.contract.takeover import SinkTakeoverTests
from tests.conformance.sinks.formats.delta_sink import ForeignDelta
from tests.conformance.sinks.formats.iceberg_sink import ForeignIceberg
from tests.conformance.sinks.formats.local_cases import LocalCase, LocalListed, LocalParquet


class TestParquet(LocalParquet, SinkTakeoverTests):
    pass


class TestParquetUpsert(LocalParquet, SinkTakeoverTests):
    mode = SinkMode.UPSERT


class TestListed(LocalListed, SinkTakeoverTests):
    pass


class TestDelta(LocalCase, ForeignDelta, SinkTakeoverTests):
    pass


class TestDeltaUpsert(LocalCase, ForeignDelta, SinkTakeoverTests):
    mode = SinkMode.UPSERT


class TestIceberg(LocalCase, ForeignIceberg, SinkTakeoverTests):
    pass
