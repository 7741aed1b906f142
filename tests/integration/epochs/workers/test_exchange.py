"""One Spark job per epoch: what crosses the exchange, what is restored, and what neither may depend on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from milepost.errors import StateCorrupt
from milepost.jobmaster import JobMaster, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import load_job
from milepost.state.cache.cache_folder import NODE_CACHE_VARIABLE
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane
from milepost_testkit.tasks.faults.worker_faults import Execution, Workers

MANY_CONSUMERS = {
    "    inputs: [unique]\n    key: [origin]": "    inputs: [clean]\n    key: [origin]",
    "WHERE dep_delay IS NOT NULL": "WHERE dep_delay + 0 IS NOT NULL",
    "sinks:\n": "sinks:\n  - {name: flown, input: clean, format: parquet, path: ../lake/flown, mode: append}\n",
}
"""`clean` runs on Spark in the source stage and feeds two operators and a sink. A third operator has its own level."""


def create(folder: Path, edit: dict[str, str] | None = None, *, files: int = 4, buffer_size: str = "1MB") -> FlightsJob:
    ours = {
        without_quality(): "",
        "max_files: 4": f"max_files: {files}",
        "parallelism: 2": f"parallelism: 2, buffer_size: {buffer_size}",
    }
    return FlightsJob.create(folder, ours | (edit or {}))


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FlightsJob, list[Watched]]]:
    """A job of two epochs whose buffers are small, and what its workers did in each."""
    folder, epochs = tmp_path_factory.mktemp("watched"), []
    job = create(folder / "job", MANY_CONSUMERS, files=2, buffer_size="1KB")
    job.land(range(1, 5))
    with pytest.MonkeyPatch.context() as patch:
        workers = Workers(patch, folder / "executions")
        for _ in range(2):
            tasks = job.master().reports.show(job.run().checkpoint_id).tasks
            ran = {level: workers.executions(level, "operators", "both", "output") for level in range(3)}
            epochs.append(Watched([(task.level, task.subtask, task.attempt) for task in tasks], ran))
            workers.forget()
    yield job, epochs


@dataclass
class Watched:
    """One epoch: the tasks that its report names, and the executions of their parts by level."""

    tasks: list[tuple[int, int, int]]
    ran: dict[int, list[Execution]]


@pytest.mark.deep
def test_every_subtask_runs_once_whatever_consumes_its_rows(watched: tuple[FlightsJob, list[Watched]]) -> None:
    """DESIGN 4.2: one exchange and one stage per level, so the source is executed once, not once per consumer."""
    job, epochs = watched
    for epoch in epochs:
        every = [(level, subtask, 0) for level in range(3) for subtask in range(2)]
        assert sorted(epoch.tasks) == every
        for level, part in ((0, "operators"), (1, "both"), (2, "both")):
            ran = [one for one in epoch.ran[level] if one.part == part]
            assert sorted((one.subtask, one.attempt, one.ended) for one in ran) == [(0, 0, True), (1, 0, True)]
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_many_buffers_per_channel_are_put_together_again(watched: tuple[FlightsJob, list[Watched]]) -> None:
    """Two senders, two receivers on each level, at least three buffers on every channel between them."""
    job, epochs = watched
    for level, part in ((0, "output"), (1, "both")):
        senders = [one for one in epochs[0].ran[level] if one.part == part]
        assert {one.subtask for one in senders} == {0, 1}
        for sender in senders:
            assert sender.buffers.keys() == {"0", "1"} and min(sender.buffers.values()) >= 3, sender
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_results_depend_neither_on_parallelism_nor_on_buffer_size(tmp_path: Path, plane: Plane) -> None:
    """I12 and section 5: key groups move, rows do not change; also where the number of subtasks changes in between."""
    tables: dict[str, dict[str, pa.Table]] = {}
    for name, parallelism, buffer_size in (("one", (1, 1), "1MB"), ("three", (3, 3), "10KB"), ("moved", (2, 3), "3KB")):
        job = create(tmp_path / name, files=3, buffer_size=buffer_size)
        job.land(range(1, 7))
        before = "parallelism: 2"
        for number in parallelism:
            job.edit(job.spec_path.read_text(), {before: f"parallelism: {number}"})
            before = f"parallelism: {number}"
            job.run()
        job.assert_tables_equal_the_oracle()
        master = job.master()
        tables[name] = {sink: master.reports.read(sink) for sink in ("carriers", "hourly", "late_flights")}
        tables[name] |= {f"state of {uid}": master.reports.state(uid) for uid in ("unique", "carriers", "hourly")}
    for name in ("three", "moved"):
        for table, rows in tables["one"].items():
            assert_same_rows(tables[name][table], rows, f"{table} of {name}")


@pytest.mark.deep
def test_the_node_cache_may_go_at_any_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DESIGN 5: the cache is always disposable; the runs in the store are the state."""
    cache = tmp_path / "cache"
    monkeypatch.setenv(NODE_CACHE_VARIABLE, str(cache))
    job = create(tmp_path / "job", files=2)
    job.land(range(1, 7))
    for _ in range(3):
        job.run()
        assert any(path.is_file() for path in cache.rglob("*")), "nothing was cached, so nothing is shown"
        shutil.rmtree(cache)
    job.assert_tables_equal_the_oracle()


