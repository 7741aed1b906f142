"""A frame cached between epochs: each epoch runs its own job and leaves no files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from milepost.jobmaster import JobMaster, Session
from milepost.jobspec.job.spec import SparkSpec
from milepost.spark.driver import frame_cache
from milepost.spark.driver.engines.session import open_session
from milepost.spark.driver.epoch_graph import Stage
from milepost.spark.driver.frame_cache import FrameCache
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.specs.spec_edits import edit_spec

ROWS = pa.schema([("subtask", pa.int32()), ("said", pa.string())])


@dataclass(frozen=True)
class Says:
    """Yields a row with the messages, and the content of the folder of its job's tasks."""

    what: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        context = TaskContext.get()
        assert context is not None
        folder = Path(context.getLocalProperty("milepost.tasks") or "")
        said = {"what": self.what, "folder": str(folder), "mode": folder.stat().st_mode & 0o777}
        yield pa.record_batch([[0], [json.dumps(said)]], ROWS)


def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def stages(what: str, receivers: int = 1) -> tuple[Stage, ...]:
    rows = from_arrow_schema(ROWS)
    return Stage(Says(what), rows), Stage(pass_on, rows, receivers)


@pytest.fixture
def spark() -> SparkSession:
    return open_session("frame-cache", SparkSpec(master="local[2]"))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many subtasks the frames have that were made."""
    made, make = [], frame_cache.epoch_frame

    def counted(session: SparkSession, subtasks: int, stages: list[Stage]) -> object:
        made.append(subtasks)
        return make(session, subtasks, stages)

    monkeypatch.setattr(frame_cache, "epoch_frame", counted)
    return made


def run(frames: FrameCache, what: str, receivers: int = 1) -> dict[str, object]:
    with frames.frame(1, stages(what, receivers)) as frame:
        (row,) = frame.collect()
    return dict(json.loads(row.said))


@pytest.mark.deep
def test_each_job_of_a_cached_frame_exchanges_rows_of_its_own(spark: SparkSession, made: list[int]) -> None:
    """Spark keeps what a frame has exchanged: run as it is, the second job would pass on what the first one sent."""
    frames = FrameCache(spark)
    assert [run(frames, what)["what"] for what in ("one", "two", "three")] == ["one", "two", "three"]
    assert len(made) == 1
    assert run(frames, "four", receivers=2)["what"] == "four"
    assert len(made) == 2, "another exchange is another frame"


def test_files_of_tasks_are_private_to_this_user_and_deleted_with_the_job(spark: SparkSession) -> None:
    told = run(FrameCache(spark), "one")
    assert told["mode"] == 0o700
    folder = Path(str(told["folder"]))
    assert not folder.exists()
    assert [*folder.parent.glob("tasks-*")] == []


@pytest.mark.deep
def test_one_runner_makes_one_frame_until_the_job_is_another_and_tables_equal_the_oracle(
    tmp_path: Path, made: list[int]
) -> None:
    edit = {without_quality(): "", "max_files: 4": "max_files: 2"}
    job, runner = FlightsJob.create(tmp_path / "job", edit), SparkEpochRunner()

    def run() -> None:
        JobMaster(job.load()).epochs.run(Session.cli(), runner)
        job.assert_tables_equal_the_oracle()

    for days in (range(1, 3), range(3, 5)):
        job.land(days)
        run()
    assert made == [2], "two epochs of two subtasks"
    edit_spec(job.spec_path, {"parallelism: 2": "parallelism: 1"})
    job.land(range(5, 7))
    run()
    assert made == [2, 1]
