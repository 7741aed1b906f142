"""The flights job in three buckets of a server that checks signatures, reached by a Connection alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from milepost.protocol.records.object_store import Credentials, ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.jobs.flights.flights_job import FLIGHTS_SPEC, FlightsJob
from milepost_testkit.jobs.flights.recovering_job import quality_section
from milepost_testkit.servers.s3_servers import Seaweed

OWN_STORE = 'store: {endpoint_url: "${env:MILEPOST_S3_ENDPOINT:-}", region: us-east-1}'
OWN_SPARK = 'spark: {master: "local[2]", remote: "${env:MILEPOST_SPARK_REMOTE:-}"'


@dataclass(frozen=True)
class ConnectedJob(FlightsJob):
    """The flights job whose stores and Spark are named by Connections.

    Attributes:
        objects: how the landing is reached.
    """

    objects: StoreConfig

    @property
    def landing(self) -> ObjectStore:
        return open_store(self.objects)

    @classmethod
    def connected(cls, folder: Path, server: Seaweed, spark: str) -> ConnectedJob:
        """Write the spec, with `spark` as the beginning of its section of this name; its Connection is `lake`."""
        buckets = {name: server.new_bucket() for name in ("milepost", "landing", "lake")}
        credentials = Credentials(server.access_key, server.secret_key)
        job = cls(folder, StoreConfig(f"s3://{buckets['landing']}", server.endpoint_url, credentials=credentials))
        job.spec_path.parent.mkdir(parents=True)
        edit = {f"s3://{name}": f"s3://{bucket}" for name, bucket in buckets.items()}
        edit |= {OWN_STORE: "store: {conn_id: lake}", OWN_SPARK: spark, quality_section(): ""}
        job.edit(FLIGHTS_SPEC.read_text(), edit)
        return job


def lake_connection(server: Seaweed, endpoint_url: str | None = None) -> dict[str, str]:
    """Return the environment in which `lake` is the Connection to a server, or to what stands before it."""
    keys = {"login": server.access_key, "password": server.secret_key}
    about = {"conn_type": "aws", **keys, "extra": {"endpoint_url": endpoint_url or server.endpoint_url}}
    return {"AIRFLOW_CONN_LAKE": json.dumps(about)}
