"""A job over many keys in a bucket: an aggregate, and a user's class; DuckDB computes the expected rows."""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from milepost.jobmaster import JobMaster
from milepost.jobspec.load.load import load_job
from milepost.protocol.records.object_store import Credentials, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.servers.s3_servers import S3Server

PARTS = 97
SPEC = """\
name: keyed
storage: s3://{bucket}/milepost
store: {{conn_id: lake}}
sources:
  rows:
    format: parquet
    path: s3://{bucket}/landing/*.parquet
    settle: 0s
    schema: {{k: int64, part: int64, v: int64}}
    limits_per_epoch: {{max_files: 1}}
operators:
  - uid: totals
    kind: aggregate
    inputs: [rows]
    key: [k]
    aggregates: {{n: count(*), total: sum(v), most: max(v)}}
  - {{uid: parts, kind: process, inputs: [rows], key: [part], function: "parts:Parts", output_key: [part]}}
sinks:
  - {{name: totals, input: totals, format: parquet, path: s3://{bucket}/lake/totals, mode: upsert}}
  - {{name: parts, input: parts, format: parquet, path: s3://{bucket}/lake/parts, mode: upsert}}
{spark}, parallelism: 2}}
"""
FUNCTION = """\
from words import NAMES


class Parts:
    state = {"rows": "int64"}
    output = {"part": "int64", "rows": "int64"}

    def on_rows(self, key, rows, state, ctx):
        state["rows"] = (state["rows"] or 0) + rows.num_rows
        yield dict(zip(NAMES, (key, state["rows"]), strict=True))
"""
WORDS = 'NAMES = ("part", "rows")\n'


@dataclass(frozen=True)
class KeyedJob:
    """Its spec, and the rows that landed; its Connection is `lake`."""

    spec_path: Path
    objects: StoreConfig
    landed: list[pa.Table]

    @classmethod
    def create(cls, folder: Path, server: S3Server, spark: str) -> KeyedJob:
        """Write the spec. Args: spark: the section of this name without its end."""
        folder.mkdir()
        bucket = server.new_bucket()
        (folder / "keyed.yaml").write_text(SPEC.format(bucket=bucket, spark=spark))
        (folder / "parts.py").write_text(FUNCTION)
        (folder / "words.py").write_text(WORDS)
        credentials = Credentials(server.access_key, server.secret_key)
        store = StoreConfig(f"s3://{bucket}/landing", server.endpoint_url, credentials=credentials)
        return cls(folder / "keyed.yaml", store, [])

    def land(self, seed: int, keys: int, rows: int) -> None:
        """Land an object: of each key a row, where there are as many rows, else of some keys."""
        drawn = np.random.default_rng([seed, len(self.landed)])
        k = drawn.permutation(keys) if rows == keys else drawn.integers(0, keys, rows)
        table = pa.table({"k": k, "part": k % PARTS, "v": drawn.integers(-1000, 1000, rows)})
        body = BytesIO()
        pq.write_table(table, body)
        open_store(self.objects).put(f"{len(self.landed)}.parquet", body.getvalue())
        self.landed.append(table)

    def assert_tables_equal_the_oracle(self) -> None:
        rows = pa.concat_tables(self.landed)  # noqa: F841 - DuckDB finds it by its name
        wanted = {
            "totals": "SELECT k, count(*) AS n, sum(v)::BIGINT AS total, max(v) AS most FROM rows GROUP BY k",
            "parts": "SELECT part, count(*) AS rows FROM rows GROUP BY part",
        }
        master = JobMaster(load_job(self.spec_path))
        for name, query in wanted.items():
            assert_same_rows(master.reports.read(name), duckdb.sql(query).to_arrow_table(), name)
