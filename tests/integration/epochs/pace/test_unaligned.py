"""Unaligned checkpoints on Spark: a slow operator, a hot key, and an epoch that ends in time all the same."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from milepost.jobmaster import CheckpointReport
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.open import open_store
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import epochs_in_process

FILES = 2
SLEEP_S = 0.002

SPEC = """\
name: flights
storage: ../store
sources:
  clicks:
    format: json
    path: ../landing/*.json
    settle: 0s
    schema: {id: int64, who: string, at: "timestamp[us, UTC]"}
    event_time: at
    watermark_delay: 1h
    limits_per_epoch: {max_files: 1}
operators:
  - {uid: unique, kind: deduplicate, inputs: [clicks], key: [id], ttl: 2d}
  - {uid: gaps, kind: process, inputs: [clicks], key: [who], function: "slow:Gaps"}
  - {uid: minutes, kind: window, inputs: [unique], key: [who], window: {tumbling: 1m}, aggregates: {clicks: count(*)}}
  - {uid: longer, kind: sql, inputs: [gaps], sql: "SELECT * FROM gaps WHERE gap > 0"}
  - {uid: per_who, kind: aggregate, inputs: [longer], key: [who], aggregates: {n: count(*), total: sum(gap)}}
  - {uid: once, kind: deduplicate, inputs: [longer], key: [who, id, gap]}
sinks:
  - {name: gaps, input: gaps, format: parquet, path: ../lake/gaps, mode: append}
  - {name: minutes, input: minutes, format: parquet, path: ../lake/minutes, mode: append}
  - {name: once, input: once, format: parquet, path: ../lake/once, mode: append}
  - {name: per_who, input: per_who, format: parquet, path: ../lake/per_who, mode: upsert}
checkpointing: {retained: {last: 20}, timeout: 5m}
spark: {master: "local[2]", parallelism: 2}
"""

FUNCTION = """\
import time


class Gaps:
    state = {"last": "int64"}
    output = {"who": "string", "id": "int64", "gap": "int64"}

    def on_rows(self, key, rows, state, ctx):
        for number in rows.column("id").to_pylist():
            time.sleep(SLEEP)
            yield {"who": key, "id": number, "gap": number - (state["last"] or 0)}
            state["last"] = number
"""


class ClicksJob(FlightsJob):
    """Clicks, nearly all of one user, through a process function that takes its time."""

    @classmethod
    def create(cls, folder: Path, edit: dict[str, str] | None = None, *, rows: int, sleep_s: float = 0.0) -> ClicksJob:
        job = cls(folder)
        (folder / "config").mkdir(parents=True)
        job.edit(SPEC, edit or {})
        (folder / "config" / "slow.py").write_text(FUNCTION.replace("SLEEP", str(sleep_s)))
        for number in range(FILES):
            numbers = range(number * rows, (number + 1) * rows)
            body = "".join(json.dumps(click(one, last=FILES * rows - 1)) + "\n" for one in numbers)
            job.landing_store.put(f"{number}.json", body.encode())
        return job

    @property
    def landing_store(self) -> ObjectStore:
        return open_store(StoreConfig(f"file://{self.folder / 'landing'}"))


def click(number: int, last: int | None = None) -> dict[str, Any]:
    """Most clicks are of one user; each tenth comes twice; the last one, if there is one, is of the year 9999."""
    identity = number - 5 if number % 10 == 9 else number
    who = "hot" if identity % 8 else f"user {identity % 7}"
    year = 9999 if number == last else 2026
    return {"id": identity, "who": who, "at": f"{year}-01-01T{identity // 3600:02}:{identity // 60 % 60:02}:00Z"}


@pytest.mark.parametrize(
    ("rows", "budget_ms"), [(250, 400), pytest.param(1_500, 4_000, marks=pytest.mark.deep)], ids=["few", "many"]
)
def test_a_slow_operator_with_a_hot_key_keeps_the_budget_and_loses_no_row(
    tmp_path: Path, rows: int, budget_ms: int
) -> None:
    """DESIGN 4.3: each epoch stops in time; all epochs together give what aligned ones give, also when rescaled.

    A budget of seconds is long enough to tell by how much a task was too late.
    """
    ample = {"timeout: 5m": "timeout: 5m, aligned_timeout: 4m"}
    aligned = ClicksJob.create(tmp_path / "aligned", ample, rows=rows)
    with epochs_in_process():
        aligned.run_until_caught_up()
    checkpointing = f"timeout: 5m, epoch_budget: {budget_ms}ms, max_in_flight: 1"
    job = ClicksJob.create(tmp_path / "unaligned", {"timeout: 5m": checkpointing}, rows=rows, sleep_s=SLEEP_S)
    epochs: list[CheckpointReport] = []
    while isinstance(report := job.run(), CheckpointReport):
        epochs.append(job.master().reports.show(report.checkpoint_id))
        if len(epochs) == 2:
            job.edit(job.spec_path.read_text(), {"parallelism: 2": "parallelism: 3"})
        assert len(epochs) < 40, "the rows in flight are never done"
    for sink in ("gaps", "minutes", "once", "per_who"):
        assert_same_rows(job.master().reports.read(sink), aligned.master().reports.read(sink), sink)
    assert sum(shown.sources["clicks"].ahead.rows for shown in epochs) == 1
    assert str(epochs[-1].watermark) < "2026-01-02", "moved by the rows of that day"
    assert sum(bool(shown.in_flight_bytes) for shown in epochs) >= 2, "nothing was ever left in flight"
    for before, shown in itertools.pairwise(epochs):
        if before.in_flight_bytes:
            assert shown.rows_in == 0, "max_in_flight: nothing new is planned beside rows in flight"
    if budget_ms >= 1_000:
        late = [slowest_ms(shown) > budget_ms * 20 // 100 for shown in epochs]
        assert sum(late) * 2 < len(late), f"a machine may hold up one epoch or another: {[*map(slowest_ms, epochs)]}"


def slowest_ms(shown: CheckpointReport) -> int:
    """By how much the last task of an epoch came too late; what is not processing is not its own delay."""
    tasks = [task for task in shown.tasks if task.level]
    waited = ("exchange_wait_ms", "restore_ms", "emit_ms")
    return max(-task.left_ms - task.spent_ms(*waited) for task in tasks)


RESCALED_FILES, RESCALED_ROWS = 21, 30
RESCALED = {
    '  - {uid: longer, kind: sql, inputs: [gaps], sql: "SELECT * FROM gaps WHERE gap > 0"}\n': "",
    "inputs: [longer], key: [who], agg": "inputs: [gaps], key: [who], agg",
    "inputs: [longer], key: [who, id, gap]": "inputs: [gaps], key: [who, id, gap]",
    "watermark_delay: 1h": "watermark_delay: 1m",
    "parallelism: 2}": "parallelism: 2, buffer_size: 64}",
}


class RescaledJob(ClicksJob):
    """The clicks without SQL, in many small files, whose oracle is DuckDB over all rows in plan order."""

    @classmethod
    def land_all(cls, folder: Path, edit: dict[str, str], *, sleep_s: float = 0.0) -> RescaledJob:
        job = cls(folder)
        (folder / "config").mkdir(parents=True)
        job.edit(SPEC, {**RESCALED, **edit})
        (folder / "config" / "slow.py").write_text(FUNCTION.replace("SLEEP", str(sleep_s)))
        for number in range(RESCALED_FILES):
            body = "".join(json.dumps(click(number * RESCALED_ROWS + at)) + "\n" for at in range(RESCALED_ROWS))
            job.landing_store.put(f"{number:02}.json", body.encode())
        return job

    def oracle(self) -> dict[str, pa.Table]:
        """What every sink must hold: no row is late, and what the last watermark closes is closed."""
        rows = [{"n": n, **click(n)} for n in range(RESCALED_FILES * RESCALED_ROWS)]
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("landed", pa.Table.from_pylist(rows))
            connection.execute('CREATE VIEW clicks AS SELECT n, id, who, "at"::TIMESTAMPTZ AS t FROM landed')
            connection.execute("""
                CREATE VIEW gaps AS
                SELECT who, id, id - coalesce(lag(id) OVER (PARTITION BY who ORDER BY n), 0) AS gap FROM clicks""")
            queries = {
                "gaps": "SELECT * FROM gaps",
                "once": "SELECT DISTINCT * FROM gaps",
                "per_who": "SELECT who, count(*) AS n, sum(gap)::BIGINT AS total FROM gaps GROUP BY who",
                "minutes": """
                    SELECT who, time_bucket(INTERVAL 1 MINUTE, t) AS window_start,
                           window_start + INTERVAL 1 MINUTE AS window_end, count(DISTINCT id) AS clicks
                    FROM clicks GROUP BY ALL
                    HAVING window_end <= (SELECT max(t) FROM clicks) - INTERVAL 1 MINUTE""",
            }
            return {sink: connection.sql(query).to_arrow_table() for sink, query in queries.items()}


@pytest.mark.deep
def test_seven_epochs_at_each_of_three_parallelisms_give_the_tables_of_one(tmp_path: Path) -> None:
    """DESIGN 5: rescale is other ranges over the same files; rows in flight at a switch reach their new owners."""
    constant = RescaledJob.land_all(tmp_path / "constant", {"max_files: 1": "max_files: 21"})
    with epochs_in_process():
        constant.run_until_caught_up()
    job = RescaledJob.land_all(
        tmp_path / "rescaled", {"timeout: 5m": "timeout: 5m, aligned_timeout: 1ms"}, sleep_s=0.001
    )
    pending = []
    for before, parallelism in ((2, 2), (2, 3), (3, 1)):
        job.edit(job.spec_path.read_text(), {f"parallelism: {before},": f"parallelism: {parallelism},"})
        documents = [job.run() for _ in range(7)]
        pending.append(documents[-1].in_flight_bytes)
    assert documents[-1].checkpoint_id == RESCALED_FILES
    assert all(pending), f"nothing was in flight at a switch: {pending}"
    job.edit(job.spec_path.read_text(), {"aligned_timeout: 1ms": "aligned_timeout: 4m"})
    job.run_until_caught_up()
    oracle = job.oracle()
    for sink in ("gaps", "minutes", "once", "per_who"):
        assert_same_rows(job.master().reports.read(sink), constant.master().reports.read(sink), f"{sink}, rescaled")
        assert_same_rows(job.master().reports.read(sink), oracle[sink], f"{sink}, by DuckDB")
