"""Operators equal DuckDB over all rows, no matter how rows are cut into epochs, subtasks and pieces."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.operators.aggregate.spec import AggregateOperator
from milepost.operators.build import build_operator
from milepost.operators.contract import OperatorInput
from milepost.operators.deduplicate.spec import DeduplicateOperator
from milepost.operators.window.spec import WindowOperator
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles
from milepost_testkit.tasks.operators.subtasks import OperatorRun
from milepost_testkit.tasks.operators.timers import next_timer

EPOCH_0 = datetime(1970, 1, 1, tzinfo=UTC)
HOUR_US = 3_600_000_000
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("f", pa.float64()),
        ("i", pa.int32()),
        ("big", pa.int64()),
        ("x", pa.float64()),
        ("d", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("position", pa.int64()),
    ]
)

pytestmark = pytest.mark.long
CALLS = {
    "n": "count(*)", "n_i": "count(i)", "sum_i": "sum(i)", "sum_big": "sum(big)", "sum_d": "sum(d)", "sum_x": "sum(x)",
    "min_i": "min(i)", "max_i": "max(i)", "min_x": "min(x)", "max_x": "max(x)", "min_s": "min(s)", "max_s": "max(s)",
    "min_d": "min(d)", "max_d": "max(d)", "min_b": "min(b)", "max_b": "max(b)", "min_t": "min(t)", "max_t": "max(t)",
    "avg_i": "avg(i)", "avg_x": "avg(x)", "avg_d": "avg(d)",
    "any_b": "any(b)", "every_b": "every(b)", "n_if_b": "count(*) filter (where b)",
    "sum_d_if_b": "sum(d) filter (where b)", "max_s_if_b": "max(s) filter (where b)",
}  # fmt: skip
IN_DUCKDB = {"any_b": "bool_or(b)", "every_b": "bool_and(b)"}

keys = st.sampled_from([None, "", "AA", "UA", "a longer carrier name"])
float_keys = st.sampled_from([None, 0.0, -0.0, float("nan"), 1.5])
floats = st.one_of(st.none(), st.floats(-1e9, 1e9), st.sampled_from([float("nan"), -0.0]))
times = st.integers(-30 * HOUR_US, 30 * HOUR_US).map(lambda us: EPOCH_0 + timedelta(microseconds=us - us % 900_000_000))
row = st.tuples(
    keys,
    float_keys,
    st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
    st.one_of(st.none(), st.integers(-(2**57), 2**57)),
    floats,
    st.one_of(st.none(), st.integers(-(10**9) + 1, 10**9 - 1).map(lambda unscaled: Decimal(unscaled).scaleb(-2))),
    st.one_of(st.none(), st.sampled_from(["", "b", "ba", "\u00e9", "z"])),
    st.one_of(st.none(), st.booleans()),
    times,
)
piece_cuts = st.lists(st.lists(st.integers(1, 11), max_size=3, unique=True).map(sorted), min_size=5, max_size=5)
cut_rows = st.lists(st.lists(row, max_size=12), min_size=1, max_size=5)
parallelisms = st.lists(st.integers(1, 4), min_size=5, max_size=5)
quick = profiles.examples(share=0.25)


def tables(epochs: Sequence[Sequence[tuple[Any, ...]]]) -> list[pa.Table]:
    """One table per epoch; `position` counts rows over all epochs."""
    result, position = [], 0
    for rows in epochs:
        columns = list(zip(*rows, strict=True)) if rows else [[] for _ in SCHEMA.names[:-1]]
        result.append(pa.table([*map(list, columns), list(range(position, position + len(rows)))], schema=SCHEMA))
        position += len(rows)
    return result


def query(sql: str, **inputs: pa.Table) -> pa.Table:
    connection = duckdb.cursor()
    connection.execute("SET TimeZone='UTC'")
    for name, table in inputs.items():
        connection.register(name, table)
    return connection.sql(sql).to_arrow_table()


def comparable(value: Any) -> Any:
    """A value that compares as the oracle's would: NaN equals NaN, zeros are one, floats to 1e-12 relative."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float(f"{value:.12g}") + 0.0
    if isinstance(value, datetime):
        return value if value.tzinfo else value.replace(tzinfo=UTC)
    return value


