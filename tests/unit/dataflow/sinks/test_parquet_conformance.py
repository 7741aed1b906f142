"""Our own Parquet table keeps the sinks' contract on a local store, in both modes."""

from __future__ import annotations

from milepost.dataflow.sinks.contract import SinkMode
from tests.conformance.local_cases import LocalParquet
from tests.conformance.sink import SinkTests
from tests.conformance.sink_deletes import SinkDeleteTests
from tests.conformance.sink_faults import SinkDeleteFaultTests, SinkFaultTests
from tests.conformance.sink_small_files import SmallFilesTests
from tests.conformance.sink_strangers import SinkStrangerTests
from tests.conformance.sink_timelines import SinkTimelineTests


class TestAppend(LocalParquet, SmallFilesTests, SinkFaultTests, SinkStrangerTests, SinkTimelineTests, SinkTests):
    mode = SinkMode.APPEND


class TestUpsert(LocalParquet, SinkDeleteFaultTests, SinkStrangerTests, SinkTimelineTests, SinkTests):
    mode = SinkMode.UPSERT


class TestDeletes(LocalParquet, SinkDeleteTests):
    pass
