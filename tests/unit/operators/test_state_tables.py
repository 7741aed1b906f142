"""Operators declare tables of state by name; those that keep one store what they always stored."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from milepost.language.aggregates import parse_aggregate
from milepost.operators.aggregate.run import AggregateByKey
from milepost.operators.contract import ONLY_TABLE
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.local.store import LocalStore
from milepost_testkit.tasks.dataplane import operators
from milepost_testkit.tasks.operators.subtasks import OperatorRun

ROWS = pa.table({"k": [n % 7 for n in range(40)], "v": [n * n for n in range(40)]})


def test_the_state_of_an_aggregate_is_stored_byte_by_byte_as_it_was_before_tables_had_names(tmp_path: Path) -> None:
    """No column, weight or name is added to what an operator with one table writes."""
    calls = {name: parse_aggregate(text) for name, text in {"n": "count(*)", "s": "sum(v)", "m": "max(v)"}.items()}
    operator = AggregateByKey("totals", ("k",), calls, ROWS.schema)
    run = OperatorRun(operator, LocalStore(StoreConfig(f"file://{tmp_path}")))
    run.epoch(ROWS)
    run.epoch(ROWS.slice(0, 3))
    assert operator.tables[ONLY_TABLE].schema.names == [
        "k", "count(*)", "count(v)", "sum(v).low", "sum(v).high", "max(v)",
    ]  # fmt: skip
    assert [(one.size, one.sha256) for handle in run.handles for one in handle.runs] == [
        (1_610, "c987a88feb68114819a899fd1cdd6522638e6daa91e343cfd1c285935a64052a"),
        (1_585, "64481940ac107e8c6ddcfba5e049c5fe4c70d947f41b99c3471aff8d91dbebe0"),
    ]


def test_operators_with_one_input_keep_one_table_and_place_it_by_their_routing_key() -> None:
    for uid in ("unique", "hourly", "totals", "steady"):
        operator = operators()[uid]
        assert list(operator.tables) == [ONLY_TABLE]
        assert operator.routing_keys == (operator.tables[ONLY_TABLE].routing_key,)
