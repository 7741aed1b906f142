"""Windows over windows equal a batch query, over random histories: late rows, rows in flight, rescale, rollback."""

from __future__ import annotations

import copy
import tempfile
from collections import Counter
from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from milepost.protocol.exchange.watermarks import END_OF_TIME_US
from milepost_testkit import profiles
from milepost_testkit.tasks.clocks import ticking
from milepost_testkit.tasks.dataplane import DataPlane
from tests.unit.spark.test_unaligned_epochs import FINAL, SMALL, cut, events, nothing, open_plane

pytestmark = pytest.mark.deep

HOUR_US = 3_600_000_000
DATABASE = duckdb.connect(config={"threads": 1})

WINDOWS = """
SELECT k, start AS window_start, start + $size AS window_end, {calls}
FROM (SELECT *, ({time} - ({time} % $size + $size) % $size)::BIGINT AS start FROM input)
GROUP BY k, start HAVING start + $size <= $fired
"""


def query(rows: pa.Table, *, time: str, size_us: int, calls: str, fired_us: int) -> Counter[str]:
    """What DuckDB makes of the rows of a window's input, as far as the window has fired."""
    with DATABASE.cursor() as db:
        db.register("input", in_microseconds(rows))
        text = WINDOWS.format(time=time, calls=calls)
        return counted(db.sql(text, params={"size": size_us, "fired": fired_us}).to_arrow_table())


def in_microseconds(rows: pa.Table) -> pa.Table:
    """The rows with their times as integers, which no engine reads in a zone of its own."""
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    for name in times:
        at = rows.column_names.index(name)
        rows = rows.set_column(at, name, rows.column(name).cast(pa.int64()))
    return rows


def counted(rows: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in in_microseconds(rows).to_pylist())


def put_out(plane: DataPlane, node: str) -> Counter[str]:
    tables = plane.outputs.get(node)
    return counted(pa.concat_tables(tables)) if tables else Counter()


def fired_us(plane: DataPlane, uid: str) -> int:
    """How far all subtasks of an operator have fired; a time before any row when one has not."""
    firing = plane.states[uid].firing
    return min((-(10**15) if one is None else one for one in firing), default=-(10**15))


def gone_back(to: DataPlane) -> DataPlane:
    """A plane that goes on from a checkpoint that another one has left behind, over the same objects."""
    kept = {name: list(tables) for name, tables in to.outputs.items()}
    return replace(to, states=copy.copy(to.states), outputs=kept)


@profiles.examples(share=0.08, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6),
    timeouts=st.lists(st.sampled_from([None, 3, 20]), min_size=5, max_size=5),
    parallelism=st.lists(st.integers(1, 4), min_size=7, max_size=7),
    rows=st.integers(0, 40),
    back=st.integers(1, 4),
)
def test_each_window_of_a_chain_equals_its_batch_query_over_the_rows_that_it_read(
    seed: int, timeouts: list[int | None], parallelism: list[int], rows: int, back: int
) -> None:
    """Node by node, less the rows that are late: by the source's watermark for the first; none for the second."""
    with tempfile.TemporaryDirectory() as folder:
        plane = open_plane(folder, "store")
        planes = []
        sources = [events(seed, epoch, rows) for epoch in range(5)]

        def run(epoch: int, timeout_ms: int | None) -> None:
            cuts = {} if timeout_ms is None else {"alignment": cut(timeout_ms), "clock": ticking(1)}
            plane.epoch(sources[epoch], parallelism=parallelism[epoch], limits=SMALL, **cuts)  # type: ignore[arg-type]

        for epoch, timeout_ms in enumerate(timeouts):
            planes.append(gone_back(plane))
            run(epoch, timeout_ms)
        plane = planes[back]
        for epoch in range(back, 5):
            run(epoch, timeouts[-1 - epoch])
        plane.epoch(nothing(), parallelism=parallelism[5])
        assert plane.in_flight == 0
        delivered = pa.concat_tables([table for tables in sources for table in tables])
        for final in (False, True):
            if final:
                plane.epoch(nothing(), parallelism=parallelism[6], alignment=FINAL)
                assert fired_us(plane, "longer") == END_OF_TIME_US
            # The largest bound that a window of the history can have stands for the end of time.
            reached = [min(fired_us(plane, uid), 10**15) for uid in ("hourly", "longer")]
            late = plane.outputs.get("hourly.late", [])
            on_time = duckdb_difference(delivered, pa.concat_tables(late) if late else delivered.schema.empty_table())
            calls = "count(*) AS n, sum(id)::BIGINT AS sum"
            first = query(on_time, time="t", size_us=HOUR_US, calls=calls, fired_us=reached[0])
            assert put_out(plane, "hourly") == first
            windows = pa.concat_tables(plane.outputs["hourly"]) if plane.outputs.get("hourly") else None
            assert not plane.table("longer.late"), "what a window fires is never late for the next one"
            if windows is not None:
                calls = "count(*) AS windows, sum(n)::BIGINT AS n"
                time = "window_end - 1"
                second = query(windows, time=time, size_us=2 * HOUR_US, calls=calls, fired_us=reached[1])
                assert put_out(plane, "longer") == second
            else:
                assert not plane.table("longer")


def duckdb_difference(rows: pa.Table, less: pa.Table) -> pa.Table:
    """The rows, as a multiset, less others."""
    with DATABASE.cursor() as db:
        db.register("rows", in_microseconds(rows))
        db.register("less", in_microseconds(less.select(rows.column_names)))
        return db.sql("SELECT * FROM rows EXCEPT ALL SELECT * FROM less").to_arrow_table()
