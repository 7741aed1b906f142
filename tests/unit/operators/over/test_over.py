"""Functions over the rows of partitions equal DuckDB's, over epochs with retractions, however rows are cut."""

from __future__ import annotations

import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.operators.contract import ONLY_TABLE, OperatorFailed, OperatorInput
from milepost.operators.over import OverOperator, OverPartitions
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.stores.memory_store import MemoryStore
from milepost_testkit.tasks.operators.subtasks import OperatorRun

SALES = pa.schema([("id", pa.int64()), ("seller", pa.string()), ("price", pa.decimal128(12, 2)), ("x", pa.float64()),
                   ("i", pa.int32())])  # fmt: skip
WEIGHTED = SALES.append(pa.field(WEIGHT_COLUMN, pa.int64()))
FUNCTIONS = {
    "place": "row_number()",
    "rank": "rank()",
    "dense": "dense_rank()",
    "before": "lag(price)",
    "next2": "lead(x, 2)",
    "n": "count(*)",
    "priced": "count(price)",
    "total": "sum(price) rows unbounded preceding",
    "mean": "avg(i) rows between 2 preceding and current row",
    "few": "sum(x) rows between 1 preceding and 1 following",
    "whole": "sum(i) rows between unbounded preceding and unbounded following",
    "least": "min(x) rows between 3 preceding and 1 preceding",
    "most": "max(price)",
    "later": "max(x) rows between current row and unbounded following",
    "opening": "first_value(i) rows between 1 following and 3 following",
    "closing": "last_value(seller)",
}
nan = float("nan")
TYPES = {"mean": "DOUBLE", "whole": "BIGINT", "total": "DECIMAL(22,2)", "place": "INTEGER", "rank": "INTEGER",
         "dense": "INTEGER"}  # fmt: skip
Row = tuple[int | None, str | None, Decimal | None, float | None, int | None]


def over(
    functions: dict[str, str], key: tuple[str, ...] = ("seller",), order_by: Any = ({"x": "desc"},),
    schema: pa.Schema = WEIGHTED, stable_key: tuple[str, ...] = (),
) -> OverPartitions:  # fmt: skip
    spec = OverOperator.model_validate(
        {"uid": "valued", "kind": "over", "inputs": ["sales"], "key": list(key), "order_by": list(order_by),
         "row_key": ["id"], "functions": functions}
    )  # fmt: skip
    return OverPartitions(spec, OperatorInput(schema, None, stable_key=stable_key))


def sales(*rows: tuple[Any, ...]) -> pa.Table:
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in WEIGHTED]
    return pa.table(columns, schema=WEIGHTED)


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


def sale(id_: int | None, seller: str, price: str, x: float, weight: int = 1) -> tuple[Any, ...]:
    return id_, seller, Decimal(price), x, 0, weight


def opened(run: OperatorRun, rows: pa.Table) -> Any:
    """Return one subtask's finished epoch, without a checkpoint."""
    epoch: Any = run.operator.begin({ONLY_TABLE: run.restore(0, 1)}, None)
    list(epoch.rows(0, rows, None))
    epoch.finish(None)
    return epoch


def test_an_epoch_emits_the_rows_whose_values_changed_and_deletes_those_that_left(tmp_path: Path) -> None:
    operator = over({"sums": "sum(price) rows 1 preceding"}, order_by=("x",))
    run = OperatorRun(operator, LocalStore(StoreConfig(tmp_path.as_uri())))

    def shown(rows: pa.Table) -> list[tuple[Any, ...]]:
        return [(row["id"], row["sums"], row["__deleted"]) for row in run.epoch(rows).rows.to_pylist()]

    first = shown(sales(sale(1, "a", "5", 1.0), sale(3, "a", "7", 3.0), sale(4, "b", "2", 0.0)))
    assert first == [(1, Decimal("5.00"), False), (3, Decimal("12.00"), False), (4, Decimal("2.00"), False)]
    arrives = sales(sale(2, "a", "1", 2.0))
    changed = [(row["id"], row["sums"], row[WEIGHT_COLUMN]) for row in opened(run, arrives).retractions().to_pylist()]
    assert changed == [(2, 6, 1), (3, 12, -1), (3, 8, 1)]
    assert shown(arrives) == [(2, 6, False), (3, 8, False)]
    assert shown(sales(sale(1, "a", "5", 1.0, -1))) == [(2, 1, False), (1, None, True)]
    assert shown(sales(sale(3, "a", "7", 3.0, -1), sale(3, "b", "7", 3.0))) == [(3, 9, False), (3, None, True)]
    assert not run.epoch(sales()).rows.num_rows


