"""Two jobs over the same landed files: one whose savepoints are taken, and another one that starts from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from milepost.jobmaster import Session
from milepost.jobmaster.leadership.outcomes import CheckpointCopy
from milepost.jobmaster.savepoints.listed import ListedSavepoint
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.protocol.records.layout import SAVEPOINT_DOCUMENT
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.specs.spec_edits import edited

SINKS = ("table", "seen")


@dataclass(frozen=True)
class OtherJob(SparklessJob):
    """The counted job under another name, with another parallelism and tables of its own, over the same landing."""

    @classmethod
    def beside(cls, job: CountedJob, edit: Mapping[str, str] | None = None) -> OtherJob:
        edits = {"name: small": "name: other", "../lake/": "../lake/other-", **(edit or {})}
        text = edited(job.spec_path.read_text(), edits)
        other = cls(job.small.folder)
        other.spec_path.write_text(text + "spark: {parallelism: 3}\n")
        return other

    @property
    def spec_path(self) -> Path:
        return self.folder / "config" / "other.yaml"

    def loaded(self) -> LoadedJob:
        return load_job(str(self.spec_path))

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            self.master.epochs.run(Session.cli(), SparklessRunner())

    def assert_equals(self, job: CountedJob) -> None:
        """Both tables, and all state, are those of the other job."""
        for sink in SINKS:
            assert_same_rows(self.master.reports.read(sink), job.master.reports.read(sink), sink)
        for uid in ("latest", "unique"):
            assert_same_rows(self.master.reports.state(uid), job.master.reports.state(uid), uid)


def moved(result: CheckpointCopy | ListedSavepoint, to: Path) -> str:
    """Copy a savepoint's folder to where nothing else is; returns its location."""
    shutil.copytree(str(result.location).removeprefix("file://"), to)
    return f"file://{to}"


def tampered(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Rewrite a savepoint's document."""
    path = folder / SAVEPOINT_DOCUMENT
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))


def stored(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
