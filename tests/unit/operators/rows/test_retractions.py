"""An operator retracts the exact row that it emitted before the epoch, and does not report unchanged rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from milepost.language.aggregates import parse_aggregate
from milepost.operators.aggregate.run import AggregateByKey
from milepost.operators.rows.retractions import count_rows, retractions
from milepost.operators.rows.row_order import same_values
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit.rows.key_hashes import KEYED, WEAK
from milepost_testkit.tasks.operators.subtasks import OperatorRun

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.float64())])
CALLS = {"n": parse_aggregate("count(*)"), "high": parse_aggregate("max(v)")}


def rows(*found: tuple[str | None, float | None]) -> pa.Table:
    return pa.table(list(zip(*found, strict=True)), schema=SCHEMA)


def listed(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


@pytest.mark.parametrize("hasher", [KEYED, WEAK])
def test_an_aggregate_retracts_what_it_had_emitted_before_the_epoch(tmp_path: Path, hasher: Any) -> None:
    """Two pieces change a key twice: its row in between was never there."""
    operator = AggregateByKey("totals", ("k",), CALLS, SCHEMA)
    run = OperatorRun(operator, LocalStore(StoreConfig(tmp_path.as_uri())), hasher=hasher)
    run.epoch(rows(("a", 1.0), ("b", 2.0), (None, None)))
    opened = operator.begin({"": run.restore(0, 1)}, None)
    for piece in (rows(("a", 5.0), ("c", 7.0)), rows(("a", 6.0), (None, 0.5))):
        assert [*opened.rows(0, piece, None)] == []
    emitted = opened.finish(None)
    changes = opened.retractions()
    taken_back, new = ([row for row in listed(changes) if row[-1] == weight] for weight in (-1, 1))
    assert sorted(taken_back, key=str) == [("a", 1, 1.0, -1), (None, 1, None, -1)]
    assert [row[:-1] for row in new] == listed(emitted)
    at = {row: place for place, row in enumerate(listed(changes))}
    assert at["a", 1, 1.0, -1] + 1 == at["a", 3, 6.0, 1], "key after key"


def test_a_key_with_an_unchanged_row_is_not_reported(tmp_path: Path) -> None:
    operator = AggregateByKey("totals", ("k",), {"high": parse_aggregate("max(v)")}, SCHEMA)
    run = OperatorRun(operator, LocalStore(StoreConfig(tmp_path.as_uri())))
    run.epoch(rows(("a", 1.0), ("b", float("nan"))))
    opened = operator.begin({"": run.restore(0, 1)}, None)
    assert [*opened.rows(0, rows(("a", 0.5), ("b", 2.0)), None)] == []
    assert opened.finish(None).num_rows == 2
    assert not opened.retractions().num_rows
    idle = operator.begin({"": run.restore(0, 1)}, None)
    idle.finish(None)
    assert idle.retractions().schema.names == ["k", "high", "__weight"]


def test_rows_are_the_same_to_the_bit() -> None:
    nan = float("nan")
    one = pa.table({"x": [0.0, nan, None, 1.0], "l": pa.array([[1], None, [], [nan]], pa.list_(pa.float64()))})
    other = pa.table({"x": [-0.0, nan, None, 1.0], "l": pa.array([[1], None, None, [nan]], pa.list_(pa.float64()))})
    assert same_values(one, other).tolist() == [False, True, False, True]
    changes = retractions(one.slice(0, 1), np.array([0]), other.slice(0, 1), np.array([0]))
    assert listed(changes.select(["__weight"])) == [(-1,), (1,)]


def test_rows_of_mode_retract_are_counted_by_the_size_of_their_weights() -> None:
    assert count_rows(pa.table({"x": [1, 2]})) == 2
    assert count_rows(pa.table({"x": [1, 2], "__weight": [-3, 2]})) == 5
    assert count_rows(pa.table({"__weight": pa.array([], pa.int64())})) == 0
