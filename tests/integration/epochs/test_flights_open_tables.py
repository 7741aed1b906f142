"""The flights job on Delta: engines that had no part in its tables read them at every checkpoint, and meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.jobmaster.jobmaster import Session
from tests.harness.jobs.flights_job import FlightsJob
from tests.harness.readers.reading_engines import ENGINES, ReadingEngines
from tests.harness.tasks.tables import assert_same_rows

DELTA = {f"format: parquet, path: ../lake/{name}": f"format: delta, path: ../lake/{name}" for name in (
    "carriers", "hourly", "late_flights"
)}  # fmt: skip
FLIGHTS = "flights"
"""A column of table `carriers` that rises with each epoch, so that a table of a part of an epoch shows."""


@dataclass
class Loop:
    """What a reader saw that reads one table again and again.

    Attributes:
        sums: of the column, as it saw them; each only once in a row.
    """

    sums: list[int] = field(default_factory=list)
    reads: int = 0


@contextmanager
def reading_in_a_loop(location: Path, engine: str) -> Iterator[Loop]:
    """Read a table in a process of its own for as long as the block runs, and once more at the end."""
    loop, ended, engines = Loop(), threading.Event(), ReadingEngines()

    def read() -> None:
        last = False
        while not last:
            last = ended.is_set()
            rows = engines.read(engine, location)
            total = sum(rows.column(FLIGHTS).to_pylist())
            assert len(set(rows.column("carrier").to_pylist())) == rows.num_rows, "two rows of one key"
            loop.reads += 1
            if loop.sums[-1:] != [total]:
                loop.sums.append(total)

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            yield loop
        finally:
            ended.set()
            reading.exception()  # it has ended; what it raised is told where the block succeeded
            engines.stop()
        reading.result()


def assert_engines_see_the_oracle(job: FlightsJob, engines: ReadingEngines) -> int:
    """Every table, by every engine; returns the flights of table `carriers`."""
    expected = job.assert_tables_equal_the_oracle().tables
    for name, table in expected.items():
        for engine in ENGINES:
            seen = engines.read(engine, job.folder / "lake" / name)
            assert_same_rows(seen.select(table.column_names), table, f"{name} by {engine}")
    filtered = engines.read("duckdb", job.folder / "lake" / "carriers", where=("carrier", "=", "UA"))
    known = expected["carriers"].filter(pa.compute.equal(expected["carriers"].column("carrier"), "UA"))
    assert_same_rows(filtered.select(known.column_names), known, "carriers, one of them")
    return sum(expected["carriers"].column(FLIGHTS).to_pylist())


@pytest.mark.referee
def test_engines_see_every_checkpoint_whole_forward_back_and_while_it_is_published(
    tmp_path: Path, reading_engines: ReadingEngines
) -> None:
    """TABLES 1.1, 1.6: flights are append and upsert tables; no reader sees a state between two checkpoints."""
    job = FlightsJob.create(tmp_path, DELTA)
    job.land(range(1, 5))
    job.run()
    published = [assert_engines_see_the_oracle(job, reading_engines)]
    with reading_in_a_loop(tmp_path / "lake" / "carriers", "duckdb") as loop:
        for first in (5, 9, 13):
            job.land(range(first, first + 4))
            job.run()
            published.append(assert_engines_see_the_oracle(job, reading_engines))
        job.master().rollback(Session.cli(), 2)
        assert assert_engines_see_the_oracle(job, reading_engines) == published[1]
        for at in (2, 3):
            job.run()
            assert assert_engines_see_the_oracle(job, reading_engines) == published[at]
    first, second, third, fourth = published
    whole = [first, second, third, fourth, second, third, fourth]
    position = -1
    for total in loop.sums:
        position = whole.index(total, position + 1)
    assert loop.reads >= len(loop.sums) >= 2, "it read before and after something was published"
    assert job.master().verify(deep=True).problems == ()
