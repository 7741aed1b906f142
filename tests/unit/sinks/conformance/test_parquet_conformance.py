"""Our own Parquet table keeps the sinks' contract on a local store, in both modes."""

from __future__ import annotations

import pytest

from milepost.sinks.contract import SinkMode
from tests.conformance.sinks.contract.deletes import SinkDeleteTests
from tests.conformance.sinks.contract.faults import SinkDeleteFaultTests, SinkFaultTests
from tests.conformance.sinks.contract.sink import SinkTests
from tests.conformance.sinks.contract.small_files import SmallFilesTests
from tests.conformance.sinks.contract.strangers import SinkStrangerTests
from tests.conformance.sinks.contract.timelines import SinkTimelineTests
from tests.conformance.sinks.formats.local_cases import LocalParquet


class TestAppend(LocalParquet, SmallFilesTests, SinkFaultTests, SinkStrangerTests, SinkTimelineTests, SinkTests):
    mode = SinkMode.APPEND


class TestUpsert(LocalParquet, SinkDeleteFaultTests, SinkStrangerTests, SinkTimelineTests, SinkTests):
    mode = SinkMode.UPSERT


@pytest.mark.deep
class TestUpsertFaults(LocalParquet, SinkFaultTests):
    """Which rows a move shows is the mode's; when it shows them is not."""

    mode = SinkMode.UPSERT


class TestDeletes(LocalParquet, SinkDeleteTests):
    pass