def test_a_flipped_byte_in_a_state_run_stops_the_job_until_it_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit 7, naming the run and what to type; never skipped, and nothing of the refused epoch is visible."""
    monkeypatch.setenv(NODE_CACHE_VARIABLE, str(tmp_path / "cache"))
    job = create(tmp_path / "job", files=2)
    job.land(range(1, 5))
    job.run()
    assert any(path.is_file() for path in (tmp_path / "cache").rglob("*"))
    shutil.rmtree(tmp_path / "cache")  # it may go at any time
    path = largest_run(job)
    body = path.read_bytes()
    path.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
    with pytest.raises(StateCorrupt) as caught:
        job.run()
    error = caught.value
    assert error.exit_code == 7
    assert path.name in error.message and "sha256" in error.message
    assert "milepost verify flights" in error.hint
    with pytest.raises(StateCorrupt, match=path.name):
        assert job.master().reports.verify(deep=True).discarded == ()
    aborted, completed = job.master().reports.list_checkpoints()
    assert (aborted.status, aborted.failure_reason) == ("aborted", "STATE_CORRUPT")
    assert completed.status == "completed"
    assert {shown(job, sink) for sink in ("carriers", "hourly", "late_flights")} == {1}
    path.write_bytes(body)
    job.master().lifecycle.resume()
    assert job.run().status == "completed"
    assert job.master().reports.verify(deep=True).discarded == ()
    job.assert_tables_equal_the_oracle()


@pytest.mark.deep
def test_two_jobs_at_once_on_one_store_do_not_see_each_other(tmp_path: Path, plane: Plane) -> None:
    """Everything of a job is below <storage>/<name>/."""
    jobs = []
    for name in ("flights", "second"):
        edit = {"name: flights\n": f"name: {name}\n", "storage: ../store": f"storage: {tmp_path / 'shared store'}"}
        job = create(tmp_path / name, edit, files=2)
        job.land(range(1, 5))
        jobs.append(job)
    with ThreadPoolExecutor(2) as pool:
        for documents in pool.map(FlightsJob.run_until_caught_up, jobs):
            assert [document.checkpoint_id for document in documents] == [1, 2]
    for job in jobs:
        job.assert_tables_equal_the_oracle()
        assert job.master().reports.verify(deep=True).discarded == ()


def largest_run(job: FlightsJob) -> Path:
    """The file of the largest state run of the head."""
    context = JobContext(job.load())
    head = context.head().state.head()
    assert head is not None
    operators = context.metadata(head).operators.values()
    runs = [run for item in operators for handle in item.handles for run in handle.runs]
    return job.folder / "store" / "flights" / max(runs, key=lambda run: run.size).key


def shown(job: FlightsJob, sink: str) -> int:
    """The checkpoint that a sink's table shows; 0 for the empty table."""
    return JobContext(job.load()).sink(sink).position().checkpoint_id


BIDS_SPEC = """
name: bids
storage: ../store
sources:
  bids: {format: parquet, path: "../landing/*.parquet", settle: 0s,
    schema: {auction: int64, price: int64, fee: "decimal(9, 2)"}}
operators:
  - uid: totals
    kind: aggregate
    inputs: [bids]
    key: [auction]
    aggregates: {n: "count(*)", total: sum(price), highest: max(price), fees: sum(fee), mean: avg(price)}
sinks: [{name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}]
spark: {master: "local[2]", parallelism: 2}
"""


def test_rows_of_few_keys_are_folded_before_the_exchange_and_nothing_else_changes(tmp_path: Path, plane: Plane) -> None:
    """Two epochs: of few keys, so both senders fold; and of many, so neither does. DuckDB answers for both."""
    (tmp_path / "config").mkdir()
    (tmp_path / "landing").mkdir()
    spec = tmp_path / "config" / "bids.yaml"
    spec.write_text(BIDS_SPEC)
    received = []
    for epoch, keys in enumerate((50, 150_000)):
        for part in range(2):
            bids = (
                f"SELECT (i * 7919) % {keys} - 7 AS auction, i * 31 % 100003 AS price, "
                "(i % 997 / 100)::DECIMAL(9, 2) AS fee "
                f"FROM range({part}, 160000, 2) t(i)"
            )
            duckdb.sql(f"COPY ({bids}) TO '{tmp_path}/landing/{epoch}-{part}.parquet' (FORMAT parquet)")
        master = JobMaster(load_job(spec))
        tasks = master.reports.show(master.epochs.run(Session.cli(), plane()).checkpoint_id).tasks
        hosts = [task for task in tasks if task.level == 1]
        assert sum(task.rows for task in hosts) == 160_000
        received.append(sum(task.bytes for task in hosts))
        expected = duckdb.sql(
            "SELECT auction, count(*) AS n, sum(price)::BIGINT AS total, max(price) AS highest, sum(fee) AS fees, "
            f"avg(price) AS mean FROM '{tmp_path}/landing/*.parquet' GROUP BY auction"
        ).to_arrow_table()
        assert_same_rows(master.reports.read("totals"), expected, f"totals after epoch {epoch}")
    assert received[0] < 30_000 and received[1] > 160_000 * 8
