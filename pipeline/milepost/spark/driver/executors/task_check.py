"""Exercise the libraries that tasks use, to detect a version that is too old."""

from __future__ import annotations

import pyarrow as pa

from milepost.spark.driver.sql_projection import decode_output, encode_output
from milepost.spark.task.row_steps.sql_expression import column_of
from milepost.spark.wire.task_output import Rows
from milepost.state.layers import KeyHash, KeySpec, sort_rows
from milepost.state.runs import RunKind, decode_run, encode_run

_SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("at", pa.timestamp("us", "UTC"))])
_NODE = "rows"


def work_as_tasks_do() -> None:
    """Encode three rows for a projection and decode them, then write a state run and read it. Errors propagate."""
    rows = pa.table({"k": [1, 2, 3], "v": ["a", None, "c"], "at": [0, 1, None]}, schema=_SCHEMA)
    decoded = decode_output(
        encode_output([Rows(_NODE, rows, None)], {_NODE: _SCHEMA}), {_NODE: _SCHEMA}, {_NODE: (column_of(_NODE),)}
    )
    assert [item.rows.to_pylist() for item in decoded if isinstance(item, Rows)] == [rows.to_pylist()]
    keys = KeySpec(("k",), ("k",), KeyHash("0" * 32))
    layer = sort_rows(rows, keys, False)
    handle, body = encode_run(layer, RunKind.BASE, range(8), 8, "probe/", keys)
    assert decode_run(body, handle, range(8), _SCHEMA, keys, 8).rows.equals(layer.rows)
