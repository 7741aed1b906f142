"""The flights job on a cluster: each epoch reads two objects, and compacts a table in its tasks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from milepost_testkit.commands.milepost_cli import Outcome
from milepost_testkit.jobs.connected_job import ConnectedJob
from milepost_testkit.servers.s3_servers import Seaweed
from milepost_testkit.specs.spec_edits import edit_spec, edited

SMALL = {"milepost.epoch.gate_shares.DRIVER_ROWS": 0, "milepost.sinks.staging.compaction.COMPACT_FILES": 1}
"""Constants of the driver: with these a small table is judged in tasks, and compacted by each epoch."""

GATE = """\
quality:
  - sink: hourly
    expectations: [{type: expect_column_values_to_not_be_null, column: origin, severity: critical}]
"""

Matches = Callable[[str, str], bool]


def _is_staged(path: str) -> bool:
    """Whether it is a file of rows of a Delta table, and none of the table's log."""
    return "/hourly/" in path and "/_delta_log/" not in path and path.endswith(".parquet")


PHASES: dict[str, Matches] = {
    "reading the source": lambda method, path: method == "GET" and "/flights/2013" in path,
    "sent to the first level": lambda method, path: method == "PUT" and "/metrics/0-" in path,
    "sent to the second level": lambda method, path: method == "PUT" and "/metrics/1-" in path,
    "state of the first level uploaded": lambda method, path: method == "PUT" and "/state/unique/" in path,
    "state of the second level uploaded": lambda method, path: method == "PUT" and "/state/carriers/" in path,
    "a table compacted": lambda method, path: method == "GET" and "/carriers/" in path and path.endswith(".parquet"),
    "sinks staged": lambda method, path: method == "PUT" and _is_staged(path),
    "judged": lambda method, path: method == "GET" and _is_staged(path),
}
"""By what a task asks of the storage then, in the order of an epoch; sinks are staged while state is uploaded."""

DRIVER_PHASES: dict[str, Matches] = {
    "triggered": lambda method, path: method == "PUT" and path.endswith("/_heartbeat"),
    "completed": lambda method, path: method == "PUT" and "/marks/" in path,
    "cleaned up": lambda method, path: method == "PUT" and path.endswith("/after-run.json"),
}
"""By what the driver asks of the storage then, in the order of an epoch."""

COMMIT: Matches = lambda method, path: method == "PUT" and path.endswith("/_metadata")  # noqa: E731
"""By what the driver asks when all tasks are done."""


@dataclass(frozen=True)
class ClusteredFlights(ConnectedJob):
    """Days land two by two.

    Attributes:
        days: that have landed.
    """

    days: list[int] = field(default_factory=list)

    @classmethod
    def on(cls, folder: Path, server: Seaweed, spark: str) -> ClusteredFlights:
        """Write the spec. Args: spark: the section of this name without its end."""
        job = cls.connected(folder, server, spark)
        assert isinstance(job, cls)
        edit = {"max_files: 4": "max_files: 2", "carriers, format: delta": "carriers, format: parquet"}
        edit |= {"    event_time:": "    settle: 0s\n    event_time:", "10m}": "10m, tolerable_failures: 9}"}
        edit_spec(job.spec_path, edit)
        return job

    def add_gate(self) -> None:
        """Let the epochs from now on have a gate."""
        spec = self.spec_path.read_text()
        if GATE not in spec:
            self.spec_path.write_text(edited(spec, {"checkpointing:": f"{GATE}\ncheckpointing:"}))

    def set_timeout(self, timeout: str) -> None:
        """Let the epochs from now on take so long."""
        self._set("timeout", timeout)

    def set_retained(self, last: int) -> None:
        """Let so many checkpoints be retained from now on."""
        self._set("last", str(last))

    def _set(self, key: str, value: str) -> None:
        spec, times = re.subn(rf"{key}: \w+", f"{key}: {value}", self.spec_path.read_text())
        assert times == 1, f"{key} is in the spec {times} times"
        self.spec_path.write_text(spec)

    def land_next(self) -> None:
        """Land the days of one epoch."""
        days = range(len(self.days) + 1, len(self.days) + 3)
        self.land(days)
        self.days.extend(days)

    def assert_completed(self, outcome: Outcome) -> None:
        """The epoch completed, and every table is right."""
        assert outcome.exit_code == 0, outcome.stderr
        self.assert_tables_equal_the_oracle()