def canonical(table: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    rows = [tuple(comparable(row[name]) for name in columns) for row in table.select(list(columns)).to_pylist()]
    return sorted(rows, key=repr)


def watermark_after(seen: Sequence[pa.Table], delay_us: int) -> int | None:
    values = pa.concat_tables(list(seen)).column("t").cast(pa.int64()).to_pylist() if seen else []
    return max(values) - delay_us if values else None


@pytest.mark.deep
@quick
@given(cut_rows, parallelisms, piece_cuts)
def test_aggregates_equal_the_oracle_whatever_the_cut(epochs: Any, parallelism: Any, cuts: Any) -> None:
    """DESIGN 8.1: the last emitted row of each key is the aggregate over all its rows."""
    spec = AggregateOperator(uid="agg", kind="aggregate", inputs=["in"], key=["k", "f"], aggregates=CALLS)
    with tempfile.TemporaryDirectory() as folder:
        run = OperatorRun(
            build_operator(spec, [OperatorInput(SCHEMA, None)]), LocalStore(StoreConfig(f"file://{folder}/store"))
        )
        latest: dict[tuple[Any, ...], dict[str, Any]] = {}
        for rows, subtasks, pieces in zip(tables(epochs), parallelism, cuts, strict=False):
            out = run.epoch(rows, parallelism=subtasks, cache=Path(folder, "cache"), cuts=pieces).rows
            emitted = [(comparable(r["k"]), comparable(r["f"])) for r in out.to_pylist()]
            changed = {(comparable(r["k"]), comparable(r["f"])) for r in rows.to_pylist()}
            assert sorted(emitted, key=repr) == sorted(changed, key=repr)
            latest.update(dict(zip(emitted, out.to_pylist(), strict=True)))
        every_row = pa.concat_tables(tables(epochs))
        calls = ", ".join(
            f"{IN_DUCKDB.get(name, call)} AS {name}"
            for name, call in CALLS.items()
            if name not in ("avg_d", "sum_x", "avg_x")
        )
        names = [name for name in CALLS if name not in ("sum_x", "avg_x", "avg_d")]
        expected = query(f"SELECT k, f + 0.0 AS f, {calls} FROM t GROUP BY ALL", t=every_row)
        actual = pa.Table.from_pylist(list(latest.values()), schema=run.operator.output_schema)
        assert canonical(actual, ["k", "f", *names]) == canonical(expected, ["k", "f", *names])
        for key, result in latest.items():
            own = [r for r in every_row.to_pylist() if (comparable(r["k"]), comparable(r["f"])) == key]
            total = 0.0
            for value in (r["x"] for r in own if r["x"] is not None):
                total += value
            count = sum(r["x"] is not None for r in own)
            assert repr(result["sum_x"]) == repr(total if count else None)
            assert repr(result["avg_x"]) == repr(total / count if count else None)
            decimals = [r["d"] for r in own if r["d"] is not None]
            mean = float(sum(decimals)) / len(decimals) if decimals else None
            assert comparable(result["avg_d"]) == comparable(mean)


@pytest.mark.deep
@quick
@given(cut_rows, parallelisms, piece_cuts, st.lists(st.booleans(), min_size=4, max_size=4))
def test_rows_that_their_senders_fold_leave_results_and_state_to_the_bit(
    epochs: Any, parallelism: Any, cuts: Any, folded: Any
) -> None:
    """Two-phase aggregation changes what is sent, and nothing else; sums of floats, which it would round, have none."""
    calls = {name: call for name, call in CALLS.items() if name not in ("sum_x", "avg_x")}
    spec = AggregateOperator(uid="agg", kind="aggregate", inputs=["in"], key=["k", "f"], aggregates=calls)
    with tempfile.TemporaryDirectory() as folder:
        sent, plain = (
            OperatorRun(
                build_operator(spec, [OperatorInput(SCHEMA, None)]), LocalStore(StoreConfig(f"file://{folder}/{name}"))
            )
            for name in ("sent", "plain")
        )
        assert sent.operator.combiner is not None
        for rows, subtasks, pieces in zip(tables(epochs), parallelism, cuts, strict=False):
            out = sent.epoch(rows, parallelism=subtasks, cuts=pieces, folded=folded)
            expected = plain.epoch(rows, parallelism=subtasks, cuts=pieces)
            assert canonical(out.rows, out.rows.column_names) == canonical(expected.rows, out.rows.column_names)
        assert repr(sent.state().to_pylist()) == repr(plain.state().to_pylist())
    spec = AggregateOperator(uid="agg", kind="aggregate", inputs=["in"], key=["k"], aggregates={"s": "sum(x)"})
    assert build_operator(spec, [OperatorInput(SCHEMA, None)]).combiner is None


@pytest.mark.deep
@quick
@given(cut_rows, parallelisms, st.integers(0, 3), piece_cuts)
def test_windows_equal_the_oracle_whatever_the_parallelism(
    epochs: Any, parallelism: Any, delay_h: int, cuts: Any
) -> None:
    """DESIGN 8.1: late iff end <= the watermark at the epoch's start; emitted once, when it reaches the end."""
    calls = {"n": "count(*)", "total": "sum(i)"}
    spec = WindowOperator(
        uid="win", kind="window", inputs=["in"], key=["k"], window={"tumbling": "1h"}, aggregates=calls
    )
    inputs = tables(epochs)
    watermarks = [watermark_after(inputs[:done], delay_h * HOUR_US) for done in range(len(inputs) + 1)]
    with tempfile.TemporaryDirectory() as folder:
        run = OperatorRun(
            build_operator(spec, [OperatorInput(SCHEMA, "t")]), LocalStore(StoreConfig(f"file://{folder}/store"))
        )
        emitted: list[pa.Table] = []
        late: list[pa.Table] = []
        for index, rows in enumerate(inputs):
            before, after = watermarks[index], watermarks[index + 1]
            out = run.epoch(rows, before, after, parallelism[index], Path(folder, "cache"), cuts[index])
            emitted.append(out.rows.append_column("epoch", pa.array([index] * out.rows.num_rows, pa.int64())))
            late.append(out.late)
            live = run.state().num_rows
            assert sum(handle.live_rows for handle in run.handles) == live
            assert (min((next_timer(h) for h in run.handles if h.timers), default=None) is None) == (live == 0)
    marks = pa.table(
        {"epoch": list(range(len(inputs))), "before": watermarks[:-1], "after": watermarks[1:]},
        schema=pa.schema([("epoch", pa.int64()), ("before", pa.int64()), ("after", pa.int64())]),
    )
    numbered = pa.concat_tables(
        [rows.append_column("epoch", pa.array([i] * rows.num_rows, pa.int64())) for i, rows in enumerate(inputs)]
    )
    judged = f"""
        SELECT t.*, hour AS start_us, hour + {HOUR_US} AS end_us,
               before IS NOT NULL AND hour + {HOUR_US} <= before AS late
        FROM (SELECT *, CAST(floor(epoch_us(t) / {HOUR_US}.0) AS BIGINT) * {HOUR_US} AS hour FROM t) t
        JOIN m USING (epoch)
    """
    expected = query(
        f"""
        WITH judged AS ({judged}), windows AS (
            SELECT k, start_us, end_us, count(*) AS n, sum(i) AS total FROM judged WHERE NOT late GROUP BY ALL)
        SELECT k, make_timestamptz(start_us) AS window_start, make_timestamptz(end_us) AS window_end, n, total,
               (SELECT min(epoch) FROM m WHERE after >= end_us) AS epoch
        FROM windows WHERE end_us <= (SELECT max(after) FROM m)
        """,
        t=numbered,
        m=marks,
    )
    columns = ["k", "window_start", "window_end", "n", "total", "epoch"]
    assert canonical(pa.concat_tables(emitted), columns) == canonical(expected, columns)
    expected_late = query(f"SELECT position FROM ({judged}) WHERE late", t=numbered, m=marks)
    assert canonical(pa.concat_tables(late), ["position"]) == canonical(expected_late, ["position"])


@quick
@given(cut_rows, parallelisms, piece_cuts)
def test_deduplicate_without_ttl_equals_the_oracle_whatever_the_cut(epochs: Any, parallelism: Any, cuts: Any) -> None:
    """The first row of each key in plan order, whole, exactly once; nulls are one key."""
    spec = DeduplicateOperator(uid="dd", kind="deduplicate", inputs=["in"], key=["k", "i"])
    with tempfile.TemporaryDirectory() as folder:
        run = OperatorRun(
            build_operator(spec, [OperatorInput(SCHEMA, "t")]), LocalStore(StoreConfig(f"file://{folder}/store"))
        )
        out = [
            run.epoch(rows, parallelism=subtasks, cuts=pieces).rows
            for rows, subtasks, pieces in zip(tables(epochs), parallelism, cuts, strict=False)
        ]
        assert run.state().num_rows == sum(rows.num_rows for rows in out)
    expected = query(
        "SELECT * FROM t QUALIFY row_number() OVER (PARTITION BY k, i ORDER BY position) = 1",
        t=pa.concat_tables(tables(epochs)),
    )
    assert canonical(pa.concat_tables(out), SCHEMA.names) == canonical(expected, SCHEMA.names)


@quick
@given(cut_rows, parallelisms, st.integers(1, 20), piece_cuts)
def test_deduplicate_with_ttl_drops_or_calls_late_every_repeat(
    epochs: Any, parallelism: Any, ttl_h: int, cuts: Any
) -> None:
    """A row is late iff older than watermark - ttl; a key is forgotten only when its row would be late."""
    spec = DeduplicateOperator(uid="dd", kind="deduplicate", inputs=["in"], key=["k"], ttl=f"{ttl_h}h")
    inputs = tables(epochs)
    remembered: dict[Any, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        run = OperatorRun(
            build_operator(spec, [OperatorInput(SCHEMA, "t")]), LocalStore(StoreConfig(f"file://{folder}/store"))
        )
        for index, rows in enumerate(inputs):
            before, after = (watermark_after(inputs[:done], HOUR_US) for done in (index, index + 1))
            out = run.epoch(rows, before, after, parallelism[index], Path(folder, "cache"), cuts[index])
            first, late = [], []
            for r in rows.to_pylist():
                time_us = (r["t"] - EPOCH_0) // timedelta(microseconds=1)
                if before is not None and time_us < before - ttl_h * HOUR_US:
                    late.append(r["position"])
                    continue
                kept_until = remembered.get(r["k"])
                if kept_until is None or (before is not None and kept_until < before):
                    first.append(r["position"])
                    remembered[r["k"]] = time_us + ttl_h * HOUR_US
            assert sorted(out.rows.column("position").to_pylist()) == first
            assert sorted(out.late.column("position").to_pylist()) == late
            alive = {k for k, until in remembered.items() if after is None or until >= after}
            assert set(run.state().column("k").to_pylist()) == alive
