"""Tables of the latest rows keep the sinks' contract on S3, as ministack serves it: our own, and Delta's."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.protocol.records.object_store import StoreConfig
from milepost.sinks.contract import SinkMode
from milepost_testkit.servers.s3_servers import Ministack
from tests.conformance.sinks.contract.sink import SinkTests
from tests.conformance.sinks.contract.timelines import SinkSwitchTests
from tests.conformance.sinks.formats.delta_sink import DeltaCase
from tests.conformance.sinks.formats.parquet_sink import ParquetCase


class OnMinistack:
    """Mixed into the case of a format."""

    mode = SinkMode.UPSERT

    @pytest.fixture(autouse=True)
    def bucket(self, ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in ministack.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        self.endpoint_url = ministack.endpoint_url
        self.bucket_name = ministack.new_bucket()

    def store_config(self, root: Path, part: str) -> StoreConfig:
        return StoreConfig(f"s3://{self.bucket_name}/{root.name}/{part}", self.endpoint_url)


class TestParquet(OnMinistack, ParquetCase, SinkSwitchTests, SinkTests):
    pass


@pytest.mark.deep
class TestDelta(OnMinistack, DeltaCase, SinkSwitchTests, SinkTests):
    pass
