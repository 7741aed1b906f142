"""A table is taken over from a savepoint, in every format."""

from __future__ import annotations

from milepost.dataflow.sinks.contract import SinkMode
from tests.conformance.delta_sink import ForeignDelta
from tests.conformance.iceberg_sink import ForeignIceberg
from tests.conformance.local_cases import LocalCase, LocalListed, LocalParquet
from tests.conformance.sink_takeover import SinkTakeoverTests


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
