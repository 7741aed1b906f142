"""A table in Postgres keeps the sinks' contract, on a real server."""

from __future__ import annotations

import pytest

from tests.conformance.postgres_sink import PostgresCase
from tests.conformance.sink import SinkTests
from tests.conformance.sink_faults import SinkFaultTests
from tests.conformance.sink_strangers import SinkStrangerTests
from tests.conformance.sink_timelines import SinkTimelineTests


@pytest.mark.long
class TestUpsert(PostgresCase, SinkStrangerTests, SinkTimelineTests, SinkTests):
    pass


@pytest.mark.long
class TestFaults(PostgresCase, SinkFaultTests):
    every_call = False
