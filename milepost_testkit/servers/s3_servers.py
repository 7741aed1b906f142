"""Real S3 servers on loopback: ministack and SeaweedFS, each with its data in a directory of its own.

`ministack` and `seaweed` are session fixtures; a conftest imports them. A server that is killed can be started again
on the same ports and data.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import psutil
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from milepost_testkit.processes.processes import LOOPBACK, REPOSITORY, free_ports, stop_tree, wait_until


class S3Server(ABC):
    """One server process and how to reach it.

    Attributes:
        endpoint_url: http://127.0.0.1:<port>.
        port: of the S3 API.
        access_key, secret_key: a random pair made for this server.
    """

    name: str

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.access_key = f"key{secrets.token_hex(8)}"
        self.secret_key = secrets.token_hex(20)
        self.ports = free_ports(self._port_count())
        self.port = self.ports[0]
        self.endpoint_url = f"http://127.0.0.1:{self.port}"
        self._process: psutil.Popen | None = None

    @abstractmethod
    def _port_count(self) -> int: ...

    @abstractmethod
    def _command(self) -> list[str]: ...

    def _environment(self) -> dict[str, str]:
        return {}

    def start(self) -> None:
        """Start the process and wait until it serves a bucket request."""
        self.directory.mkdir(parents=True, exist_ok=True)
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
        proxy_free = {"NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK}
        with (self.directory / "server.log").open("ab") as log:
            self._process = psutil.Popen(
                self._command(),
                env={**kept, **proxy_free, **self._environment()},
                cwd=self.directory,
                stdout=log,
                stderr=log,
            )
        wait_until(self._serves, seconds=240, what=f"{self.name} at {self.endpoint_url}", process=self._process)

    def stop(self, *, kill: bool = False) -> None:
        """End the process tree; with `kill` by SIGKILL, as a crash."""
        if self._process is not None:
            stop_tree(self._process, kill=kill)
            self._process = None

    def environment(self) -> dict[str, str]:
        """The variables by which the standard AWS chain finds this server's credentials."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    @cached_property
    def client(self) -> Any:
        """A plain client, apart from the store under test."""
        return self._plain_client("s3")

    def _plain_client(self, service: str) -> Any:
        return boto3.session.Session().client(
            service,
            endpoint_url=self.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            config=Config(proxies={}, connect_timeout=10, read_timeout=120, retries={"total_max_attempts": 1}),
        )

    def new_bucket(self) -> str:
        """Create a bucket of a new name."""
        name = f"milepost-{uuid4().hex[:12]}"
        self.client.create_bucket(Bucket=name)
        return name

    @cached_property
    def shared_bucket(self) -> str:
        """A bucket for tests that keep to prefixes of their own."""
        return self.new_bucket()

    def _serves(self) -> bool:
        bucket = "readiness"
        with suppress(BotoCoreError, ClientError):
            client = self.client
            if bucket not in (each["Name"] for each in client.list_buckets()["Buckets"]):
                client.create_bucket(Bucket=bucket)
            client.put_object(Bucket=bucket, Key="ready", Body=b"ready")
            return bool(client.get_object(Bucket=bucket, Key="ready")["Body"].read() == b"ready")
        return False


class Ministack(S3Server):
    """ministack with its data on disk: buckets, and queues that they tell of new objects. It takes any credentials."""

    name = "ministack"

    def _port_count(self) -> int:
        return 1

    def _command(self) -> list[str]:
        return [str(REPOSITORY / ".venv-s3" / "bin" / "ministack")]

    def _environment(self) -> dict[str, str]:
        return {
            "BIND_HOST": "127.0.0.1",
            "GATEWAY_PORT": str(self.port),
            "S3_PERSIST": "1",
            "S3_DATA_DIR": str(self.directory / "data"),
            "SERVICES": "s3,sqs,glue,s3tables",
        }

    @cached_property
    def queues(self) -> Any:
        """A plain client of its queues."""
        return self._plain_client("sqs")


class Seaweed(S3Server):
    """SeaweedFS: master, volume server, filer and S3 gateway in one process. It checks signatures.

    Attributes:
        volume_mb: of each of its volumes; a bucket takes seven.
    """

    name = "SeaweedFS"

    def __init__(self, directory: Path, volume_mb: int = 64) -> None:
        super().__init__(directory)
        self.volume_mb = volume_mb

    def _port_count(self) -> int:
        return 8

    def _command(self) -> list[str]:
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = self.ports
        return [
            str(Path(sys.executable).with_name("weed")),
            "server",
            f"-dir={self._data()}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            f"-master.volumeSizeLimitMB={self.volume_mb}",
            "-master.electionTimeout=1s",
            "-master.heartbeatInterval=100ms",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            "-volume.max=1000",
            "-volume.minFreeSpace=100MiB",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            "-s3",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_grpc}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            f"-s3.config={self._config()}",
        ]

    def _data(self) -> Path:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        return data

    def _config(self) -> Path:
        config = self.directory / "s3.json"
        config.write_text(json.dumps({"identities": self._identities()}))
        config.chmod(0o600)
        return config

    def _identities(self) -> list[dict[str, Any]]:
        actions = ["Admin", "Read", "Write", "List", "Tagging"]
        return [_identity("milepost", self.access_key, self.secret_key, actions)]


class SeaweedTables(Seaweed):
    """SeaweedFS with a catalog of Iceberg tables in addition to its S3 gateway.

    Attributes:
        catalog_url: of Iceberg's REST protocol. bucket: of tables; each table is in a folder of its namespace.
        reader_key, reader_secret: an identity that may only read.
    """

    bucket = "lake"

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.catalog_url = f"http://127.0.0.1:{self.ports[8]}"
        self.reader_key, self.reader_secret = f"key{secrets.token_hex(8)}", secrets.token_hex(20)

    def _port_count(self) -> int:
        return 11

    def _identities(self) -> list[dict[str, Any]]:
        return [*super()._identities(), _identity("reader", self.reader_key, self.reader_secret, ["Read", "List"])]

    def _command(self) -> list[str]:
        s3, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc, catalog, *admin = self.ports
        return [
            str(Path(sys.executable).with_name("weed")),
            "mini",
            f"-dir={self._data()}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            f"-s3.port={s3}",
            f"-s3.port.grpc={s3_grpc}",
            f"-s3.port.iceberg={catalog}",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            f"-s3.config={self._config()}",
            f"-tableBucket={self.bucket}",
            "-admin.ui=false",
            f"-admin.port={admin[0]}",
            f"-admin.port.grpc={admin[1]}",
            "-webdav=false",
        ]

    def _serves(self) -> bool:
        return super()._serves() and any(self.bucket == each["Name"] for each in self.client.list_buckets()["Buckets"])


def _identity(name: str, access_key: str, secret_key: str, actions: list[str]) -> dict[str, Any]:
    return {
        "name": name,
        "credentials": [{"accessKey": access_key, "secretKey": secret_key}],
        "actions": actions,
    }


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ministack]:
    """A running ministack."""
    yield from _running(Ministack(tmp_path_factory.mktemp("ministack")))


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seaweed]:
    """A running SeaweedFS."""
    yield from _running(Seaweed(tmp_path_factory.mktemp("seaweed")))


@pytest.fixture(scope="session")
def seaweed_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedTables]:
    """A running SeaweedFS with its catalog of tables."""
    yield from _running(SeaweedTables(tmp_path_factory.mktemp("seaweed-tables")))


def _running(server: Any) -> Iterator[Any]:
    try:
        server.start()
        yield server
    finally:
        server.stop(kill=True)
