"""A store that is far: an S3 server behind a delay, in which each system of a workload has a place of its own.

What lands stays on the disk, for all of them alike; what they keep and publish is far.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from bench.systems.contract import Folders
from scripts.processes import ROOT

DELAY_S = 0.03
"""Of each answer, on top of what the server needs."""

PINS = ROOT / "bench" / "jars-s3a.txt"
JARS = ROOT / ".milepost" / "bench" / "jars-s3a"
_FILE = "far-store.json"


@dataclass(frozen=True, slots=True)
class FarStore:
    """Where it is. Attributes: bucket: of all systems."""

    endpoint_url: str
    bucket: str
    access_key: str
    secret_key: str

    @classmethod
    def of(cls, folders: Folders) -> Self:
        """Return the one that was opened for a system with these folders."""
        return cls(**json.loads(_file(folders.work.parents[2]).read_text(encoding="utf-8")))

    def place(self, folders: Folders, scheme: str) -> str:
        """Return a system's place, without a slash at the end."""
        return f"{scheme}://{self.bucket}/{folders.work.parent.name}"

    def environment(self) -> dict[str, str]:
        """What clients of S3 take the keys from."""
        return {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}

    def of_hadoop(self) -> dict[str, str]:
        """What the JVM of a Spark needs to reach it, and to commit tables without renaming."""
        jars = [str(jar) for jar in sorted(JARS.glob("*.jar"))]
        s3a = {
            "endpoint": self.endpoint_url,
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
            "connection.ssl.enabled": "false",
            "access.key": self.access_key,
            "secret.key": self.secret_key,
        }
        return {
            "spark.jars": ",".join(jars),
            "spark.driver.extraClassPath": ":".join(jars),
            "spark.hadoop.mapreduce.outputcommitter.factory.scheme.s3a": (
                "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"
            ),
            **{f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()},
        }

    def fetch(self, folders: Folders, below: str, folder: Path) -> None:
        """Copy what a system has there below a prefix to a folder."""
        import boto3

        client = boto3.client(
            "s3",
            endpoint_url=self.endpoint_url,
            region_name="us-east-1",
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )
        prefix = f"{folders.work.parent.name}/{below}/"
        for page in client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix):
            for key in (item["Key"] for item in page.get("Contents", ())):
                file = folder / key.removeprefix(prefix)
                file.parent.mkdir(parents=True, exist_ok=True)
                client.download_file(self.bucket, key, str(file))


@contextmanager
def far_store(folder: Path) -> Iterator[None]:
    """One that the systems of a workload measured in this folder find, while the block runs."""
    from milepost_testkit.proxies.delaying_proxy import DelayingProxy
    from milepost_testkit.servers.s3_servers import Seaweed

    server = Seaweed(folder / "far-store", volume_mb=256)
    server.start()
    try:
        with DelayingProxy(server.port, delay_s=DELAY_S) as proxy:
            found = FarStore(proxy.endpoint_url, server.new_bucket(), server.access_key, server.secret_key)
            with open(_file(folder), "w", encoding="utf-8", opener=_private) as file:
                json.dump(asdict(found), file)
            yield
    finally:
        server.stop()
        _file(folder).unlink(missing_ok=True)


def _file(folder: Path) -> Path:
    return folder / _FILE


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
