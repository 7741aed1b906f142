"""A format that lists its live files, beside other writers, keeps the sinks' contract."""

from __future__ import annotations

from tests.conformance.local_cases import LocalListed
from tests.conformance.sink import SinkTests
from tests.conformance.sink_faults import SinkFaultTests
from tests.conformance.sink_foreign import SinkForeignTests
from tests.conformance.sink_small_files import SmallFilesTests
from tests.conformance.sink_strangers import SinkStrangerTests
from tests.conformance.sink_timelines import SinkTimelineTests


class TestListed(
    LocalListed, SmallFilesTests, SinkForeignTests, SinkFaultTests, SinkStrangerTests, SinkTimelineTests, SinkTests
):
    """In append mode: an upsert table of it would show every version of a row."""
