"""A random job in a bucket behind a proxy on which requests fail, and the plain model that it is held to.

The model is the law: each node's rows follow from its input's, by DuckDB over all that the live lineage has read, and a
table shows what its node put out. What that was is left by each try in a file, so that it outlives a killed process.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milepost.jobmaster.jobmaster import JobMaster
from milepost.spec.load.load import LoadedJob, load_job
from tests.harness.chaos.commands import Command, Running
from tests.harness.law.captured import Captured
from tests.harness.law.job import check_job, completed_of

TIMEOUT = "30s"
"""Of a checkpoint: what waits for a process that is gone waits no longer."""


@dataclass
class ChaosJob:
    """One job, its landing places and its tables.

    Attributes:
        document: its spec. client: of S3, beside the proxy. landed: how many objects were.
    """

    folder: Path
    document: dict[str, Any]
    client: Any
    bucket: str
    landed: int = 0
    saved: list[int] = field(default_factory=list)

    @classmethod
    def create(
        cls, folder: Path, document: dict[str, Any], client: Any, bucket: str, endpoint_url: str, formats: list[str]
    ) -> ChaosJob:
        """A job that has run nothing; its epochs read one object of each source.

        Args:
            formats: of its sinks, in turn.
        """
        root = f"s3://{bucket}/{folder.name}"
        document["storage"] = f"{root}/store"
        document["store"] = {"endpoint_url": endpoint_url, "region": "us-east-1"}
        for name, source in document["sources"].items():
            source |= {"path": f"{root}/landing/{name}/*.parquet", "limits_per_epoch": {"max_files": 1}}
            source |= {"settle": "0s"}
        for sink, format_ in zip(document["sinks"], formats, strict=False):
            sink |= {"format": format_, "path": f"{root}/lake/{sink['name']}"}
        document["checkpointing"] |= {"retained": {"last": 50}, "tolerable_failures": 1000, "timeout": TIMEOUT}
        for part in ("config", "captured"):
            (folder / part).mkdir(parents=True)
        job = cls(folder, document, client, bucket)
        job.set_parallelism(1)
        return job

    @property
    def spec(self) -> Path:
        return self.folder / "config" / "law.yaml"

    @property
    def loaded(self) -> LoadedJob:
        return load_job(str(self.spec))

    def set_parallelism(self, parallelism: int) -> None:
        """Write the spec anew, with so many subtasks of every level."""
        self.document["spark"]["parallelism"] = parallelism
        self.spec.write_text(json.dumps(self.document, indent=1))

    def land(self, source: str, rows: pa.Table) -> None:
        """Land rows as one object."""
        self.landed += 1
        body = io.BytesIO()
        pq.write_table(rows, body)
        key = f"{self.folder.name}/landing/{source}/{self.landed:04}.parquet"
        self.client.put_object(Bucket=self.bucket, Key=key, Body=body.getvalue())

    def begin(self, command: Command) -> Running:
        """Begin a command in a process of its own."""
        return Running(self.spec, self.folder / "captured", command)

    def check(self) -> None:
        """Nodes keep their law, tables show what nodes put out, and nothing is amiss in the stores.

        Raises: AssertionError.
        """
        job, captured = self.loaded, Captured()
        schemas: Mapping[str, pa.Schema] = {}
        completed = completed_of(job)
        for one in completed:
            file = self.folder / "captured" / f"{one.checkpoint_id}-{one.token}"
            pieces, schemas = pickle.loads(file.read_bytes())
            for node, stamp_us, rows in pieces:
                captured.add(node, int(one.checkpoint_id), stamp_us, rows)
        check_job(job, captured, schemas, tuple(int(one.checkpoint_id) for one in completed))
        audit = JobMaster(job).fsck()
        assert audit.exit_code == 0, audit
