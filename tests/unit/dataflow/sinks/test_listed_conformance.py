"""A format that lists its live files, beside other writers, keeps the sinks' contract."""

from __future__ import annotations

from pathlib import Path

from milepost.dataflow.sinks.contract import SinkMode
from tests.conformance.local_cases import LocalListed
from tests.conformance.sink import SinkTests
from tests.conformance.sink_case import Pairs
from tests.conformance.sink_deletes import SinkDeleteTests
from tests.conformance.sink_faults import SinkFaultTests
from tests.conformance.sink_foreign import SinkForeignTests
from tests.conformance.sink_small_files import SmallFilesTests
from tests.conformance.sink_strangers import SinkStrangerTests
from tests.conformance.sink_timelines import SinkTimelineTests


class TestListed(
    LocalListed, SmallFilesTests, SinkForeignTests, SinkFaultTests, SinkStrangerTests, SinkTimelineTests, SinkTests
):
    """In append mode: an upsert table of it would show every version of a row."""


class TestBucketDeletes(LocalListed, SinkDeleteTests):
    """Of a table of buckets: whoever reads the plain files sees its rows."""

    mode = SinkMode.UPSERT
    format_name = "delta"

    def seen(self, root: Path) -> Pairs:
        return self.engine_rows(root)
