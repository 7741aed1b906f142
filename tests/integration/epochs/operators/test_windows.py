"""The tables of the example of sessions and sliding windows are DuckDB's answer over its files."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane
from milepost_testkit.specs.examples import EXAMPLES
from milepost_testkit.specs.spec_edits import edit_spec

pytestmark = pytest.mark.deep

SESSIONS = """
    WITH clicks AS (SELECT visitor, epoch_us(clicked_at) AS t, clicked_at FROM rows),
    apart AS (SELECT *, t - lag(t) OVER (PARTITION BY visitor ORDER BY t) AS gap FROM clicks),
    numbered AS (
        SELECT *, sum(coalesce(gap >= 1800000000, true)::INT) OVER (
            PARTITION BY visitor ORDER BY t ROWS UNBOUNDED PRECEDING) AS session
        FROM apart)
    SELECT visitor, make_timestamptz(min(t)) AS window_start, make_timestamptz(max(t) + 1800000000) AS window_end,
        count(*) AS views, max(clicked_at) AS last_click
    FROM numbered GROUP BY visitor, session
    HAVING max(t) + 1800000000 <= (SELECT max(t) - 600000000 FROM clicks)
"""
SLIDING = """
    WITH clicks AS (
        SELECT page, epoch_us(clicked_at) // 900000000 * 900000000 + unnest(range(1, 5)) * 900000000 AS window_end_us
        FROM rows)
    SELECT page, make_timestamptz(window_end_us - 3600000000) AS window_start,
        make_timestamptz(window_end_us) AS window_end, count(*) AS views
    FROM clicks WHERE window_end_us <= (SELECT max(epoch_us(clicked_at)) - 600000000 FROM rows) GROUP BY ALL
"""
PER_HOUR = f"""
    WITH visits AS (SELECT (epoch_us(window_end) - 1) // 3600000000 * 3600000000 AS hour, views FROM ({SESSIONS}))
    SELECT 1::INT AS one, make_timestamptz(hour) AS window_start, make_timestamptz(hour + 3600000000) AS window_end,
        count(*) AS visits, sum(views)::BIGINT AS views
    FROM visits WHERE hour + 3600000000 <= (SELECT max(epoch_us(clicked_at)) - 600000000 FROM rows) GROUP BY ALL
"""


def test_the_example_is_what_duckdb_finds_over_its_files_one_epoch_after_another(tmp_path: Path, plane: Plane) -> None:
    folder = tmp_path / "config"
    shutil.copytree(EXAMPLES, folder)
    path = folder / "sessions.yaml"
    edit_spec(path, {"watermark_delay: 10m": "watermark_delay: 10m\n    settle: 0s"})
    (file,) = (folder / "clicks").glob("*.csv")
    head, *lines = file.read_text().splitlines()
    file.unlink()
    master = JobMaster(load_job(str(path)))
    for number, place in enumerate(range(0, len(lines), 25)):
        (folder / "clicks" / f"{number}.csv").write_text("\n".join([head, *lines[place : place + 25]]) + "\n")
        master.epochs.run(Session.cli(), plane())
    connection = duckdb.connect()
    connection.execute("SET TimeZone='UTC'")
    connection.execute(
        f"CREATE TABLE rows AS SELECT * REPLACE (clicked_at::TIMESTAMPTZ AS clicked_at) FROM '{folder}/clicks/*.csv'"
    )
    for sink, query in (("visits", SESSIONS), ("last_hour", SLIDING), ("visits_per_hour", PER_HOUR)):
        found = master.reports.read(sink)
        expected: pa.Table = connection.sql(query).to_arrow_table()
        assert_same_rows(found, expected.cast(found.schema), sink)
        assert found.num_rows >= 2, sink
