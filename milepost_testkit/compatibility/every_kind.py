"""A job with every kind of operator and every format and mode of table, and DuckDB's answers for its tables."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from milepost_testkit.compatibility.stored_job import StoredJob
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.specs.spec_edits import edit_spec

NAME = "kinds"
LATER = 1
START = datetime(2026, 3, 1, tzinfo=UTC)
ROWS = 12
"""Rows of each source per epoch, 20 minutes apart."""

SPEC = """\
name: kinds
storage: ../store
sources:
  a:
    format: csv
    path: ../landing/a/**/*.csv
    partitions: {day: date}
    options: {null_values: [""], strings_can_be_null: true}
    schema: {k: string, i: int64, x: float64, b: bool, t: "timestamp[us, UTC]"}
    event_time: t
    watermark_delay: 10m
    max_event_time_ahead: null
    limits_per_epoch: {max_files: 1}
    settle: 0s
    bad_records: dead_letter
  b:
    format: json
    path: ../landing/b/*.jsonl
    schema: {k: string, n: int64, label: string, u: "timestamp[us, UTC]"}
    event_time: u
    max_event_time_ahead: null
    limits_per_epoch: {max_files: 1}
    settle: 0s
  cities:
    {format: parquet, path: ../landing/cities/*.parquet, schema: {code: string, city: string}, static: true, settle: 0s}
operators:
  - {uid: clean, kind: sql, inputs: [a], sql: "SELECT k, i, x, b, t, i % 3 AS third FROM a WHERE x IS NOT NULL"}
  - {uid: unique, kind: deduplicate, inputs: [clean], key: [i]}
  - uid: totals
    kind: aggregate
    inputs: [unique]
    key: [k]
    aggregates:
      {n: count(*), total: sum(i), least: min(x), most: max(x), mean: avg(x), apart: count(distinct third),
       spread: var(i), first: first(i), last: last(i), at_most: "arg_max(i, i)", some: any(b), all: every(b),
       big: count(*) filter (where b)}
  - {uid: everything, kind: aggregate, inputs: [totals], key: [], aggregates: {keys: count(*), n: sum(n), most: max(n)}}
  - {uid: hourly, kind: window, inputs: [unique], key: [k], window: {tumbling: 1h}, aggregates: {n: count(*)},
     emit: early, allowed_lateness: 30d}
  - {uid: sliding, kind: window, inputs: [unique], key: [], window: {sliding: {size: 2h, slide: 1h}},
     aggregates: {n: count(*)}}
  - {uid: visits, kind: window, inputs: [unique], key: [k], window: {session: {gap: 1h}}, aggregates: {n: count(*)},
     emit: early, allowed_lateness: 30d}
  - {uid: pairs, kind: join, inputs: [unique, b], key: [k], within: [-20m, 20m], how: inner,
     columns: {n: right.n}}
  - {uid: nearest, kind: asof, inputs: [unique, b], key: [k], how: left, columns: {label: right.label}}
  - {uid: placed, kind: lookup, inputs: [clean, cities], key: [{k: code}], how: left, columns: {city: right.city}}
  - {uid: newest, kind: latest, inputs: [b], key: [k], sequence_by: [u], delete_when: "n % 7 = 0", tombstone_ttl: 30d}
  - {uid: versions, kind: history, inputs: [b], key: [k], sequence_by: [u], delete_when: "n % 7 = 0", columns: [k, n]}
  - {uid: best, kind: top, inputs: [unique], key: [k], order_by: [{i: desc}], n: 2, rank: place}
  - {uid: widest, kind: top, inputs: [totals], key: [], order_by: [{n: desc}], n: 2, ties: true}
  - {uid: widest_keys, kind: materialize, inputs: [widest], key: [k]}
  - {uid: now, kind: join, inputs: [totals, newest], key: [k], how: left,
     columns: {label: right.label, newest_n: right.n}}
  - {uid: now_by_key, kind: materialize, inputs: [now], key: [k]}
  - {uid: running, kind: over, inputs: [newest], key: [], order_by: [k], row_key: [k],
     functions: {place: row_number(), sum: sum(n) rows unbounded preceding}}
  - {uid: seen, kind: process, inputs: [unique], key: [k], function: "kinds_functions:Seen", output_key: [k]}
sinks:
  - {name: totals, input: totals, format: iceberg, path: ../lake/totals, mode: upsert, table: kinds.totals,
     catalog: {type: sql, uri: "sqlite:///../catalog.db"}}
  - {name: changes, input: totals, format: parquet, path: ../lake/changes, mode: changelog}
  - {name: delta_changes, input: everything, format: delta, path: ../lake/delta-changes, mode: changelog}
  - {name: iceberg_changes, input: everything, format: iceberg, path: ../lake/iceberg-changes, mode: changelog,
     table: kinds.changes, catalog: {type: sql, uri: "sqlite:///../catalog.db"}}
  - {name: everything, input: everything, format: delta, path: ../lake/everything, mode: upsert, buckets: 2}
  - {name: hourly, input: hourly, format: parquet, path: ../lake/hourly, mode: upsert}
  - {name: sliding, input: sliding, format: iceberg, path: ../lake/sliding, mode: append, table: kinds.sliding,
     catalog: {type: sql, uri: "sqlite:///../catalog.db"}}
  - {name: visits, input: visits, format: parquet, path: ../lake/visits, mode: upsert}
  - {name: pairs, input: pairs, format: delta, path: ../lake/pairs, mode: append, partition_by: [k]}
  - {name: nearest, input: nearest, format: parquet, path: ../lake/nearest, mode: append}
  - {name: placed, input: placed, format: parquet, path: ../lake/placed, mode: append}
  - {name: newest, input: newest, format: postgres, dsn: "${env:PG_DSN}", table: public.newest, mode: upsert}
  - {name: versions, input: versions, format: parquet, path: ../lake/versions, mode: upsert}
  - {name: best, input: best, format: parquet, path: ../lake/best, mode: upsert}
  - {name: widest, input: widest_keys, format: parquet, path: ../lake/widest, mode: upsert}
  - {name: now, input: now_by_key, format: parquet, path: ../lake/now, mode: upsert}
  - {name: running, input: running, format: parquet, path: ../lake/running, mode: upsert}
  - {name: seen, input: seen, format: parquet, path: ../lake/seen, mode: upsert}
  - {name: bad, input: a.bad, format: parquet, path: ../lake/bad, mode: append}
checkpointing: {retained: {last: 2}, max_parallelism: 8, timeout: 10m}
spark: {parallelism: 2}
"""

FUNCTIONS = '''\
"""The function of the job's `process` operator."""

from datetime import timedelta


class Seen:
    state = {"rows": "int64", "newest": "int64"}
    output = {"k": "string", "rows": "int64", "newest": "int64"}

    def on_rows(self, key, rows, state, ctx):
        state["rows"] = (state["rows"] or 0) + rows.num_rows
        state["newest"] = max([state["newest"] or 0, *rows.column("i").to_pylist()])
        ctx.set_timer(max(rows.column("t").to_pylist()) + timedelta(days=400))
        yield {"k": key, "rows": state["rows"], "newest": state["newest"]}

    def on_timer(self, key, time, state, ctx):
        return ()
'''

ORACLE = """\
CREATE TABLE a AS SELECT k, i, x, b, t FROM read_csv(getvariable('a'), ignore_errors = true, hive_partitioning = false,
  columns = {k: 'VARCHAR', i: 'BIGINT', x: 'DOUBLE', b: 'BOOLEAN', t: 'TIMESTAMPTZ'});
CREATE TABLE b AS SELECT * FROM read_json(getvariable('b'),
  columns = {k: 'VARCHAR', n: 'BIGINT', label: 'VARCHAR', u: 'TIMESTAMPTZ'});
CREATE TABLE cities AS SELECT * FROM read_parquet(getvariable('cities'));
CREATE VIEW clean AS SELECT k, i, x, b, t, i % 3 AS third FROM a WHERE x IS NOT NULL;
CREATE VIEW uniq AS SELECT DISTINCT ON (i) * FROM clean ORDER BY i, t;
CREATE VIEW totals AS
  SELECT k, count(*) AS n, sum(i)::BIGINT AS total, min(x) AS least, max(x) AS most, avg(x) AS mean,
         count(DISTINCT third) AS apart, var_samp(i) AS spread, arg_min(i, t) AS first, arg_max(i, t) AS last,
         max(i) AS at_most, bool_or(b) AS some, bool_and(b) AS "all", count(*) FILTER (WHERE b) AS big
  FROM uniq GROUP BY k;
CREATE VIEW everything AS SELECT count(*) AS keys, sum(n)::BIGINT AS n, max(n) AS most FROM totals;
CREATE VIEW hourly AS
  SELECT k, time_bucket(INTERVAL 1 HOUR, t) AS window_start,
         time_bucket(INTERVAL 1 HOUR, t) + INTERVAL 1 HOUR AS window_end, count(*) AS n FROM uniq GROUP BY ALL;
CREATE VIEW sliding AS
  SELECT start AS window_start, start + INTERVAL 2 HOUR AS window_end, count(*) AS n
  FROM (SELECT unnest([hour, hour - INTERVAL 1 HOUR]) AS start
        FROM (SELECT time_bucket(INTERVAL 1 HOUR, t) AS hour FROM uniq))
  GROUP BY start HAVING start + INTERVAL 2 HOUR <= (SELECT max(t) - INTERVAL 10 MINUTE FROM a);
CREATE VIEW visits AS
  SELECT k, min(t) AS window_start, max(t) + INTERVAL 1 HOUR AS window_end, count(*) AS n
  FROM (SELECT *, sum(fresh) OVER (PARTITION BY k ORDER BY t) AS visit
        FROM (SELECT *, (lag(t) OVER (PARTITION BY k ORDER BY t) IS NULL
                         OR t - lag(t) OVER (PARTITION BY k ORDER BY t) >= INTERVAL 1 HOUR)::INT AS fresh FROM uniq))
  GROUP BY k, visit;
CREATE VIEW pairs AS
  SELECT uniq.*, b.n, b.label, b.u FROM uniq JOIN b
  ON uniq.k = b.k AND b.u BETWEEN t - INTERVAL 20 MINUTE AND t + INTERVAL 20 MINUTE;
CREATE VIEW nearest AS
  SELECT uniq.*, b.n, b.label, b.u FROM uniq ASOF LEFT JOIN b ON uniq.k = b.k AND uniq.t >= b.u
  WHERE t <= least((SELECT max(t) - INTERVAL 10 MINUTE FROM a), (SELECT max(u) FROM b));
CREATE VIEW placed AS
  SELECT clean.*, city FROM clean LEFT JOIN cities ON clean.k = cities.code;
CREATE VIEW last_b AS SELECT DISTINCT ON (k) * FROM b ORDER BY k, u DESC;
CREATE VIEW newest AS SELECT * FROM last_b WHERE n % 7 <> 0;
CREATE VIEW versions AS
  SELECT k, n, u AS valid_from, lead(u) OVER w AS valid_to, lead(u) OVER w IS NULL AS is_current
  FROM b WINDOW w AS (PARTITION BY k ORDER BY u) QUALIFY n % 7 <> 0;
CREATE VIEW best AS SELECT *, row_number() OVER (PARTITION BY k ORDER BY i DESC) AS place FROM uniq QUALIFY place <= 2;
CREATE VIEW widest AS SELECT * FROM totals QUALIFY rank() OVER (ORDER BY n DESC) <= 2;
CREATE VIEW now AS SELECT totals.*, label, newest.n AS newest_n, u FROM totals LEFT JOIN newest USING (k);
CREATE VIEW running AS
  SELECT *, row_number() OVER (ORDER BY k) AS place,
         sum(n) OVER (ORDER BY k ROWS UNBOUNDED PRECEDING)::BIGINT AS sum FROM newest;
CREATE VIEW seen AS SELECT k, count(*) AS rows, max(i) AS newest FROM uniq GROUP BY k;
"""
"""One view for each sink whose rows follow from the input alone."""


def create(job: StoredJob, epochs: int, later: int) -> None:
    """Write the spec, the input of so many epochs, and that of later ones below `later/`."""
    job.write_config({f"{NAME}.yaml": SPEC, "kinds_functions.py": FUNCTIONS}, ORACLE)
    job.land("cities/cities.parquet", _cities())
    for epoch in range(1, epochs + later + 1):
        for place, body in _epoch(epoch):
            job.land(place, body, later=0 if epoch <= epochs else epoch - epochs)


def _epoch(epoch: int) -> Iterator[tuple[str, bytes]]:
    numbers = range((epoch - 1) * ROWS, epoch * ROWS)
    lines = ["k,i,x,b,t", *map(_line, numbers), "oops,not a number,,,"]
    day = f"{START + timedelta(days=epoch):%Y-%m-%d}"
    yield f"a/day={day}/{epoch:03}.csv", "".join(f"{line}\n" for line in lines).encode()
    yield f"b/{epoch:03}.jsonl", "".join(json.dumps(_message(number)) + "\n" for number in numbers).encode()


def _line(number: int) -> str:
    key = "" if number % 11 == 10 else "abcd"[number * 7 % 4]
    value = "" if number % 5 == 4 else f"{number * 3 % 17 / 4}"
    shown = number + 10_000 if number % 13 == 12 else number
    return f"{key},{shown},{value},{str(number % 3 == 0).lower()},{_time(number)}"


def _message(number: int) -> dict[str, Any]:
    return {"k": "abcde"[number * 3 % 5], "n": number, "label": f"l{number % 6}", "u": _time(number, 5)}


def _time(number: int, minutes: int = 0) -> str:
    return (START + timedelta(minutes=20 * number + minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cities() -> bytes:
    rows = pa.table({"code": ["a", "b", "c"], "city": ["Aarhus", "Bergen", "Cork"]})
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return sink.getvalue().to_pybytes()


def run_all_kinds(job: StoredJob) -> None:
    create(job, 3, LATER)
    for _ in range(2):
        job.run()
    edit_spec(job.spec_path, {"parallelism: 2": "parallelism: 1"})
    back_fill(job.master, job.runner(), from_checkpoint=1)
    job.run()
