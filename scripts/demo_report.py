"""The output of the demo: a live line on a terminal, otherwise plain lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.status import Status
from rich.table import Table

from scripts.airflow_home import PASSWORDS
from scripts.stack import ROOT, Stack

if TYPE_CHECKING:
    from milepost.api import CheckpointDetails, CheckpointReport

ORDER = ("trigger_checkpoint", "run_epoch", "validate", "complete_checkpoint", "notify_complete", "subsume")
QUIET_S = 5.0
"""Without a terminal, a line is printed at least this often."""


class EpochProgress:
    """The progress of one DAG run."""

    def __init__(self, console: Console, label: str, status: Status | None) -> None:
        self._console = console
        self._label = label
        self._status = status
        self._began = time.monotonic()
        self._last = ""
        self._last_at = 0.0

    def tasks(self, states: dict[str, str | None]) -> None:
        """Show the progress of the run. states: by task id."""
        now = time.monotonic()
        running = [name for name, state in states.items() if state in ("running", "queued", "up_for_retry")]
        done = sum(1 for name in ORDER if _finished(name, states))
        what = ", ".join(f"{name} {states[name]}" for name in running) or "waiting for the scheduler"
        text = f"{self._label}: {done}/{len(ORDER)} tasks, {what}"
        if self._status is not None:
            self._status.update(f"{text}, {now - self._began:.0f} s")
        elif text != self._last or now - self._last_at >= QUIET_S:
            self._console.print(f"{text}, {now - self._began:.0f} s", highlight=False, markup=False)
            self._last, self._last_at = text, now


def _finished(task_id: str, states: dict[str, str | None]) -> bool:
    own = [state for name, state in states.items() if name.split("[")[0] == task_id]
    return bool(own) and all(state in ("success", "skipped") for state in own)


class Report:
    """Everything the demo prints."""

    def __init__(self) -> None:
        terminal = sys.stdout.isatty()
        self._console = Console(highlight=False, soft_wrap=not terminal, width=None if terminal else 160)
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        self._console.print(f"[{time.monotonic() - self._began:5.0f} s] {text}", markup=False)

    def problem(self, text: str) -> None:
        print(f"\n{text}\nThe processes of the demo still run: `make status`, `make down`.", file=sys.stderr)

    @contextmanager
    def epoch(self, number: int, unread: int) -> Iterator[EpochProgress]:
        label = f"epoch {number} of this demo, {unread} objects unread"
        if self._console.is_terminal:
            with self._console.status(label) as status:
                yield EpochProgress(self._console, label, status)
        else:
            yield EpochProgress(self._console, label, None)

    def completed(self, checkpoint: CheckpointReport) -> None:
        self.say(
            f"checkpoint {checkpoint.checkpoint_id} completed: {checkpoint.rows_in:,} rows of "
            f"{checkpoint.objects} objects, {checkpoint.late_rows:,} late, watermark {checkpoint.watermark}"
        )

    def checkpoints(self, checkpoints: list[CheckpointReport]) -> None:
        table = Table(title="Checkpoints of flights, newest first")
        columns = {
            "id": "checkpoint_id", "epoch": "epoch", "status": "status", "took": "duration_ms", "rows in": "rows_in",
            "rows out": "rows_out", "late": "late_rows", "state bytes written": "checkpointed_bytes",
            "state bytes in all": "full_bytes", "watermark": "watermark", "quality": "quality",
        }  # fmt: skip
        for title in columns:
            table.add_column(title, justify="left" if title in ("status", "watermark", "quality") else "right")
        for checkpoint in checkpoints:
            table.add_row(*(_cell(name, getattr(checkpoint, name)) for name in columns.values()))
        self._console.print(table)

    def carriers(self, query: str, rows: list[dict[str, Any]]) -> None:
        """Show DuckDB's result and the query."""
        self.say(f"DuckDB reads the published Delta table from the bucket, without Milepost: {query}")
        table = Table(title="Published table `carriers`: flights and departure delay per carrier")
        for title in rows[0] if rows else ():
            table.add_column(title, justify="left" if title == "carrier" else "right")
        for row in rows:
            table.add_row(*(f"{value:.2f}" if isinstance(value, float) else f"{value}" for value in row.values()))
        self._console.print(table)

    def anomalies(self, checkpoints: list[CheckpointDetails]) -> None:
        """Print the number of duplicates and late rows in the epochs of this demo."""
        if not checkpoints:
            return
        unique = [checkpoint.operators["unique"] for checkpoint in checkpoints]
        duplicates = sum(item.rows_in - item.rows_out - item.late_rows for item in unique)
        late = sum(checkpoint.late_rows for checkpoint in checkpoints)
        rows = sum(checkpoint.rows_in for checkpoint in checkpoints)
        self.say(f"{len(checkpoints)} epochs read {rows:,} rows: {duplicates:,} duplicates dropped, {late:,} late rows")
        if late:
            self.say(
                "late are flights that landed three days after their own day, after their hour was published: "
                "the table `late_flights` has them"
            )

    def finish(self, stack: Stack, login: str, password: str, seconds: float) -> None:
        """Print the URLs and the login. The password is printed only on a terminal."""
        self.say(f"done in {seconds:.0f} s")
        url = f"{stack.airflow_url}/dags/flights__epoch"
        print(f"\nAirflow:  {url}  (tab Checkpoints: the history of the job)")
        if self._console.is_terminal:
            print(f"log in:   {login} / {password}")
        else:
            print(f"log in:   {login}; the password is shown on a terminal, and is in {stack.home / PASSWORDS}")
        print(f"command line, from {ROOT}:")
        print(f"  export MILEPOST_S3_ENDPOINT={stack.s3_url}")
        print("  export AWS_ACCESS_KEY_ID=milepost AWS_SECRET_ACCESS_KEY=milepost-on-loopback")
        print("  .venv/bin/milepost list flights")
        print("again:    make demo  (lands the next days)      stop:  make down")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "duration_ms":
        return f"{value / 1000:.1f} s"
    return f"{value:,}" if isinstance(value, int) and name not in ("checkpoint_id", "epoch") else str(value)
