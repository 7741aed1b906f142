"""Items of a task keep stamp and object on their way through a frame of Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from milepost.spark.driver.sql_projection import CONTROL, column_of, decode_output, encode_output
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


def test_rows_that_no_sql_reads_are_values_of_one_column() -> None:
    """Stamp, object, `distinct`, `part` and order survive. Columns outside the node's schema are dropped."""
    read, only_sent = pa.table({"n": pa.array([1], pa.int64())}), pa.table({"t": ["a", None], "unused": [1, 2]})
    items: list[TaskOutput] = [
        Rows("src", read),
        Rows("sums", only_sent, 7, distinct=True, part=2),
        Rows("src", read, 3, object="a.csv"),
        Rows("sums", only_sent, object="b.csv"),
        RowsDone(),
    ]
    schema = pa.schema([("t", pa.string())])
    batches = [*encode_output(items, {"src": read.schema}, {"sums": schema})]
    assert {tuple(batch.schema.names) for batch in batches} == {(CONTROL, column_of("src"))}
    back = [*decode_output(batches, {"src": read.schema}, {"src": (column_of("src"),)})]
    sent = only_sent.select(["t"])
    assert back == [
        Rows("src", read),
        Rows("sums", sent, 7, distinct=True, part=2),
        Rows("src", read, 3, object="a.csv"),
        Rows("sums", sent, object="b.csv"),
        RowsDone(),
    ]


def test_rows_that_no_sql_reads_are_cut_into_values_of_4_mb() -> None:
    rows = pa.table({"n": np.arange(3 << 20)})  # 24 MB
    batches = [*encode_output([Rows("sums", rows)], {}, {"sums": rows.schema})]
    sizes = [batch.column(CONTROL).nbytes for batch in batches]
    assert len(sizes) == 6 and max(sizes) < (4 << 20) + 4096
    back = [item.rows for item in decode_output(batches, {}, {}) if isinstance(item, Rows)]
    assert pa.concat_tables(back).equals(rows)
