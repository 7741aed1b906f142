"""The S3 store on SeaweedFS, which checks signatures."""

from __future__ import annotations

import pytest

from milepost.errors import EnvironmentUnusable
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.servers.s3_servers import Seaweed
from tests.conformance.stores.s3_store import S3CrashTests, S3StoreTests, every_call


class TestSeaweedStore(S3StoreTests):
    racers = 3  # it answers a lost race after some 200 ms

    @pytest.fixture
    def server(self, seaweed: Seaweed) -> Seaweed:
        return seaweed

    @pytest.mark.deep
    @pytest.mark.parametrize("wrong", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
    def test_wrong_credentials_are_refused_with_bucket_and_endpoint_and_without_the_secret(
        self, server: Seaweed, config, monkeypatch, wrong
    ) -> None:
        monkeypatch.setenv(wrong, "not-what-the-server-knows")
        store = open_store(config)
        for call in every_call(store):
            with wording.raises(EnvironmentUnusable) as raised:
                call()
            told = f"{raised.value.message} {raised.value.hint} {raised.value.details}"
            assert server.endpoint_url in told
            assert config.url.split("/")[2] in told
            assert not any(secret in told for secret in ("not-what", server.access_key, server.secret_key))
            assert "\n" not in told


class TestSeaweedCrash(S3CrashTests):
    @pytest.fixture
    def server(self, seaweed: Seaweed) -> Seaweed:
        return seaweed
