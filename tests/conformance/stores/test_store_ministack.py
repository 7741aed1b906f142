"""The S3 store on ministack. It checks no signatures, so a proxy can drop a signed header."""

from __future__ import annotations

import pytest

from milepost.errors import EnvironmentUnusable
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from milepost.storage.s3.probe import probe_store, require_preconditions
from milepost_testkit import wording
from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.servers.s3_servers import Ministack
from tests.conformance.stores.s3_store import S3CrashTests, S3StoreTests


class TestMinistackStore(S3StoreTests):
    @pytest.fixture
    def server(self, ministack: Ministack) -> Ministack:
        return ministack

    def test_an_endpoint_that_ignores_if_none_match_is_refused_by_name(self, server, config) -> None:
        with RecordingProxy(server.port, dropped_headers=frozenset({"if-none-match"})) as proxy:
            store = open_store(StoreConfig(config.url, proxy.endpoint_url))
            with wording.raises(EnvironmentUnusable) as refused:
                require_preconditions(store)
            assert proxy.endpoint_url in refused.value.message
            broken = [check.check for check in probe_store(store) if not check.ok]
        assert len(broken) == 3
        assert all(check.startswith("If-None-Match on PutObject") for check in broken)
        assert list(open_store(config).list("")) == []

    @pytest.mark.deep
    def test_an_endpoint_that_ignores_if_match_is_refused_by_name(self, server, config) -> None:
        with RecordingProxy(server.port, dropped_headers=frozenset({"if-match"})) as proxy:
            store = open_store(StoreConfig(config.url, proxy.endpoint_url))
            with wording.raises(EnvironmentUnusable) as raised:
                require_preconditions(store)
        assert raised.value.details["failed"] == ["If-Match on GetObject"]


@pytest.mark.deep
class TestMinistackCrash(S3CrashTests):
    @pytest.fixture
    def server(self, ministack: Ministack) -> Ministack:
        return ministack
