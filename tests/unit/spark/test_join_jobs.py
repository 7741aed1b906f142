"""Jobs with a join, by the product's own tasks: pairs are DuckDB's of the on-time rows, whatever happens between."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from milepost.jobspec.job.spec import JobSpec
from milepost.spark.worker.worker_memory import UNLIMITED, MemoryBudget
from milepost_testkit import profiles
from milepost_testkit.law.plane import Checkpoint, EpochOptions, Plane
from milepost_testkit.rows.key_hashes import KEYED, WEAK

MINUTE_US = 60_000_000
TYPES = {
    "orders": {"id": "int64", "user": "string", "at": "timestamp[us, UTC]"},
    "clicks": {"click": "int32", "who": "string", "at": "timestamp[us, UTC]"},
}
SCHEMAS = {
    "orders": pa.schema([("id", pa.int64()), ("user", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
    "clicks": pa.schema([("click", pa.int32()), ("who", pa.string()), ("at", pa.timestamp("us", "UTC"))]),
}
JOIN = {
    "uid": "pairs",
    "kind": "join",
    "inputs": ["orders", "clicks"],
    "key": [{"user": "who"}],
    "within": ["-10m", "5m"],
    "columns": {"clicked_at": "right.at"},
}


def spec_of(*operators: dict[str, Any], sinks: Sequence[str], cuts: bool = False) -> JobSpec:
    return JobSpec.model_validate(
        {
            "name": "joins",
            "storage": "../store",
            "sources": {
                name: {"format": "parquet", "path": f"../{name}/*.parquet", "schema": columns, "event_time": "at",
                       "watermark_delay": delay}
                for (name, columns), delay in zip(TYPES.items(), ("2m", "0s"), strict=True)
            },
            "operators": list(operators),
            "sinks": [
                {"name": f"s{at}", "input": name, "format": "parquet", "path": f"../lake/{at}", "mode": "append"}
                for at, name in enumerate(sinks)
            ],
            "spark": {"buffer_size": "64KB"},
            "checkpointing": {"max_parallelism": 8, **({"aligned_timeout": "1s"} if cuts else {})},
        }
    )  # fmt: skip


def rows_of(source: str, numbers: Sequence[int], first: int) -> pa.Table:
    """Rows of a few users, some of them unknown, around a minute."""
    users = ["a", "b", None, "c"]
    columns = [
        [number // 4 % 3 for number in numbers],
        [users[number % 4] for number in numbers],
        pa.array([(first + number // 12 % 21) * MINUTE_US for number in numbers], SCHEMAS[source].field("at").type),
    ]
    return pa.table(columns, schema=SCHEMAS[source])


numbers = st.lists(st.integers(0, 12 * 21 - 1), max_size=9)
steps = st.tuples(
    numbers,
    numbers,
    st.sampled_from([0, 0, 0, 1, 2]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([None, 3, 9]),
    st.booleans(),
)


@pytest.mark.deep
@profiles.examples(share=0.25, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.generate])
@given(history=st.lists(steps, min_size=1, max_size=5), weak=st.booleans(), cuts=st.booleans(), ends=st.booleans())
def test_pairs_are_those_of_the_on_time_rows(
    tmp_path_factory: pytest.TempPathFactory, history: Any, weak: bool, cuts: bool, ends: bool
) -> None:
    """Rescales, slices, rows that an epoch leaves in flight, rollbacks, late rows of either side, colliding hashes."""
    spec = spec_of(JOIN, sinks=["pairs", "pairs.late.orders", "pairs.late.clicks"], cuts=cuts)
    plane = Plane(spec, tmp_path_factory.mktemp("plane"), WEAK if weak else KEYED)
    lineage = [Checkpoint()]
    for number, (orders, clicks, back, parallelism, cut_ms, tiny) in enumerate(history):
        del lineage[max(1, len(lineage) - back) :]
        first = 10 * len(lineage)
        read = {"orders": rows_of("orders", orders, first), "clicks": rows_of("clicks", clicks, first)}
        objects = {name: (plane.put(name, f"{number}.parquet", rows),) for name, rows in read.items()}
        budget = MemoryBudget(4_000) if tiny else UNLIMITED
        options = EpochOptions(parallelism=parallelism, budget=budget, cut_ms=cut_ms if cuts else None)
        lineage.append(plane.epoch(lineage[-1], objects, options))
    lineage.append(plane.epoch(lineage[-1], {}, EpochOptions(parallelism=2, last=ends)))
    assert not lineage[-1].in_flight
    for checkpoint in lineage[1:]:
        if not checkpoint.in_flight:
            check(plane, checkpoint.lineage)
    assert sum(
        handle.live_rows for table in lineage[-1].states["pairs"].tables.values() for handle in table.handles
    ) == (0 if ends else kept(plane, lineage[-1]))


def put_out(plane: Plane, node: str, lineage: Sequence[int]) -> pa.Table:
    pieces = [rows for epoch, _, rows in plane.captured.pieces.get(node, []) if epoch in lineage]
    return pa.concat_tables([plane.schemas[node].empty_table(), *pieces])


def check(plane: Plane, lineage: Sequence[int]) -> None:
    database = duckdb.cursor()
    database.execute("SET TimeZone = 'UTC'")
    for name in ("orders", "clicks"):
        database.register(name, put_out(plane, name, lineage))
        database.register(f"late_{name}", put_out(plane, f"pairs.late.{name}", lineage))
    expected = database.sql(
        """WITH o AS (FROM orders EXCEPT ALL FROM late_orders), c AS (FROM clicks EXCEPT ALL FROM late_clicks)
        SELECT o.id, o."user", o.at, c.click, c.at AS clicked_at FROM o JOIN c ON o."user" = c.who
        AND c.at BETWEEN o.at - INTERVAL 10 MINUTE AND o.at + INTERVAL 5 MINUTE"""
    ).to_arrow_table()
    actual = put_out(plane, "pairs", lineage)
    assert actual.column_names == expected.column_names
    assert rows(actual) == rows(expected)


def rows(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def kept(plane: Plane, checkpoint: Checkpoint) -> int:
    """How many different rows with a key may still pair with one that comes."""
    (fired_us,) = set(checkpoint.states["pairs"].firing)
    count = 0
    for name, key, minutes in (("orders", "user", 5), ("clicks", "who", 10)):
        there = rows(put_out(plane, name, checkpoint.lineage))
        there -= rows(put_out(plane, f"pairs.late.{name}", checkpoint.lineage))
        times = {repr(row): row for row in put_out(plane, name, checkpoint.lineage).to_pylist()}
        count += sum(
            times[one][key] is not None
            and (fired_us is None or int(times[one]["at"].timestamp()) * 1_000_000 + minutes * MINUTE_US >= fired_us)
            for one in there
        )
    return count


@pytest.mark.deep
def test_a_join_reads_a_source_and_windows_and_windows_read_a_join(tmp_path: Path) -> None:
    """Its inputs are on different levels; its readers wait for pairs that are as old as it may emit."""
    hourly = {"uid": "hourly", "kind": "window", "inputs": ["orders"], "key": ["user"], "window": {"tumbling": "1h"},
              "aggregates": {"orders": "count(*)"}}  # fmt: skip
    near = JOIN | {"uid": "near", "inputs": ["hourly", "clicks"], "within": ["-1h", "30m"], "columns": {}}
    per_day = {**hourly, "uid": "per_day", "inputs": ["near"], "window": {"tumbling": "1d"},
               "aggregates": {"clicks": "count(*)", "last": "max(at)"}}  # fmt: skip
    plane = Plane(spec_of(hourly, near, per_day, sinks=["per_day"]), tmp_path)
    assert [plane.graph.nodes[uid].level for uid in ("hourly", "near", "per_day")] == [1, 2, 3]
    head = Checkpoint()
    minutes = itertools.count(0, 20)
    for parallelism in (1, 2, 3, 2, 1):
        moments = [next(minutes) * MINUTE_US for _ in range(6)]
        columns = [range(6), ["a", "b", None, "a", "b", "a"], moments]
        objects = {}
        for name, schema in SCHEMAS.items():
            plain = schema.set(2, pa.field("at", pa.int64()))
            read = pa.table(columns, schema=plain).cast(schema)
            objects[name] = (plane.put(name, f"{moments[0]}.parquet", read),)
        head = plane.epoch(head, objects, EpochOptions(parallelism=parallelism))
    head = plane.epoch(head, {}, EpochOptions(parallelism=2, last=True))
    database = duckdb.cursor()
    database.execute("SET TimeZone = 'UTC'")
    for name in ("orders", "clicks"):
        database.register(name, put_out(plane, name, head.lineage))
    expected = database.sql(
        """WITH hourly AS (SELECT "user", time_bucket(INTERVAL 1 HOUR, "at") + INTERVAL 1 HOUR AS window_end FROM orders
            GROUP BY ALL),
        near AS (SELECT h."user", h.window_end, c."at" FROM hourly h JOIN clicks c ON h."user" = c.who
            AND epoch_us(c."at") - (epoch_us(window_end) - 1) BETWEEN -3600000000 AND 1800000000)
        SELECT "user", time_bucket(INTERVAL 1 DAY, make_timestamptz(epoch_us(window_end) - 1)) AS window_start,
            count(*) AS clicks, max("at") AS last FROM near GROUP BY ALL"""
    ).to_arrow_table()
    actual = put_out(plane, "per_day", head.lineage).drop_columns(["window_end"])
    assert rows(actual) == rows(expected.select(actual.column_names)) and actual.num_rows
    assert not plane.captured.pieces.get("per_day.late")


def test_rows_without_a_key_in_flight_are_emitted_once_after_a_rescale(tmp_path: Path) -> None:
    spec = spec_of(JOIN | {"how": "left"}, sinks=["pairs"], cuts=True)
    plane = Plane(spec, tmp_path)
    rows = [
        pa.table([[at] * 300, [None] * 300, pa.array(range(300)).cast(SCHEMAS["orders"].field("at").type)],
                 schema=SCHEMAS["orders"]) for at in range(6)
    ]  # fmt: skip
    objects = {"orders": tuple(plane.put("orders", f"{at}.parquet", one) for at, one in enumerate(rows))}
    head = plane.epoch(Checkpoint(), objects, EpochOptions(parallelism=3, cut_ms=3))
    assert head.in_flight
    for parallelism in (2, 4, 1):
        head = plane.epoch(head, {}, EpochOptions(parallelism=parallelism, cut_ms=3))
    head = plane.epoch(head, {}, EpochOptions(parallelism=3))
    assert not head.in_flight
    found = put_out(plane, "pairs", head.lineage)
    assert (
        found.num_rows == 1_800
        and len(set(zip(found["id"].to_pylist(), found["at"].to_pylist(), strict=True))) == 1_800
    )
