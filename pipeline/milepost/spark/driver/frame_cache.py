"""Cache a job's DataFrame between epochs, so that Spark analyses it once.

Building the frame takes about 80 calls to the JVM: 27 ms of the 0.2 s of a small epoch. Only the pickled tasks differ
between epochs. So the tasks of a cached frame read their code from files, in a folder named by a local property of the
Spark job.

The files hold the credentials of stores, as the tasks that Spark sends do. The folder is readable by this user only,
and is deleted when the epoch's job ends. Tasks on other machines, or on a Spark Connect server, are sent by Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.serializers import CloudPickleSerializer
from pyspark.sql import DataFrame, SparkSession

from milepost.protocol.records import unusable_disk_error
from milepost.spark.driver.epoch_graph import Stage, Task, epoch_frame
from milepost.spark.task.epoch_tasks import Batches
from milepost.spark.worker.task_context import current_task_context

_FOLDER_PROPERTY = "milepost.tasks"
"""Local property of a Spark job: the folder of its pickled tasks, one file per stage (`0`, `1`, ...)."""


@dataclass(frozen=True, slots=True)
class StoredTask:
    """Run the task that is stored in the file of its stage."""

    stage: int

    def __call__(self, batches: Batches) -> Batches:
        folder = current_task_context().getLocalProperty(_FOLDER_PROPERTY)
        assert folder is not None
        task = CloudPickleSerializer().loads(_file(folder, self.stage).read_bytes())
        yield from task(batches)


class FrameCache:
    """The last frame built in a session. Epochs whose stages differ only in their tasks reuse it."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._cached_stages: tuple[object, ...] = ()
        self._frame: DataFrame | None = None

    @contextmanager
    def frame(self, subtasks: int, stages: Sequence[Stage]) -> Iterator[DataFrame]:
        """Yield the frame of an epoch, as `epoch_frame` returns it. It may be run once, within the block.

        Raises:
            EnvironmentUnusable: the disk is full.
        """
        stored = [replace(stage, task=StoredTask(number)) for number, stage in enumerate(stages)]
        if self._frame is None or self._cached_stages != (subtasks, stored):
            self._frame, self._cached_stages = epoch_frame(self._session, subtasks, stored), (subtasks, stored)
        context = self._session.sparkContext
        with _stored([stage.task for stage in stages], context._temp_dir) as folder:
            context.setLocalProperty(_FOLDER_PROPERTY, folder)
            # Without a new alias, Spark would reuse the shuffle files of the frame's previous run.
            yield self._frame.alias("epoch")


@contextmanager
def _stored(tasks: Sequence[Task], parent: str) -> Iterator[str]:
    """Yield a folder with one file per stage, deleted at the end of the block.

    Raises:
        EnvironmentUnusable: the disk is full.
    """
    with ExitStack() as opened:
        try:
            folder = opened.enter_context(TemporaryDirectory(prefix="tasks-", dir=parent, ignore_cleanup_errors=True))
            for number, task in enumerate(tasks):
                _file(folder, number).write_bytes(CloudPickleSerializer().dumps(task))
        except OSError as error:
            raise unusable_disk_error(
                parent,
                "store the tasks of an epoch",
                error,
                alternative="name a folder on another disk: `spark.local.dir` below `spark.conf`",
                now_true="Nothing was run.",
            ) from error
        yield folder


def _file(folder: str, stage: int) -> Path:
    return Path(folder, str(stage))
