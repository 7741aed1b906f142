"""A job's frame is kept from epoch to epoch where its tasks run on this machine: Spark analyses it once.

To build the frame of an epoch takes some eighty calls to the JVM: 27 ms of the 0.2 s that a small epoch takes. Nearly
all of it is the same each time; what differs is what the tasks do. So the tasks of a kept frame read that from a file,
whose place is a property of the job that they are of. It has the credentials of stores, as what Spark sends to tasks
has: it lies in a folder that only this user can enter, and is gone when the epoch's job has ended. Tasks of another
machine, or of a Spark Connect server, are sent theirs by Spark.
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

_PLACE = "milepost.tasks"
"""Local property of a Spark job: the folder with what its tasks do, a file for each stage."""


@dataclass(frozen=True, slots=True)
class StoredTask:
    """Runs the task that lies in the file of its stage."""

    stage: int

    def __call__(self, batches: Batches) -> Batches:
        folder = current_task_context().getLocalProperty(_PLACE)
        assert folder is not None
        task = CloudPickleSerializer().loads(_file(folder, self.stage).read_bytes())
        yield from task(batches)


class KeptFrame:
    """The last frame that was made in a session, for epochs whose stages differ in their tasks alone."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._of: tuple[object, ...] = ()
        self._frame: DataFrame | None = None

    @contextmanager
    def of(self, subtasks: int, stages: Sequence[Stage]) -> Iterator[DataFrame]:
        """The frame of an epoch, as `epoch_frame` returns it, which may be run once while the block lasts.

        Raises: EnvironmentUnusable: the disk is full.
        """
        same = [replace(stage, task=StoredTask(number)) for number, stage in enumerate(stages)]
        if self._frame is None or self._of != (subtasks, same):
            self._frame, self._of = epoch_frame(self._session, subtasks, same), (subtasks, same)
        context = self._session.sparkContext
        with _stored([stage.task for stage in stages], context._temp_dir) as folder:
            context.setLocalProperty(_PLACE, folder)
            # Run under its own name, the frame would give the rows again that it exchanged the last time.
            yield self._frame.alias("epoch")


@contextmanager
def _stored(tasks: Sequence[Task], parent: str) -> Iterator[str]:
    """Give a folder that has the tasks of each stage in a file while the block lasts. Raises: EnvironmentUnusable."""
    with ExitStack() as opened:
        try:
            folder = opened.enter_context(TemporaryDirectory(prefix="tasks-", dir=parent, ignore_cleanup_errors=True))
            for number, task in enumerate(tasks):
                _file(folder, number).write_bytes(CloudPickleSerializer().dumps(task))
        except OSError as error:
            raise unusable_disk_error(
                parent,
                "take what the tasks of an epoch do",
                error,
                alternative="name a folder on another disk: `spark.local.dir` below `spark.conf`",
                now_true="Nothing was run.",
            ) from error
        yield folder


def _file(folder: str, stage: int) -> Path:
    return Path(folder, str(stage))
