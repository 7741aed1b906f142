"""The Parquet sink keeps the sink contract on S3, as ministack serves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.protocol.records.object_store import StoreConfig
from tests.conformance.parquet_sink import ParquetSinkTests
from tests.harness.servers.s3_servers import Ministack


class TestUpsertOnMinistack(ParquetSinkTests):
    mode = "upsert"

    @pytest.fixture(autouse=True)
    def bucket(self, ministack: Ministack, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in ministack.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        self.endpoint_url = ministack.endpoint_url
        self.bucket_name = ministack.new_bucket()

    def store_config(self, root: Path) -> StoreConfig:
        return StoreConfig(f"s3://{self.bucket_name}/{root.name}", self.endpoint_url)
