"""One job with an operator of every kind: on Spark it makes the tables that it makes in process, which keep the law."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from milepost.jobmaster import JobMaster, Session
from milepost.operators.kinds import KINDS
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit.law.examples import source_document
from milepost_testkit.law.job import LawJob
from milepost_testkit.law.rows import rows_table
from milepost_testkit.models.data.kinds.lookups import DOCUMENT, STATIC, static_rows
from milepost_testkit.models.data.kinds.process_law import CODE, MODULE, counting_operator
from milepost_testkit.rows.tables import assert_same_rows

PARALLELISM = (2, 3)
"""Of one epoch after another."""
ROWS = 40
"""Of each source, in each epoch."""
OF_B = {f"b_{name}": f"right.{name}" for name in ("f", "i", "x", "d", "b", "t")}
CALLS = {"n": "count(*)", "total": "sum(i)", "high": "max(x)"}
OPERATORS: list[dict[str, Any]] = [
    {"uid": "both", "kind": "sql", "inputs": ["a", "b"],
     "sql": "SELECT k, i, x, t FROM a WHERE i IS NOT NULL UNION ALL SELECT k, i + 0, x, t FROM b"},
    {"uid": "once", "kind": "deduplicate", "inputs": ["both"], "key": ["k", "i"], "ttl": "1h"},
    {"uid": "sums", "kind": "aggregate", "inputs": ["a"], "key": ["k"], "aggregates": CALLS},
    {"uid": "several", "kind": "sql", "inputs": ["sums"], "sql": "SELECT k, n, total FROM sums WHERE n > 5"},
    {"uid": "sizes", "kind": "aggregate", "inputs": ["several"], "key": ["n"], "aggregates": {"keys": "count(k)"}},
    {"uid": "ranks", "kind": "top", "inputs": ["sums"], "key": ["high"], "order_by": [{"total": "desc"}], "n": 2,
     "rank": "place"},
    {"uid": "by_total", "kind": "materialize", "inputs": ["sums"], "key": ["total", "k"]},
    {"uid": "valued", "kind": "over", "inputs": ["newest"], "key": ["b"], "order_by": [{"x": "desc"}, "t"],
     "row_key": ["k"], "functions": {"place": "rank()", "before": "lag(i)", "mean": "avg(i) rows 2 preceding"}},
    {"uid": "now", "kind": "join", "inputs": ["newest", "b"], "key": ["k"], "how": "full", "columns": OF_B,
     "condition": ["i <= right.i", "x <> right.x"]},
    {"uid": "by_pair", "kind": "aggregate", "inputs": ["now"], "key": ["k"], "aggregates": {"n": "count(b_i)"}},
    {"uid": "newest", "kind": "latest", "inputs": ["a"], "key": ["k"], "sequence_by": ["t"], "delete_when": "i < 0"},
    {"uid": "versions", "kind": "history", "inputs": ["a"], "key": ["k"], "sequence_by": ["t"], "delete_when": "i < 0",
     "track": ["x"]},
    {"uid": "halves", "kind": "window", "inputs": ["once"], "key": ["k"], "window": {"tumbling": "30m"},
     "aggregates": CALLS},
    {"uid": "tied", "kind": "top", "inputs": ["newest"], "key": [], "order_by": ["i"], "n": 2, "rank": "level",
     "ties": "dense"},
    {"uid": "per_level", "kind": "aggregate", "inputs": ["tied"], "key": ["level"], "aggregates": {"n": "count(*)"}},
    {"uid": "least", "kind": "top", "inputs": ["newest"], "key": ["b"], "order_by": ["x"], "n": 1},
    {"uid": "all_rows", "kind": "window", "inputs": ["a"], "key": [], "window": {"tumbling": "30m"},
     "aggregates": CALLS},
    {"uid": "sliding", "kind": "window", "inputs": ["a"], "key": ["k"], "allowed_lateness": "30m",
     "window": {"sliding": {"size": "1h", "slide": "15m"}}, "aggregates": CALLS},
    {"uid": "visits", "kind": "window", "inputs": ["b"], "key": ["k"], "window": {"session": {"gap": "15m"}},
     "aggregates": CALLS},
    {"uid": "pairs", "kind": "join", "inputs": ["a", "b"], "key": ["k"], "how": "full", "within": ["-30m", "30m"],
     "columns": OF_B},
    {"uid": "placed", "kind": "asof", "inputs": ["a", "b"], "key": ["k"], "how": "left", "columns": OF_B},
    counting_operator("counts", "a"),
]  # fmt: skip
UIDS = [operator["uid"] for operator in OPERATORS]
SHOWN = [uid for uid in UIDS if uid not in ("now", "tied")]
"""Operators with a table: all but those whose rows are retracted without a key."""
LOOKUP = {"uid": "named", "kind": "lookup", "inputs": ["a", STATIC], "key": [{"k": "dk"}], "how": "left",
          "order_by": ["label"], "columns": {"label": "right.label"}}  # fmt: skip
UPDATES = (
    "sums", "several", "sizes", "ranks", "by_total", "by_pair", "newest", "versions", "sliding", "per_level", "least",
    "valued"
)  # fmt: skip
"""Operators with upsert tables; the others append."""
NAMED = f"""SELECT a.*, df, di, label FROM a LEFT JOIN (
    SELECT * FROM {STATIC} QUALIFY row_number() OVER (PARTITION BY dk ORDER BY label) = 1) ON k = dk"""


def sink(node: str, mode: str) -> dict[str, Any]:
    name = node.replace(".", "_")
    return {"name": name, "input": node, "format": "parquet", "path": f"../lake/{name}", "mode": mode}


def created(folder: Path) -> LawJob:
    document = {
        "name": "law",
        "storage": "../store",
        "sources": {"a": source_document("a", "10m"), "b": source_document("b", "0s")},
        "operators": list(OPERATORS),
        "sinks": [sink(node, "upsert" if node in UPDATES else "append") for node in (*SHOWN, "halves.late")],
        "spark": {"master": "local[2]", "buffer_size": "64KB"},
        "checkpointing": {"max_parallelism": 8},
    }
    job = LawJob.create(folder, document)
    (folder / "config" / f"{MODULE}.py").write_text(CODE)
    return job


def test_the_job_has_every_kind() -> None:
    assert {operator["kind"] for operator in (*OPERATORS, LOOKUP)} == KINDS.keys()


def land(job: LawJob, epoch: int) -> None:
    job.set_parallelism(PARALLELISM[epoch])
    for place, source in enumerate("ab"):
        numbers = [epoch * 7 + place * 13 + number * 104_729 for number in range(ROWS)]
        job.land(source, rows_table(numbers, epoch))


def add_lookup(job: LawJob) -> None:
    """Give a job a lookup in a static source, whose law is not that of the other operators: it has no master's copy."""
    (job.folder / STATIC).mkdir()
    pq.write_table(static_rows(1), job.folder / STATIC / "all.parquet")
    job.document["sources"][STATIC] = DOCUMENT | {"settle": "0s"}
    job.document["operators"].append(LOOKUP)
    job.document["sinks"].append(sink("named", "append"))


def test_each_kind_of_operator_makes_on_spark_what_it_makes_in_process_where_it_keeps_its_law(tmp_path: Path) -> None:
    """Two epochs of as many parallelisms; rows and state go between real workers, SQL and marks are Spark's."""
    here, on_spark = created(tmp_path / "here"), created(tmp_path / "spark")
    add_lookup(on_spark)
    runner = SparkEpochRunner()
    for epoch in range(len(PARALLELISM)):
        for job in (here, on_spark):
            land(job, epoch)
        here.run()
        JobMaster(on_spark.loaded).epochs.run(Session.cli(), runner)
    here.check()
    tables = here.tables()
    for name, rows in tables.items():
        assert rows.num_rows, name
        assert_same_rows(on_spark.master.reports.read(name), rows, name)
    with duckdb.connect() as database:
        database.execute("SET TimeZone = 'UTC'")
        database.register("a", pa.concat_tables(on_spark.landed["a"]))
        database.register(STATIC, static_rows(1))
        assert_same_rows(on_spark.master.reports.read("named"), database.sql(NAMED).to_arrow_table(), "named")
