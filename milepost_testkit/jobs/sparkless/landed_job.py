"""A job over a landed source whose external system deletes what was acknowledged, and may go back. No Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from milepost.jobmaster import (
    AppendedGap,
    AppendedVoid,
    BackfillResult,
    CheckpointReport,
    JobMaster,
    LandingReport,
    NothingToDo,
    Session,
)
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.protocol.landed.records import LogPosition, LogRecord
from milepost.protocol.landed.voids import live_records
from milepost.protocol.records.ids import CheckpointId
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edited

SPEC = """\
name: landed
storage: ../store
sources:
  feed:
    format: python
    source: feeds:Feed
    options: {folder: FOLDER}
    schema: {k: int64, n: int64, at: "timestamp[us, UTC]"}
    event_time: at
    limits_per_epoch: {max_records: 2}
operators:
  - {uid: totals, kind: aggregate, inputs: [feed], key: [k], aggregates: {rows: count(*), total: sum(n)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
  - {name: rows, input: feed, format: parquet, path: ../lake/rows, mode: append}
checkpointing: {retained: {last: 50}, timeout: 10m}
"""

FEED = '''\
"""Rows of a file, which `commit` deletes up to where they were acknowledged.

`lives` has the first row of each life after the first one. A position names the life of the row before it.
"""

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from milepost.api import PositionExpired, SourceWentBack

START = datetime(2026, 3, 1, tzinfo=timezone.utc)


class Feed(DataSource):
    def streamReader(self, schema):
        return Reader(Path(self.options["folder"]) / "feed.json")


class Range(InputPartition):
    def __init__(self, first, end):
        self.first, self.end = first, end


class Reader(DataSourceStreamReader):
    def __init__(self, path):
        self.path = path

    def state(self):
        return json.loads(self.path.read_text())

    def initialOffset(self):
        return self.bounds()[0]

    def latestOffset(self):
        return self.bounds()[1]

    def position(self, end, lives):
        life = max((number for number, first in enumerate(lives, 1) if first < end), default=0)
        return {"next": end, "life": life} if life else {"next": end}

    def bounds(self):
        state = self.state()
        first, lives = state["deleted"], state.get("lives", [])
        return self.position(first, lives), self.position(first + len(state["rows"]), lives)

    def partitions(self, start, end):
        self.require_reached(start)
        earliest, latest = self.bounds()
        if start["next"] < earliest["next"]:
            raise PositionExpired(f"rows before {earliest['next']} were deleted", earliest=earliest, latest=latest)
        middle = (start["next"] + end["next"]) // 2
        return [Range(start["next"], middle), Range(middle, end["next"])]

    def read(self, partition):
        state = self.state()
        for n in range(partition.first, partition.end):
            yield (state["rows"][n - state["deleted"]], n, START + timedelta(hours=n))

    def require_reached(self, position):
        earliest, latest = self.bounds()
        is_there = position["next"] <= latest["next"]
        if not is_there or position != self.position(position["next"], self.state().get("lives", [])):
            raise SourceWentBack(f"there are {latest['next']} rows", earliest=earliest, latest=latest)

    def commit(self, end):
        self.require_reached(end)
        state = self.state()
        count = max(0, end["next"] - state["deleted"])
        self.path.write_text(json.dumps({**state, "deleted": state["deleted"] + count, "rows": state["rows"][count:]}))
'''


@dataclass(frozen=True)
class LandedJob:
    """A job under `folder`: `config/landed.yaml` with `feeds.py`, `store/`, `lake/`, and `feed.json` of its source."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, edit: Mapping[str, str] | None = None) -> LandedJob:
        """Write the spec; `edit` replaces texts that must occur in it."""
        (folder / "config").mkdir(parents=True)
        spec = edited(SPEC, {"FOLDER": json.dumps(str(folder)), **(edit or {})})
        (folder / "config" / "landed.yaml").write_text(spec)
        (folder / "config" / "feeds.py").write_text(FEED)
        (folder / "feed.json").write_text(json.dumps({"deleted": 0, "rows": []}))
        return cls(folder)

    @property
    def source(self) -> str:
        """The name of the source. Its log is stored as feed, whatever that is."""
        (name,) = self.loaded().spec.landed
        return name

    def rename(self, name: str) -> None:
        """Give the source another name, with its present one as `renamed_from`."""
        spec, former = self.folder / "config" / "landed.yaml", self.source
        lines = [line for line in spec.read_text().splitlines(True) if "renamed_from" not in line]
        texts = {
            f"  {former}:\n    format: python": f"  {name}:\n    renamed_from: {former}\n    format: python",
            f"inputs: [{former}]": f"inputs: [{name}]",
            f"input: {former},": f"input: {name},",
        }
        spec.write_text(edited("".join(lines), texts))

    @property
    def is_renamed(self) -> bool:
        """Whether the source has a `renamed_from`."""
        return "renamed_from" in (self.folder / "config" / "landed.yaml").read_text()

    def forget_rename(self) -> None:
        """Remove `renamed_from`, as its refusal says for a job that has no log of that name."""
        spec = self.folder / "config" / "landed.yaml"
        lines = spec.read_text().splitlines(True)
        spec.write_text("".join(line for line in lines if "renamed_from" not in line))

    def produce(self, *keys: int) -> None:
        """Add rows with these keys to the external system."""
        state = self._feed
        self._write({**state, "rows": [*state["rows"], *keys]})
        with (self.folder / "produced.csv").open("a") as file:
            file.writelines(f"{key}\n" for key in keys)

    def expire(self, count: int) -> None:
        """Delete the oldest rows of the external system. Those that are not in the log are lost."""
        state = self._feed
        deleted = state["deleted"] + min(count, len(state["rows"]))
        self._write({**state, "deleted": deleted, "rows": state["rows"][count:], "expired": deleted})

    def go_back(self, to: int) -> None:
        """Lose all rows from `to` on, as a failover to a replica that has not deleted what was acknowledged.

        Rows that expired stay deleted. `produced.csv` has the rows of this life, `produced-N.csv` those of life N.
        """
        state = self._feed
        produced, first, lives = self.folder / "produced.csv", state.get("expired", 0), state.get("lives", [])
        shutil.copy(produced, self.folder / f"produced-{len(lives)}.csv")
        keys = [int(key) for key in produced.read_text().split()][: max(to, first)]
        produced.write_text("".join(f"{key}\n" for key in keys))
        self._write({**state, "deleted": first, "rows": keys[first:], "lives": [*lives, len(keys)]})

    @property
    def _feed(self) -> dict[str, Any]:
        return json.loads((self.folder / "feed.json").read_text())

    def _write(self, state: dict[str, Any]) -> None:
        (self.folder / "feed.json").write_text(json.dumps(state))

    @property
    def life(self) -> int:
        """How often the external system has gone back."""
        return len(self._feed.get("lives", []))

    @property
    def newest(self) -> LogRecord | None:
        """The newest record of the log."""
        newest = self.context.source_log(self.source).newest()
        return None if newest is None else newest.record

    @property
    def landed_end(self) -> int | None:
        """Number of the row from which the next landing reads; None: nothing was landed yet."""
        newest = self.newest
        return None if newest is None else int(newest.end["next"])

    @property
    def is_expired(self) -> bool:
        """Whether the external system no longer has what follows the log."""
        end = self.landed_end
        return end is not None and not self.is_false and end < self._feed["deleted"]

    @property
    def is_false(self) -> bool:
        """Whether the external system has gone back to before the end of the log."""
        newest, feed = self.newest, self._feed
        if newest is None:
            return False
        end, lives = newest.end["next"], feed.get("lives", [])
        life = max((number for number, first in enumerate(lives, 1) if first < end), default=0)
        return end > feed["deleted"] + len(feed["rows"]) or newest.end.get("life", 0) != life

    @property
    def lost_rows(self) -> list[int]:
        """Numbers of the rows that the log passes in gaps, as of the newest record.

        Gaps below the floor may be deleted, so their rows are stored in a file. Read it before an epoch trims them.
        """
        path, log = self.folder / "lost.json", self.context.source_log(self.source)
        lost = json.loads(path.read_text()) if path.exists() else []
        newest = log.newest()
        if newest is not None:
            voids, first = newest.record.voids, log.first(newest)
            records = [item.record for item in live_records(log.since(None, newest), voids)]
            begin = records[0].start["next"] if records else 0
            gaps = [range(item.start["next"], item.end["next"]) for item in records if item.gap is not None]
            before = [row for row in lost if row < begin] if first > 1 else [*range(begin)]
            lost = [*before, *(row for gap in gaps for row in gap)]
            path.write_text(json.dumps(lost))
        return lost

    def approve_gap(self, resume_from: str = "earliest") -> AppendedGap:
        """Plan and approve a gap in the log."""
        return self.master.gaps.approve(self.master.gaps.plan(self.source, resume_from).approved, "by a test")

    def void(self, void_from: str = "auto") -> AppendedVoid:
        """Plan and approve that records of the log are void."""
        return self.master.voids.approve(self.master.voids.plan(self.source, void_from).approved, "by a test")

    def accept_void(self) -> AppendedVoid:
        """Plan and approve that the live head goes on with its false rows."""
        return self.master.voids.approve(self.master.voids.plan_acceptance(self.source).approved, "by a test")

    @property
    def left(self) -> int:
        """Number of rows that the external system still has."""
        return len(self._feed["rows"])

    def loaded(self) -> LoadedJob:
        return load_job(str(self.folder / "config" / "landed.yaml"))

    @property
    def context(self) -> JobContext:
        return JobContext(self.loaded())

    @property
    def master(self) -> JobMaster:
        return JobMaster(self.loaded())

    def land(self) -> LandingReport:
        return self.master.landings.land()

    def epoch(self, **options: Any) -> CheckpointReport | NothingToDo:
        return self.master.epochs.run(Session.cli(), SparklessRunner(), **options)

    def land_and_run(self, *keys: int, **options: Any) -> int:
        """Produce, land and process rows in one epoch, with options of `Epochs.run`. Returns the checkpoint."""
        self.produce(*keys)
        self.land()
        result = self.epoch(**options)
        assert not isinstance(result, NothingToDo), result
        return int(result.checkpoint_id)

    def roll_back(self, to: int) -> None:
        roll_back(self.master, to)

    def backfill(self, **options: Any) -> BackfillResult:
        return back_fill(self.master, SparklessRunner(), **options)

    def position(self, checkpoint_id: int | None = None) -> LogPosition | None:
        """How far a checkpoint, or the head, has read the log."""
        context, state = self.context, self.context.head().state
        base = context.base_metadata(
            state, state.timeline().head if checkpoint_id is None else CheckpointId(checkpoint_id)
        )
        return None if base is None else base.log_position(context.stored_name(self.source))

    def assert_tables(
        self, rows: int, since: int = 0, life: int | None = None, lost: Sequence[int] | None = None
    ) -> None:
        """Both tables are what DuckDB says after the first rows that were produced and not lost, without `since`.

        Args:
            life: of the external system, whose rows they are; None: the current one. lost: None: those of now.
        """
        numbered = (
            "SELECT k, row_number() OVER () - 1 AS n FROM read_csv($file, header = false, columns = {'k': 'BIGINT'})"
        )
        has = f"SELECT * FROM ({numbered}) WHERE NOT list_contains($lost::BIGINT[], n)"
        produced = f"{has} ORDER BY n LIMIT $rows OFFSET $since"
        name = "produced.csv" if life is None or life == self.life else f"produced-{life}.csv"
        files = {"file": str(self.folder / name), "lost": [*(self.lost_rows if lost is None else lost)]}
        parameters = {**files, "rows": rows - since, "since": since}
        totals = f"SELECT k, count(*) AS rows, CAST(sum(n) AS BIGINT) AS total FROM ({produced}) GROUP BY k ORDER BY k"
        wanted: pa.Table = duckdb.sql(totals, params=parameters).to_arrow_table()
        assert self.master.reports.read("totals").select(["k", "rows", "total"]).sort_by("k").to_pylist() == (
            wanted.to_pylist()
        )
        landed: pa.Table = duckdb.sql(produced, params=parameters).to_arrow_table()
        assert self.master.reports.read("rows").select(["k", "n"]).sort_by("n").to_pylist() == landed.to_pylist()
