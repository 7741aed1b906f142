"""Items of a task keep stamp and object on their way through a frame of Spark."""

from __future__ import annotations

import pyarrow as pa

from milepost.spark.driver.sql_projection import column_of, decode_output, encode_output
from milepost.spark.wire.task_output import Rows, RowsDone, TaskOutput


def test_rows_keep_their_stamp_and_their_object() -> None:
    table = pa.table({"n": pa.array([1, 2], pa.int64())})
    stamps = [(None, None), (None, "a.csv"), (None, "a.csv"), (None, "b.csv"), (5, "b.csv"), (5, None)]
    items: list[TaskOutput] = [Rows("src", table, stamp, object=key) for stamp, key in stamps]
    batches = encode_output([*items, RowsDone()], {"src": table.schema})
    *rows, done = decode_output(batches, {"src": table.schema}, {"src": (column_of("src"),)})
    assert [(one.lateness_us, one.object, one.rows) for one in rows if isinstance(one, Rows)] == [
        (stamp, key, table) for stamp, key in stamps
    ]
    assert len(rows) == len(stamps) and done == RowsDone()
