"""A job over a landed source whose external system deletes what was acknowledged. No Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from milepost.jobmaster import (
    AppendedGap,
    BackfillResult,
    CheckpointReport,
    JobMaster,
    LandingReport,
    NothingToDo,
    Session,
)
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.protocol.landed.records import LogPosition
from milepost.protocol.records.ids import CheckpointId
from milepost.storage.log.source_log import SourceLog
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
"""Rows of a file, which `commit` deletes up to where they were acknowledged."""

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
        return {"next": self.state()["deleted"]}

    def latestOffset(self):
        state = self.state()
        return {"next": state["deleted"] + len(state["rows"])}

    def bounds(self):
        state = self.state()
        return {"next": state["deleted"]}, {"next": state["deleted"] + len(state["rows"])}

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
        if position["next"] > latest["next"]:
            raise SourceWentBack(f"there are {latest['next']} rows", earliest=earliest, latest=latest)

    def commit(self, end):
        self.require_reached(end)
        state = self.state()
        count = max(0, end["next"] - state["deleted"])
        state = {"deleted": state["deleted"] + count, "rows": state["rows"][count:]}
        self.path.write_text(json.dumps(state))
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

    def produce(self, *keys: int) -> None:
        """Add rows with these keys to the external system."""
        state = json.loads((self.folder / "feed.json").read_text())
        state["rows"] += keys
        (self.folder / "feed.json").write_text(json.dumps(state))
        with (self.folder / "produced.csv").open("a") as file:
            file.writelines(f"{key}\n" for key in keys)

    def expire(self, count: int) -> None:
        """Delete the oldest rows of the external system. Those that are not in the log are lost."""
        state = json.loads((self.folder / "feed.json").read_text())
        end = self.landed_end
        first = state["deleted"] if end is None else max(end, state["deleted"])
        lost = [*self.lost_rows, *range(first, state["deleted"] + min(count, len(state["rows"])))]
        (self.folder / "lost.json").write_text(json.dumps(lost))
        state = {"deleted": state["deleted"] + min(count, len(state["rows"])), "rows": state["rows"][count:]}
        (self.folder / "feed.json").write_text(json.dumps(state))

    @property
    def landed_end(self) -> int | None:
        """Number of the row from which the next landing reads; None: nothing was landed yet."""
        newest = SourceLog(self.context.store, "feed").newest()
        return None if newest is None else int(newest.record.end["next"])

    @property
    def is_expired(self) -> bool:
        """Whether the external system no longer has what follows the log."""
        end = self.landed_end
        return end is not None and end < json.loads((self.folder / "feed.json").read_text())["deleted"]

    @property
    def lost_rows(self) -> list[int]:
        """Numbers of the rows that were deleted before they were landed."""
        path = self.folder / "lost.json"
        return json.loads(path.read_text()) if path.exists() else []

    def approve_gap(self, resume_from: str = "earliest") -> AppendedGap:
        """Plan and approve a gap in the log."""
        return self.master.gaps.approve(self.master.gaps.plan(self.source, resume_from).approved, "by a test")

    @property
    def left(self) -> int:
        """Number of rows that the external system still has."""
        return len(json.loads((self.folder / "feed.json").read_text())["rows"])

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

    def epoch(self) -> CheckpointReport | NothingToDo:
        return self.master.epochs.run(Session.cli(), SparklessRunner())

    def land_and_run(self, *keys: int) -> int:
        """Produce, land and process rows in one epoch. Returns the checkpoint."""
        self.produce(*keys)
        self.land()
        result = self.epoch()
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
        return None if base is None else base.log_position("feed")

    def assert_tables(self, rows: int, since: int = 0) -> None:
        """Both tables are what DuckDB says after the first rows that were produced and not lost, without `since`."""
        numbered = (
            "SELECT k, row_number() OVER () - 1 AS n FROM read_csv($file, header = false, columns = {'k': 'BIGINT'})"
        )
        has = f"SELECT * FROM ({numbered}) WHERE NOT list_contains($lost::BIGINT[], n)"
        produced = f"{has} ORDER BY n LIMIT $rows OFFSET $since"
        files = {"file": str(self.folder / "produced.csv"), "lost": self.lost_rows}
        parameters = {**files, "rows": rows - since, "since": since}
        totals = f"SELECT k, count(*) AS rows, CAST(sum(n) AS BIGINT) AS total FROM ({produced}) GROUP BY k ORDER BY k"
        wanted: pa.Table = duckdb.sql(totals, params=parameters).to_arrow_table()
        assert self.master.reports.read("totals").select(["k", "rows", "total"]).sort_by("k").to_pylist() == (
            wanted.to_pylist()
        )
        landed: pa.Table = duckdb.sql(produced, params=parameters).to_arrow_table()
        assert self.master.reports.read("rows").select(["k", "n"]).sort_by("n").to_pylist() == landed.to_pylist()
