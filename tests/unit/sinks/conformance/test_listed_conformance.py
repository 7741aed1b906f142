"""A format that lists its live files, with other writers, fulfils the sinks' contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.sinks.contract import SinkMode
from tests.conformance.sinks.contract.case import Pairs
from tests.conformance.sinks.contract.deletes import SinkDeleteTests
from tests.conformance.sinks.contract.faults import SinkFaultTests
from tests.conformance.sinks.contract.foreign import SinkForeignTests
from tests.conformance.sinks.contract.sink import SinkTests
from tests.conformance.sinks.contract.small_files import SmallFilesTests
from tests.conformance.sinks.contract.strangers import SinkStrangerTests
from tests.conformance.sinks.contract.timelines import SinkTimelineTests
from tests.conformance.sinks.formats.local_cases import LocalListed


class TestListed(
    LocalListed, SmallFilesTests, SinkForeignTests, SinkFaultTests, SinkStrangerTests, SinkTimelineTests, SinkTests
):
    """In append mode: an upsert table of it would show every version of a row."""

    every_call = False


@pytest.mark.deep
class TestEveryCall(LocalListed, SinkFaultTests):
    """Moves that stop at a look as well. Our own Parquet table has that in `make test`: a look decides nothing."""


class TestBucketDeletes(LocalListed, SinkDeleteTests):
    """Of a table of buckets: readers of the plain files see its rows."""

    mode = SinkMode.UPSERT
    format_name = "delta"

    def seen(self, root: Path) -> Pairs:
        return self.engine_rows(root)
