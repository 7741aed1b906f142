"""The local store: the contract, and a crash in the middle of a write."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.directory_walk import STAGING
from milepost.storage.open import open_store
from milepost_testkit.processes.processes import run_python
from tests.conformance.stores.object_store import SharedObjectStoreTests

# Kills its own process at one system call of a write; the store's code is as it is.
KILLED_WRITER = """
import os, signal, sys
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
url, operation, call, number = sys.argv[1:]
store = open_store(StoreConfig(url))
store.put("warm", b"up")
real, left = getattr(os, call), int(number)
def dying(*arguments, **named):
    global left
    left -= 1
    if left == 0:
        if call == "write":
            real(arguments[0], arguments[1][: len(arguments[1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **named)
setattr(os, call, dying)
getattr(store, operation)("manifest/1.json", b"new " * 100_000)
print("survived")
"""


class TestLocalStore(SharedObjectStoreTests):
    @pytest.fixture
    def config(self, tmp_path: Path) -> StoreConfig:
        return StoreConfig(file_url(tmp_path / "root of a store"))

    def raw_put(self, config: StoreConfig, key: str, body: bytes) -> None:
        path = self._path(config, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)

    def raw_get(self, config: StoreConfig, key: str) -> bytes | None:
        path = self._path(config, key)
        return path.read_bytes() if path.is_file() else None

    def _path(self, config: StoreConfig, key: str) -> Path:
        return Path(config.url.removeprefix("file://").replace("%25", "%")) / key

    @pytest.mark.parametrize("operation", ["create", "put"])
    @pytest.mark.parametrize(
        ("call", "number", "landed"),
        [
            ("open", 1, False),  # the temp file is about to be made
            ("write", 1, False),  # half of it is written
            ("utime", 1, False),
            ("fsync", 1, False),  # the parent directory was made, or the temp file written, but not synced
            ("fsync", 2, False),
            ("link", 1, False),  # whole, durable, unpublished
            ("fsync", 3, True),  # published, the directory not yet synced
        ],
    )
    def test_a_writer_killed_in_the_middle_leaves_the_key_absent_or_whole(
        self, config, operation, call, number, landed
    ) -> None:
        """I1: a torn head would stop the job."""
        if (operation, call) == ("put", "link"):
            call = "replace"
        ended = run_python(KILLED_WRITER, config.url, operation, call, str(number))
        assert ended.returncode == -9, ended.stdout + ended.stderr
        store = open_store(config)
        expected = ["manifest/1.json", "warm"] if landed else ["warm"]
        assert [stat.key for stat in store.list("")] == expected
        if landed:
            assert store.get("manifest/1.json") == b"new " * 100_000
        else:
            store.create("manifest/1.json", b"next")
            assert store.get("manifest/1.json") == b"next"
        assert (self._path(config, STAGING)).is_dir()
