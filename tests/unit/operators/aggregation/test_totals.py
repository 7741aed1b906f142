"""An aggregate without key columns has one row: before any row arrives, in every subtask, and after all are gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.operators.aggregate.spec import AggregateOperator
from milepost.operators.build import build_operator
from milepost.operators.contract import (
    ONLY_TABLE,
    TOTAL_COLUMN,
    OperatorFailed,
    OperatorInput,
    StatefulOperator,
)
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.tasks.operators.subtasks import OperatorRun

SCHEMA = pa.schema({"v": pa.int64(), "b": pa.bool_()})
WEIGHTED = SCHEMA.append(pa.field(WEIGHT_COLUMN, pa.int64()))
CALLS = {"n": "count(*)", "total": "sum(v)", "mean": "avg(v)", "some": "count(v) filter (where b)"}
NOTHING = {"n": 0, "total": None, "mean": None, "some": 0}


def operator(schema: pa.Schema = SCHEMA, calls: dict[str, str] = CALLS) -> StatefulOperator:
    spec = AggregateOperator(uid="totals", kind="aggregate", inputs=["in"], key=[], aggregates=calls)
    return build_operator(spec, [OperatorInput(schema, None)])


def started(folder: Path, schema: pa.Schema = SCHEMA) -> OperatorRun:
    return OperatorRun(operator(schema), LocalStore(StoreConfig(f"file://{folder}")))


def rows(*values: int | None) -> pa.Table:
    return pa.table([pa.array(values, pa.int64()), pa.array([v == 1 for v in values], pa.bool_())], schema=SCHEMA)


def changes(*found: tuple[int, int]) -> pa.Table:
    return rows(*(value for value, _ in found)).append_column(
        WEIGHT_COLUMN, pa.array([w for _, w in found], pa.int64())
    )


@pytest.mark.parametrize("schema", [SCHEMA, WEIGHTED], ids=["append", "updates"])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_totals_are_there_before_any_row_came_once(tmp_path: Path, schema: pa.Schema, parallelism: int) -> None:
    """As a query without GROUP BY answers over no rows; one subtask puts it out, and no later epoch again."""
    run = started(tmp_path, schema)
    assert run.epoch(schema.empty_table(), parallelism=parallelism).rows.to_pylist() == [NOTHING]
    assert run.epoch(schema.empty_table(), parallelism=2).rows.num_rows == 0
    assert run.state().num_rows == 1


def test_all_rows_are_one_key_at_any_parallelism_folded_or_not(tmp_path: Path) -> None:
    runs = [started(tmp_path / str(at)) for at in range(3)]
    first, second = rows(1, 2, None, 4), rows(5, 1)
    whole = [runs[0].epoch(one).rows.to_pylist() for one in (first, second)]
    cut = [runs[1].epoch(one, parallelism=3, cuts=[1, 2]).rows.to_pylist() for one in (first, second)]
    folded = [
        runs[2].epoch(one, parallelism=2, cuts=[1], folded=[True, False]).rows.to_pylist() for one in (first, second)
    ]
    assert whole == cut == folded
    assert whole == [[{"n": 4, "total": 7, "mean": 7 / 3, "some": 1}], [{"n": 6, "total": 13, "mean": 2.6, "some": 2}]]
    assert runs[0].state() == runs[1].state() == runs[2].state()


def test_the_key_of_the_product_s_own_is_in_state_alone() -> None:
    made = operator()
    assert made.routing_keys == ((),)
    assert made.output_key == ()
    assert TOTAL_COLUMN in made.tables[ONLY_TABLE].schema.names
    assert made.output_schema.names == [*CALLS]


def test_totals_of_rows_that_are_all_retracted_are_those_of_no_rows(tmp_path: Path) -> None:
    run = started(tmp_path, WEIGHTED)
    assert run.epoch(changes((1, 2), (3, 1))).rows.to_pylist() == [{"n": 3, "total": 5, "mean": 5 / 3, "some": 2}]
    assert run.epoch(changes((3, -1), (1, -2))).rows.to_pylist() == [NOTHING]
    assert run.epoch(changes((4, 1))).rows.to_pylist() == [{"n": 1, "total": 4, "mean": 4.0, "some": 0}]


def test_more_retractions_than_rows_count_as_no_rows_until_the_rows_arrive(tmp_path: Path) -> None:
    run = started(tmp_path, WEIGHTED)
    assert run.epoch(changes((7, -1))).rows.to_pylist() == [NOTHING]
    assert run.epoch(changes((7, 1), (2, 1))).rows.column("total").to_pylist() == [2]


def test_what_never_came_is_refused_and_no_rows_at_all_are_not(tmp_path: Path) -> None:
    run = started(tmp_path, WEIGHTED)
    for found, settled in (((1, 1), (1, -1)), True), (((1, -1),), False):
        epoch: Any = run.operator.begin({ONLY_TABLE: run.restore(0, 1)}, None)
        list(epoch.rows(0, changes(*found), None))
        epoch.finish(None)
        if settled:
            epoch.check_settled(all_keys=True)
            continue
        with wording.raises(OperatorFailed):
            epoch.check_settled(all_keys=False)


def test_a_change_of_totals_is_a_retraction_and_a_new_row(tmp_path: Path) -> None:
    for schema, first, second in ((SCHEMA, rows(1), rows(2)), (WEIGHTED, changes((1, 1)), changes((2, 1)))):
        run = started(tmp_path / str(len(schema)), schema)
        run.epoch(first)
        epoch: Any = run.operator.begin({ONLY_TABLE: run.restore(0, 1)}, None)
        list(epoch.rows(0, second, None))
        epoch.finish(None)
        assert [(row["total"], row[WEIGHT_COLUMN]) for row in epoch.retractions().to_pylist()] == [(1, -1), (3, 1)]
