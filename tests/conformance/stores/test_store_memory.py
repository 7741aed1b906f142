"""The in-memory store: the contract, except that processes cannot share it."""

from __future__ import annotations

import pytest

from milepost.errors import NotFound
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost_testkit.stores.memory_store import MemorySpace, MemoryStore
from tests.conformance.stores.object_store import ObjectStoreTests


class TestMemoryStore(ObjectStoreTests):
    @pytest.fixture(autouse=True)
    def empty_space(self) -> None:
        self.space = MemorySpace()

    @pytest.fixture
    def config(self) -> StoreConfig:
        return StoreConfig("file:///in memory")

    def open(self, config: StoreConfig) -> ObjectStore:
        return self.space.open(config)

    def raw_put(self, config: StoreConfig, key: str, body: bytes) -> None:
        MemoryStore(config.url, self.space).put(key, body)

    def raw_get(self, config: StoreConfig, key: str) -> bytes | None:
        try:
            return MemoryStore(config.url, self.space).get(key)
        except NotFound:
            return None
