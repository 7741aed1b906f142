"""What every system that is compared can do, and the folders it is given."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.workloads.workloads import Workload

PARALLELISM = 2
"""Cores and tasks of every system."""

OUTPUT, CHECKPOINTS = "output", "checkpoints"
"""Folders of a system."""

PAUSED_SPARK = {"spark.network.timeout": "3600s", "spark.executor.heartbeatInterval": "600s"}
"""Settings of a Spark that is paused while others have their turn: a pause is no lost executor."""


@dataclass(frozen=True, slots=True)
class Folders:
    """Where a system works.

    Attributes:
        work: its own folder, empty at the start.
        landing: watched for input: one complete sub-folder per epoch appears there atomically.
    """

    work: Path

    @property
    def landing(self) -> Path:
        return self.work / "landing"

    @property
    def output(self) -> Path:
        """Location of the published table."""
        return self.work / OUTPUT

    @property
    def checkpoints(self) -> Path:
        return self.work / CHECKPOINTS

    def static(self, name: str) -> Path:
        """Location of a static table."""
        return self.work / name

    def is_kept(self, path: Path) -> bool:
        """Whether a file is part of what a system keeps: its checkpoints and its table."""
        return self.output in path.parents or self.checkpoints in path.parents

    def epoch(self, number: int) -> Path:
        """The landed files of one epoch."""
        return self.landing / f"epoch-{number:05d}"


class NotAsked(ValueError):
    """A system was asked for a measurement that it does not support."""


class System(Protocol):
    """One way to run the epochs of a workload, in a process of its own that is paused while the others run."""

    def prepare(self, workload: Workload, folders: Folders) -> None:
        """Start what stays up between epochs. Not timed."""

    def stage(self, source: Path, target: Path) -> None:
        """Make the folder `target` with an epoch's rows, in the form that this system reads. Not timed."""

    def epoch(self, number: int) -> None:
        """Process what has just landed, until its result is published and durable. Timed."""

    def figures(self, number: int) -> dict[str, Any]:
        """What the system says of the epoch that ended; `state_bytes` is what it wrote for state. Not timed."""

    def probe(self, name: str) -> dict[str, Any]:
        """Return a measurement that only some systems support. Raises NotAsked."""

    def result_sql(self) -> str:
        """DuckDB SQL for the rows that are published now, with the workload's result columns."""

    def versions(self) -> dict[str, str]:
        """Of everything that does the work."""

    def close(self) -> None:
        """Stop what was started."""


class Written:
    """Sizes of files that appeared since the last scan. Files that were deleted again meanwhile do not count."""

    def __init__(self, folder: Path, counts: Callable[[Path], bool]) -> None:
        self._folder = folder
        self._counts = counts
        self._seen: set[Path] = set()

    def figures(self, name: str) -> dict[str, int]:
        """Return bytes and number of the new files, and how many there are in all."""
        before = self._seen
        size = self.new_bytes()
        return {f"{name}_bytes": size, f"{name}_objects": len(self._seen - before), f"{name}_kept": len(self._seen)}

    def new_bytes(self) -> int:
        """Bytes of the files that were not there at the last look; Hadoop's local checksum files are left out.

        The system may meanwhile delete subsumed files, so missing ones are skipped.
        """
        found: set[Path] = set()
        size = 0
        for folder, _, names in os.walk(self._folder):
            for path in (Path(folder, name) for name in names):
                if path.suffix == ".crc" or not self._counts(path):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    size += 0 if path in self._seen else path.stat().st_size
                    found.add(path)
        self._seen = found
        return size


class Volumes:
    """What a system writes between two looks: its state, what it publishes, and all that it keeps."""

    def __init__(self, folders: Folders, state: Path, publishes: Callable[[Path], bool]) -> None:
        self._state = Written(state, lambda path: True)
        self._output = Written(folders.output, publishes)
        self._all = Written(folders.work, folders.is_kept)

    def figures(self) -> dict[str, Any]:
        return {
            "state_bytes": self._state.new_bytes(),
            "output_bytes": self._output.new_bytes(),
            "all_bytes": self._all.new_bytes(),
        }


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder, including those that no reader uses any longer."""
    return Written(folder, lambda path: True).new_bytes()


def is_data(path: Path) -> bool:
    """Whether a file belongs to a table's rows or deletes; otherwise it is part of the format's log."""
    return not {"_delta_log", "metadata"} & set(path.parts)


def link_files(source: Path, target: Path) -> None:
    """Make a folder with the files of another one, without copying them."""
    target.mkdir()
    for file in source.iterdir():
        (target / file.name).hardlink_to(file)
