"""Requirements on S3 servers beyond the contract of every store: network faults, credentials, crashes."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from milepost.errors import CheckpointError, CommitConflict, CommitOutcomeUnknown, EnvironmentUnusable
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit import wording
from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.servers.s3_servers import S3Server
from milepost_testkit.stores.manifest_logs import create_job, new_log
from tests.conformance.stores.object_store import SharedObjectStoreTests


def every_call(store: ObjectStore) -> list:
    """Each method of a store, as something to call."""
    return [
        lambda: store.get("k"),
        lambda: store.get_if_match("k", "0" * 32),
        lambda: store.stat("k"),
        lambda: store.put("k", b""),
        lambda: store.create("k", b""),
        lambda: list(store.list("")),
        lambda: store.delete(["k"]),
        store.clock_ms,
    ]


class OnS3Server:
    """Where a store on a server is. Subclasses give the running `server`."""

    @pytest.fixture(autouse=True)
    def credentials(self, server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
        for name, value in server.environment().items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("HOME", str(tmp_path))
        self.raw = server.client

    @pytest.fixture
    def config(self, server: S3Server) -> StoreConfig:
        return StoreConfig(f"s3://{server.shared_bucket}/root-{uuid4().hex}/deep", server.endpoint_url)

    def raw_put(self, config: StoreConfig, key: str, body: bytes) -> None:
        bucket, prefix = config.url.removeprefix("s3://").split("/", 1)
        self.raw.put_object(Bucket=bucket, Key=f"{prefix}/{key}", Body=body)

    def raw_get(self, config: StoreConfig, key: str) -> bytes | None:
        bucket, prefix = config.url.removeprefix("s3://").split("/", 1)
        try:
            return self.raw.get_object(Bucket=bucket, Key=f"{prefix}/{key}")["Body"].read()
        except ClientError as error:
            assert error.response["Error"]["Code"] == "NoSuchKey"
            return None


class S3StoreTests(OnS3Server, SharedObjectStoreTests):
    """The contract, and what an S3 server must do beyond it."""

    def test_a_missing_bucket_is_named_by_every_call(self, server: S3Server) -> None:
        store = open_store(StoreConfig("s3://nobody-made-this/job", server.endpoint_url))
        for call in every_call(store):
            with wording.raises(EnvironmentUnusable):
                call()

    def test_missing_credentials_are_reported_in_one_paragraph(self, config, monkeypatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        for call in every_call(open_store(config)):
            with wording.raises(EnvironmentUnusable) as raised:
                call()
            assert "\n" not in raised.value.message

    def test_a_dead_proxy_in_the_environment_does_not_matter_for_loopback(self, config, monkeypatch) -> None:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        store = open_store(config)
        store.create("k", b"1")
        assert store.get("k") == b"1"

    # -- the wire -----------------------------------------------------------------------------------------------

    def test_a_create_whose_reply_is_reset_is_sent_once_and_its_outcome_is_unknown(self, server, config) -> None:
        """I1: a client's own retry would answer 412 for our own success."""
        with RecordingProxy(server.port) as proxy:
            proxy.reset_when = lambda method, path, headers: method == "PUT"
            store = open_store(StoreConfig(config.url, proxy.endpoint_url))
            with wording.raises(CommitOutcomeUnknown):
                store.create("k", b"whole")
            assert [method for method, _ in proxy.requests] == ["PUT"]
            assert store.get("k") == b"whole"

    def test_a_put_whose_reply_is_reset_is_repeated(self, server, config) -> None:
        resets = iter([True])
        with RecordingProxy(server.port) as proxy:
            proxy.reset_when = lambda method, path, headers: method == "PUT" and next(resets, False)
            open_store(StoreConfig(config.url, proxy.endpoint_url)).put("k", b"whole")
            assert [method for method, _ in proxy.requests] == ["PUT", "PUT"]
        assert self.raw_get(config, "k") == b"whole"

    def test_a_transition_whose_connection_is_reset_lands_exactly_once(self, server, config) -> None:
        """I1: resolved by reading the version back and comparing write ids."""
        resets = iter([True])
        with RecordingProxy(server.port) as proxy:
            proxy.reset_when = lambda method, path, headers: method == "PUT" and next(resets, False)
            log = new_log(open_store(StoreConfig(config.url, proxy.endpoint_url)))
            done = log.transact(create_job("flights"))
            assert sum(method == "PUT" for method, _ in proxy.requests) == 1
        assert done.landed_version == 1
        entries = list(new_log(open_store(config)).entries())
        assert [(entry.version, entry.write_id) for entry in entries] == [(1, done.head.write_id)]


class S3CrashTests(OnS3Server):
    """They restart the server."""

    def test_acknowledged_writes_survive_a_kill_of_the_server(self, server, config) -> None:
        """I1: an acknowledged create is there, whole, after kill -9; any other is absent or whole."""
        store = open_store(config)
        body = b"0123456789abcdef" * 256
        asked: list[str] = []
        acknowledged: list[str] = []
        enough = threading.Event()

        def write(writer: int) -> None:
            for number in range(10_000):
                key = f"k/{writer}/{number:05d}"
                asked.append(key)
                try:
                    store.create(key, key.encode() + body)
                except CheckpointError as error:
                    assert not isinstance(error, CommitConflict)
                    return
                acknowledged.append(key)
                if len(acknowledged) >= 150:
                    enough.set()

        with ThreadPoolExecutor(4) as pool:
            writers = [pool.submit(write, writer) for writer in range(4)]
            assert enough.wait(240)
            server.stop(kill=True)
            for writer in writers:
                writer.result(60)
        server.start()
        reader = open_store(config)
        present = [stat.key for stat in reader.list("k/")]
        assert set(acknowledged) <= set(present) <= set(asked)
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda key: reader.get(key) == key.encode() + body, present))
