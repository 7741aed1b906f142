"""Jobs over landed sources: records of every kind, savepoints with logs, and the job that starts from one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pyarrow as pa
from deltalake import write_deltalake

from milepost.errors import InputVoided, QualityGateFailed
from milepost.jobmaster import NothingToDo
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost_testkit.compatibility.stored_job import FIXTURE, StoredJob
from milepost_testkit.jobs.sparkless.landed_job import FEED, SPEC, LandedJob
from milepost_testkit.specs.spec_edits import edit_spec, edited

LATER = 2
ORACLE = """\
CREATE TABLE input AS SELECT k, n, "at" FROM (VALUES ROWS) AS t(k, n, "at") WHERE n < getvariable('SOURCE');
CREATE VIEW totals AS SELECT k, count(*) AS rows, sum(n)::BIGINT AS total FROM input GROUP BY k;
CREATE VIEW rows AS SELECT * FROM input;
"""
LOST = range(6, 8)
"""Rows that expired before they were landed."""

START = datetime(2026, 3, 1, tzinfo=UTC)


class FedJob(LandedJob):
    """A job over a feed in the job's own folder, so that it moves with the job."""

    def loaded(self) -> LoadedJob:
        return load_job(str(self.folder / "config" / f"{self.folder.name}.yaml"))


def _create(job: StoredJob, edits: Mapping[str, str]) -> FedJob:
    own = {"name: landed": f"name: {job.name}", "folder: FOLDER": f'folder: "${{env:{FIXTURE}}}/{job.name}"'}
    job.write_config({f"{job.name}.yaml": edited(SPEC, {**own, **edits}), "feeds.py": FEED}, "")
    (job.folder / "feed.json").write_text(json.dumps({"deleted": 0, "rows": []}))
    return FedJob(job.folder)


def land_everything(job: StoredJob) -> None:
    """A log with a gap, void records, a floor, a savepoint with its input, a new name, and a landing that failed."""
    edits = {"{last: 50}": "{last: 3}", "    event_time: at": "    event_time: at\n    land: {retain: 0s}"}
    feed = _create(job, edits)
    for keys in ((1, 2), (3, 3, 1), (2,)):
        feed.land_and_run(*keys)
    feed.produce(5, 5)
    feed.expire(2)
    feed.land()
    feed.approve_gap()
    assert feed.lost_rows == [*LOST]
    feed.land_and_run(6, 1)
    feed.produce(9, 9)
    feed.land()
    feed.go_back(10)
    feed.produce(7, 1, 2)
    feed.land()
    feed.void()
    for keys in ((), (4,), (5,)):
        feed.land_and_run(*keys)
    feed.rename("stream")
    feed.land_and_run(8)
    feed.produce(5, 5)
    feed.land()
    feed.master.savepoints.create("with-input", with_input=True)
    feed.epoch()
    _write_later(job, "stream")
    (job.folder / "feed.json").unlink()
    assert feed.land().failed


def start_elsewhere(job: StoredJob) -> None:
    """A job that starts from a savepoint of the job `landed`, which has its input."""
    origin = StoredJob(job.folder.with_name("landed"))
    feed = _create(job, {})
    shutil.copy(origin.folder / "produced.csv", job.folder)
    shutil.copy(origin.folder / "later" / "1" / "feed.json", job.folder)
    feed.master.restores.start(origin.master.find_savepoint("with-input").location)
    while not isinstance(feed.epoch(), NothingToDo):
        pass
    _write_later(job, "feed")


GATE = """quality:
  - {sink: rows, expectations: [{type: expect_column_values_to_be_between, column: k, max_value: 90}]}
"""


def accept_false_rows(job: StoredJob) -> None:
    """A job that goes on with rows that its external system has lost, and with those that a gate vetoed."""
    feed = _create(job, {"checkpointing:": f"{GATE}checkpointing:"})
    feed.land_and_run(1, 2, 3)
    feed.go_back(1)
    feed.produce(7, 7)
    feed.void()
    feed.land()
    with suppress(InputVoided):
        feed.epoch()
    feed.accept_void()
    feed.epoch()
    feed.produce(99)
    feed.land()
    with suppress(QualityGateFailed):
        feed.epoch()
    feed.master.lifecycle.resume()
    edit_spec(job.spec_path, {GATE: ""})
    feed.epoch()
    _write_later(job, "feed")
    (job.folder / "config" / "oracle.sql").write_text("")  # false rows are in no table that could be predicted


def refer_to_files(job: StoredJob) -> None:
    """A log that refers to the files of a Delta table, and copies others of its rows."""
    source = "format: delta\n    path: ../warehouse/orders"
    edits = {
        "format: python\n    source: feeds:Feed\n    options: {folder: FOLDER}": source,
        "{max_records: 2}": "{max_records: 9}",
    }
    job.write_config({f"{job.name}.yaml": edited(SPEC, {"name: landed": f"name: {job.name}", **edits})}, "")
    keys: list[int] = []
    for by in ("reference", "copy"):
        edit_spec(job.spec_path, {"    event_time: at\n": f"    event_time: at\n    land: {{by: {by}}}\n"})
        for _ in range(2):
            keys += (len(keys) % 3, 1)
            times = [START + timedelta(hours=n) for n in range(len(keys) - 2, len(keys))]
            rows = pa.table(
                {
                    "k": keys[-2:],
                    "n": pa.array(range(len(keys) - 2, len(keys)), pa.int64()),
                    "at": pa.array(times, pa.timestamp("us", "UTC")),
                }
            )
            write_deltalake(job.folder / "warehouse" / "orders", rows, mode="append", partition_by=["k"])
            report = job.master.landings.land()
            assert not report.failed, report.failed
            job.run()
        edit_spec(job.spec_path, {f"    event_time: at\n    land: {{by: {by}}}\n": "    event_time: at\n"})


def _write_later(job: StoredJob, source: str) -> None:
    """Write what the feed has before each later epoch, and the oracle of all of its rows."""
    state = json.loads((job.folder / "feed.json").read_text())
    keys = [int(key) for key in (job.folder / "produced.csv").read_text().split()]
    for number in range(1, LATER + 1):
        rows = [number, number + 1]
        place = job.folder / "later" / str(number) / "feed.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({**state, "deleted": len(keys), "rows": rows}))
        keys += rows
    times = {n: START + timedelta(hours=n) for n in range(len(keys)) if n not in LOST}
    values = ", ".join(f"({keys[n]}, {n}, TIMESTAMPTZ '{time}')" for n, time in times.items())
    (job.folder / "config" / "oracle.sql").write_text(edited(ORACLE, {"ROWS": values, "SOURCE": source}))