def test_rows_that_tie_are_in_the_order_of_the_row_key(tmp_path: Path) -> None:
    run = OperatorRun(over({"place": "row_number()"}), LocalStore(StoreConfig(tmp_path.as_uri())))
    rows = run.epoch(sales(sale(2, "a", "1", 0.0), sale(1, "a", "9", -0.0), sale(None, "a", "5", 0.0))).rows
    assert [(row["id"], row["place"]) for row in rows.to_pylist()] == [(None, 1), (1, 2), (2, 3)]


def test_means_of_decimals_are_rounded_half_away_from_zero_in_sparks_type() -> None:
    run = OperatorRun(over({"mean": "avg(price)", "total": "sum(price)"}, order_by=()), MemoryStore("file:///memory/o"))
    rows = run.epoch(sales(sale(1, "a", "0.01", 0.0), sale(2, "a", "-0.02", 0.0), sale(3, "a", "0", 0.0))).rows
    assert rows.schema.field("mean").type == pa.decimal128(16, 6)
    assert rows.schema.field("total").type == pa.decimal128(22, 2)
    assert {str(row["mean"]) for row in rows.to_pylist()} == {"-0.003333"}
    half = sales(*(sale(10 + i, "h", "0.01" if i < 5 else "0", 0.0) for i in range(16)))
    assert {str(row["mean"]) for row in run.epoch(half).rows.to_pylist()} == {"0.003125"}


def test_sums_of_floats_are_exact_and_count_values_that_are_not_finite() -> None:
    run = OperatorRun(over({"total": "sum(x) rows between 1 preceding and 1 following", "mean": "avg(x)"},
                           order_by=("i",)), MemoryStore("file:///memory/o"))  # fmt: skip
    values = [1e308, 1e308, -1e308, 0.1, 5e-324, float("inf"), 1.0, nan, None, None, None]
    rows = sales(*((i, "a", None, x, i, 1) for i, x in enumerate(values)))
    got = [row["total"] for row in sorted(run.epoch(rows).rows.to_pylist(), key=lambda row: row["id"])]
    infinite = float("inf")
    assert repr(got) == repr([infinite, 1e308, 0.1, -1e308, infinite, infinite, nan, nan, nan, None, None]), (
        "1e308 - 1e308 + 0.1 is 0.1"
    )


def test_a_sum_that_does_not_fit_its_type_fails_the_epoch_with_the_row() -> None:
    schema = pa.schema([("id", pa.int64()), ("big", pa.int64()), ("wide", pa.decimal128(38, 0))])
    for column, value in (("big", 2**62), ("wide", Decimal(6 * 10**37))):
        spec = OverOperator.model_validate(
            {"uid": "valued", "kind": "over", "inputs": ["s"], "key": [], "order_by": ["id"], "row_key": ["id"],
             "functions": {"total": f"sum({column}) rows 1 preceding"}}
        )  # fmt: skip
        run = OperatorRun(OverPartitions(spec, OperatorInput(schema, None)), MemoryStore("file:///memory/o"))
        other = {"big": 0, "wide": Decimal(0)} | {column: value}
        with wording.raises(OperatorFailed):
            run.epoch(pa.table([[1, 2], [other["big"]] * 2, [other["wide"]] * 2], schema=schema))


def test_two_rows_with_one_key_fail_once_nothing_is_in_flight(tmp_path: Path) -> None:
    run = OperatorRun(over({"n": "count(*)"}), LocalStore(StoreConfig(tmp_path.as_uri())))
    moved = opened(run, sales(sale(1, "a", "1", 0.0), sale(1, "a", "2", 0.0)))
    assert [row["n"] for row in moved.retractions().to_pylist()] == [1], "of two rows the greatest counts"
    with wording.raises(OperatorFailed):
        moved.check_unique(all_keys=False)
    short = opened(run, sales(sale(1, "a", "1", 0.0, -1)))
    assert not short.retractions().num_rows
    short.check_unique(all_keys=True)
    with wording.raises(OperatorFailed):
        short.check_settled(all_keys=False)


def test_a_stable_key_has_no_deletes() -> None:
    assert over({"n": "count(*)"}, stable_key=("id", "seller")).output_schema.names == [*SALES.names, "n"]
    assert over({"n": "count(*)"}, stable_key=("id",)).output_schema.names[-1] == "__deleted"
    assert over({"n": "count(*)"}, schema=SALES).output_schema.names == [*SALES.names, "n"]


