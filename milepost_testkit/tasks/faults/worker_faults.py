"""Faults inside the Python workers and the exchange of a real Spark epoch, and a record of what really ran where.

The functions that an epoch ships to its workers are wrapped on the driver, so nothing in `milepost` knows of it. What
runs in a worker travels by value: a worker need not be able to import the tests.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

from milepost.protocol.exchange.barrier import AckEvent
from milepost.spark.driver import epoch_graph

cloudpickle.register_pickle_by_value(sys.modules[__name__])

Batches = Iterator[pa.RecordBatch]


@dataclass
class Part:
    """Which part of a stage: `host` before SQL, `tail` after it, `both` where a level has no SQL."""

    level: int
    part: str


@dataclass
class Execution:
    """One execution of a part of a stage by one worker.

    Attributes:
        attempt: Spark's number. ended: whether it came to its end.
        buffers: receiving subtask -> buffers sent to it.
    """

    level: int
    part: str
    subtask: int
    attempt: int
    ended: bool
    buffers: dict[str, int]


@dataclass
class KillOnce:
    """kill -9 of the worker: before the rows of this kind leave the first subtask that has some; once, by a marker.

    Attributes:
        kind: of the exchange's rows (`buffer`, `barrier`, `ack`), or None for whatever the part emits first.
    """

    level: int
    kind: str | None
    marker: str

    def __call__(self, part: Part, subtask: int, batches: Batches) -> Batches:
        for batch in batches:
            if part.level == self.level and (self.kind is None or _kind(batch) == self.kind) and self._first():
                os.kill(os.getpid(), signal.SIGKILL)
            yield batch

    def _first(self) -> bool:
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True


@dataclass
class KillFirst:
    """kill -9 of every worker that begins a stage of this level, up to this many times; the markers are in `folder`."""

    level: int
    times: int
    folder: str

    def __call__(self, part: Part, subtask: int, batches: Batches) -> Batches:
        for number in range(self.times if part.level == self.level and subtask == 0 else 0):
            if KillOnce(self.level, None, str(Path(self.folder) / f"killed-{number}"))._first():
                os.kill(os.getpid(), signal.SIGKILL)
        yield from batches


@dataclass
class KillExecutor:
    """kill -9 of the executor that runs subtask 1 of a level, with what it had shuffled, once subtask 0 has ended.

    Attributes:
        folder: location of the markers of both moments.
    """

    level: int
    folder: str

    def __call__(self, part: Part, subtask: int, batches: Batches) -> Batches:
        ended = Path(self.folder) / "ended"
        if part.level != self.level or subtask > 1:
            yield from batches
        elif subtask == 0:
            yield from batches
            ended.touch()
        else:
            for batch in batches:
                if not (Path(self.folder) / "killed").exists():
                    while not ended.exists():
                        time.sleep(0.05)
                    time.sleep(1)  # Spark hears that subtask 0 has ended
                    if KillOnce(self.level, None, str(Path(self.folder) / "killed"))._first():
                        _kill_java_above(os.getpid())
                yield batch


def _kill_java_above(pid: int) -> None:
    """kill -9 of the JVM that has started a worker, by way of its daemon."""
    while "java" not in Path(f"/proc/{pid}/exe").readlink().name:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(pid, signal.SIGKILL)


@dataclass
class TwoAttempts:
    """Sender 0 of the source level looks to receiver 1 like another attempt: same buffers, another acknowledgement."""

    def __call__(self, part: Part, subtask: int, batches: Batches) -> Batches:
        for batch in batches:
            if part.level == 0 and subtask == 0 and _kind(batch) == "ack" and batch.column("subtask")[0].as_py() == 1:
                event = AckEvent.decode(batch.column("payload")[0].as_py())
                other = replace(event, own=replace(event.own, ack={**event.own.ack, "attempt": 2}))
                index = batch.schema.get_field_index("payload")
                batch = batch.set_column(index, batch.schema.field(index), pa.array([other.encode()], pa.binary()))
            yield batch


Fault = Callable[[Part, int, Batches], Batches]


class Watched:
    """The function of one stage's part, under a fault and on record."""

    def __init__(self, inner: Callable[[Batches], Batches], part: Part, folder: str, fault: Fault | None) -> None:
        self._inner, self._part, self._folder, self._fault = inner, part, folder, fault

    def __call__(self, batches: Batches) -> Batches:
        task = TaskContext.get()
        assert task is not None
        subtask = task.partitionId()
        path = Path(self._folder) / f"{uuid4().hex}.json"
        record: dict[str, Any] = {"level": self._part.level, "part": self._part.part, "subtask": subtask}
        record |= {"attempt": task.attemptNumber(), "ended": False, "buffers": {}}
        path.write_text(json.dumps(record))
        rows = self._inner(batches)
        for batch in rows if self._fault is None else self._fault(self._part, subtask, rows):
            if _kind(batch) == "buffer":
                receiver = str(batch.column("subtask")[0].as_py())
                record["buffers"][receiver] = record["buffers"].get(receiver, 0) + batch.num_rows
            yield batch
        path.write_text(json.dumps(record | {"ended": True}))


class Workers:
    """Watches every worker of the epochs that this process runs, until the test ends."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.fault: Fault | None = None
        fused, wide_output = epoch_graph.FusedTask, epoch_graph.WideOutputStage
        wide_operators = epoch_graph.WideOperatorStage

        def watched(inner: Callable[[Batches], Batches], level: int, part: str) -> Watched:
            return Watched(inner, Part(level, part), str(folder), self.fault)

        monkeypatch.setattr(
            epoch_graph, "FusedTask", lambda h, d, t, m: watched(fused(h, d, t, m), t.plan.level, "both")
        )
        monkeypatch.setattr(
            epoch_graph,
            "WideOperatorStage",
            lambda h, d, s, m: watched(wide_operators(h, d, s, m), h.level, "operators"),
        )
        monkeypatch.setattr(
            epoch_graph, "WideOutputStage", lambda t, s, m: watched(wide_output(t, s, m), t.plan.level, "output")
        )

    def executions(self, level: int, *parts: str) -> list[Execution]:
        found = [Execution(**json.loads(path.read_text())) for path in self.folder.iterdir()]
        return [one for one in found if one.level == level and one.part in parts]

    def forget(self) -> None:
        for path in self.folder.iterdir():
            path.unlink()


def tamper_once(monkeypatch: pytest.MonkeyPatch, exchange: int, change: Callable[[DataFrame], DataFrame]) -> None:
    """Change the rows inside the n-th exchange that this process plans from now on (1 = the first); no other one."""
    original = ClassicDataFrame.repartitionById
    planned = 0

    def repartition(frame: ClassicDataFrame, *arguments: Any) -> DataFrame:
        nonlocal planned
        planned += 1
        return original(change(frame) if planned == exchange else frame, *arguments)

    monkeypatch.setattr(ClassicDataFrame, "repartitionById", repartition)


def _kind(batch: pa.RecordBatch) -> str | None:
    if "kind" not in batch.schema.names or not batch.num_rows:
        return None
    return str(batch.column("kind")[0].as_py())
