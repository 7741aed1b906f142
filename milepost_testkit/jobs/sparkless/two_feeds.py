"""A job over two feeds, `shop` and `web`, of which the first may go quiet, and the clock of its stores."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from milepost.epoch.answers import EpochRunner
from milepost.epoch.plan import SourceInput, decode_input_record
from milepost.jobmaster import CheckpointDetails, JobMaster, NothingToDo, Session
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.load.load import LoadedJob, load_job
from milepost.protocol.records.ids import CheckpointId
from milepost.storage.local.store import LocalStore
from milepost.storage.object_handles import read_handle
from milepost_testkit.jobs.backfills import back_fill

HOUR_S = 3600
FEEDS = ("shop", "web")


@dataclass
class TwoFeeds:
    """The job in a folder; a test moves its clock on.

    Attributes:
        column: of a row's number, next to its time `at`. new_runner: of each epoch's data plane. rows: all that landed.
    """

    folder: Path
    column: str
    new_runner: Callable[[], EpochRunner]
    ahead_s: float = 0.0
    rows: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def create(
        cls,
        folder: Path,
        spec: str,
        column: str,
        new_runner: Callable[[], EpochRunner],
        monkeypatch: pytest.MonkeyPatch,
    ) -> TwoFeeds:
        """Write the spec of a job `sales` whose sink `hours` has windows of an hour, and give it a clock."""
        for name in ("config", *(f"landing/{feed}" for feed in FEEDS)):
            (folder / name).mkdir(parents=True)
        (folder / "config" / "sales.yaml").write_text(spec)
        feeds = cls(folder, column, new_runner)
        real = time.time
        monkeypatch.setattr(LocalStore, "clock_ms", lambda _: round((real() + feeds.ahead_s) * 1000))
        return feeds

    def loaded(self) -> LoadedJob:
        return load_job(str(self.folder / "config" / "sales.yaml"))

    @property
    def master(self) -> JobMaster:
        return JobMaster(self.loaded())

    def land(self, feed: str, *rows: tuple[int, str]) -> None:
        folder = self.folder / "landing" / feed
        lines = [f"{self.column},at", *(f"{number},2026-01-01T{at}:00Z" for number, at in rows)]
        (folder / f"{len(list(folder.iterdir()))}.csv").write_text("\n".join(lines) + "\n")
        self.rows += rows

    def run(self) -> CheckpointDetails | NothingToDo:
        found = self.master.epochs.run(Session.cli(), self.new_runner())
        assert isinstance(found, CheckpointDetails | NothingToDo)
        return found

    def epoch(self) -> CheckpointDetails:
        found = self.run()
        assert isinstance(found, CheckpointDetails)
        return found

    def replay(self) -> None:
        """Process all recorded input again."""
        back_fill(self.master, self.new_runner(), from_checkpoint=0)

    def hours(self) -> list[int]:
        """Hours of the day whose window was emitted."""
        return sorted(start.hour for start in self.master.reports.read("hours")["window_start"].to_pylist())

    def was_idle(self, checkpoint_id: int) -> tuple[bool, bool]:
        """What the input record of a retained checkpoint says of the shop: idle before, and at its end."""
        context = JobContext(self.loaded())
        checkpoint = context.head().state.checkpoint(CheckpointId(checkpoint_id))
        assert checkpoint is not None
        record = decode_input_record(read_handle(context.store, context.metadata(checkpoint).plan))
        shop: SourceInput = next(one for one in record.sources if one.name == "shop")
        return shop.idle_before, shop.idle
