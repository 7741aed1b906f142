"""An example job over generated data: whatever its history, its tables are DuckDB's answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import duckdb
import yaml

from milepost.epoch.answers import EpochRunner
from milepost.jobmaster import CheckpointReport, JobMaster, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.specs.examples import EXAMPLES

Tables: TypeAlias = Mapping[str, str | None]
"""Sink -> the query that gives its rows, or some of their columns, one at least from the third lot on; None: none."""

_BEGIN_US = 1_772_352_000_000_000
_EPOCH_US = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Lot:
    """What lands before one epoch: so many numbered rows, over an hour of event time that follows the last one's."""

    epoch: int
    rows: int
    seed: int

    @property
    def name(self) -> str:
        return f"{self.epoch:04}"

    @property
    def numbers(self) -> str:
        """Rows of one column `i`, which no other lot has; `hash(i, …)` is as random as the seed says."""
        first = self.seed * 10_000_000_000 + self.epoch * self.rows
        return f"(SELECT range AS i FROM range({first}, {first + self.rows}))"

    def time_us(self, number: str) -> str:
        """Return the event time of a row by its number, microseconds since 1970."""
        first = self.seed * 10_000_000_000 + self.epoch * self.rows
        begin_us = _BEGIN_US + self.epoch * _EPOCH_US
        return f"({begin_us} + ({number} - {first}) * {_EPOCH_US // self.rows})"


@dataclass(frozen=True, slots=True)
class ExampleJob:
    """One example.

    Attributes:
        name: of its spec. land: writes a lot below the spec's folder.
        tables: DuckDB's answer for every sink, once all lots of a list were read.
    """

    name: str
    land: Callable[[Path, Lot], None]
    tables: Callable[[duckdb.DuckDBPyConnection, Path, list[Lot]], Tables]


@dataclass
class ExampleRun:
    """One example's life in a folder; what it has read is checked after each act.

    Attributes:
        read: the lots that the head has read. checkpoints: of each number of lots, the checkpoint that had read them.
    """

    job: ExampleJob
    folder: Path
    runner: EpochRunner
    rows: int
    seed: int
    landed: list[Lot] = field(default_factory=list)
    read: list[Lot] = field(default_factory=list)
    checkpoints: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.specs = self.folder / "config"
        self.specs.mkdir(parents=True)
        spec = yaml.safe_load((EXAMPLES / f"{self.job.name}.yaml").read_text())
        for source in spec["sources"].values():
            source["settle"] = "0s"
        self.spec = self.specs / f"{self.job.name}.yaml"
        self.spec.write_text(yaml.safe_dump(spec, sort_keys=False))
        for folder in (one for one in EXAMPLES.iterdir() if one.is_dir()):
            for inner in (folder, *(one for one in folder.rglob("*") if one.is_dir())):
                (self.specs / inner.relative_to(EXAMPLES)).mkdir()
        self.connection = duckdb.connect()
        self.connection.execute("SET TimeZone = 'UTC'")

    @property
    def master(self) -> JobMaster:
        return JobMaster(load_job(str(self.spec)))

    def live(self, epochs: int) -> Iterator[str]:
        """Run so many epochs, with a rollback by two of them and a backfill in the middle; yield what was done."""
        for number in range(1, epochs + 1):
            yield self.epoch()
            if number == epochs // 2:
                yield self.rollback(max(1, number - 2))
            if number == epochs * 7 // 10:
                yield self.backfill(max(self.checkpoints[read] for read in self.checkpoints if read <= number // 2))

    def epoch(self) -> str:
        """Land one more lot, and read all that was not read."""
        self.landed.append(Lot(len(self.landed) + 1, self.rows, self.seed))
        self.job.land(self.specs, self.landed[-1])
        done = self.master.epochs.run(Session.cli(), self.runner)
        assert isinstance(done, CheckpointReport), "an epoch has input"
        self.read = list(self.landed)
        self.checkpoints[len(self.read)] = done.checkpoint_id
        self.check()
        return f"epoch {done.checkpoint_id}: {done.rows_in:,} rows in {done.duration_ms / 1000:.1f} s"

    def rollback(self, read: int) -> str:
        """Go back to the checkpoint that had read so many lots."""
        roll_back(self.master, self.checkpoints[read])
        self.read = self.landed[:read]
        self.checkpoints = {count: one for count, one in self.checkpoints.items() if count <= read}
        self.check()
        return f"rolled back to checkpoint {self.checkpoints[read]}"

    def backfill(self, checkpoint: int) -> str:
        """Read what came after a checkpoint again, and let the tables follow."""
        back_fill(self.master, self.runner, from_checkpoint=checkpoint)
        self.check()
        return f"backfilled from checkpoint {checkpoint}"

    def check(self) -> None:
        """Hold every table against DuckDB's answer from the files themselves. Raises AssertionError."""
        master, wanted = self.master, self.job.tables(self.connection, self.specs, self.read)
        assert set(wanted) == {sink.name for sink in load_job(str(self.spec)).spec.sinks}
        for sink, query in wanted.items():
            if query is None:
                assert not master.reports.read(sink).num_rows, f"{self.job.name}, table {sink} has rows"
                continue
            expected = self.connection.sql(query)
            self.connection.register("shown", master.reports.read(sink).select(expected.columns))
            both = f"SELECT *, 1 AS more FROM shown UNION ALL SELECT *, -1 FROM ({query})"
            differing = f"SELECT sum(more) AS more, * EXCLUDE (more) FROM ({both}) GROUP BY ALL HAVING sum(more) <> 0"
            found = self.connection.sql(differing).limit(5).fetchall()
            assert not found, f"{self.job.name}, table {sink}, of which one side has more: {found}"
            if len(self.read) > 2:
                assert self.connection.sql(query).limit(1).fetchall(), f"{sink} shows nothing"