@pytest.mark.parametrize("changed", [{"key": ("absent",)}, {"order_by": ("absent",)}])
def test_columns_that_do_not_exist_are_refused(changed: dict[str, Any]) -> None:
    with wording.raises(InvalidRequest):
        over({"n": "count(*)"}, **changed)


PRICES = st.sampled_from([None, Decimal("1.50"), Decimal("-2.25"), Decimal("9999999999.99")])
FLOATS = st.sampled_from([None, 0.0, 0.1, 1e300, -3.5, nan])
SALE = st.tuples(st.integers(0, 9), st.sampled_from(["a", "b", None]), PRICES, FLOATS, st.sampled_from([None, 3, -8]))


def expected(rows: list[Row], key: tuple[str, ...]) -> Counter[str]:
    connection = duckdb.cursor()
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in SALES]
    connection.register("sales", pa.table(columns, schema=SALES))
    window = f"({'PARTITION BY seller' if key else ''} ORDER BY x + 0.0 DESC NULLS LAST"
    tied = f"{window}, id NULLS FIRST"
    parts = []
    for name, text in FUNCTIONS.items():
        call, _, frame = text.partition(") ")
        call, ties = call.removesuffix(")") + ")", name in ("rank", "dense", "n", "priced", "most")
        frame = "rows unbounded preceding" if not frame and name == "closing" else frame
        call = call.replace("sum(x", "fsum(x") if frame else call
        if name == "closing":  # up to the last row that ties
            parts.append("last_value(seller) OVER (last ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)")
            continue
        value = f"{call} OVER {window if ties else tied} {frame})"
        parts.append(f"CAST({value} AS {TYPES[name]}) AS {name}" if name in TYPES else f"{value} AS {name}")
    ties = f"WINDOW last AS (PARTITION BY {'seller, ' if key else ''}x + 0.0 ORDER BY id NULLS FIRST)"
    return Counter(map(repr, connection.sql(f"SELECT *, {', '.join(parts)} FROM sales {ties}").fetchall()))


@pytest.mark.long
@profiles.examples(share=0.4)
@example([([(1, "a", None, 0.1, 3), (2, "a", None, 0.1, None)], 0), ([(3, "b", None, nan, 3)], 1)], ("seller",), [1], 2)
@given(
    st.lists(
        st.tuples(st.lists(SALE, max_size=8, unique_by=lambda row: row[0]), st.integers(0, 8)), min_size=1, max_size=4
    ),
    st.sampled_from([("seller",), ()]),
    st.lists(st.integers(0, 12), max_size=2),
    st.integers(1, 3),
)
def test_the_table_equals_duckdbs_answer_however_rows_are_cut(
    epochs: list[tuple[list[Row], int]], key: tuple[str, ...], cuts: list[int], parallelism: int
) -> None:
    """Rows arrive, and some leave or are replaced. Output and state do not depend on pieces and subtasks."""
    with tempfile.TemporaryDirectory() as folder:
        whole, cut, apart = (
            OperatorRun(over(FUNCTIONS, key), LocalStore(StoreConfig(f"file://{folder}/{name}")))
            for name in ("whole", "cut", "apart")
        )
        present, table = dict[Any, Row](), dict[Any, str]()
        for come, goes in epochs:
            leaving = [*present][:goes]
            gone = [present[one] for one in {*leaving, *(row[0] for row in come if row[0] in present)}]
            present = {id_: row for id_, row in present.items() if id_ not in leaving}
            present |= {row[0]: row for row in come}
            rows = sales(*((*row, 1) for row in come), *((*row, -1) for row in gone))
            emitted = whole.epoch(rows).rows
            backwards = rows.take(pa.array(range(rows.num_rows - 1, -1, -1), pa.int64()))
            assert repr(listed(emitted)) == repr(listed(cut.epoch(backwards, cuts=sorted(cuts)).rows))
            assert Counter(map(repr, listed(emitted))) == Counter(
                map(repr, listed(apart.epoch(rows, parallelism=parallelism).rows))
            )
            for row in emitted.to_pylist():
                at = tuple(row[name] for name in whole.operator.output_key)
                if row.pop("__deleted"):
                    del table[at]
                else:
                    assert table.get(at) != repr(tuple(row.values())), "it is as it was"
                    table[at] = repr(tuple(row.values()))
            assert Counter(table.values()) == expected([*present.values()], key)
        assert whole.handles == cut.handles
        results = whole.operator.results(whole.state())  # type: ignore[attr-defined]
        assert Counter(repr(row[:-1]) for row in listed(results)) == Counter(table.values())
