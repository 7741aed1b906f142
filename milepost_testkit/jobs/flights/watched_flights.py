"""The flights job on open tables, at which engines look after each step: a story that a test tells."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from milepost.epoch.answers import EpochRunner
from milepost.jobmaster import CheckpointReport, Session
from milepost.spark.driver.runner import SparkEpochRunner
from milepost_testkit.jobs.flights.kill_chain import without_sql
from milepost_testkit.jobs.flights.open_flights import FILTERS, OpenFlights
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.readers.reading_engines import ReadingEngines
from milepost_testkit.readers.witnesses import Witnesses
from milepost_testkit.runners.sparkless_runner import SparklessRunner

RIGHT, WRONG = 'null_values: ["", "NA"]', 'null_values: ["", "NA", "-3"]'
"""Many flights leave three minutes early."""


@dataclass
class Story:
    """A job, and who looks at its tables after each step."""

    flights: OpenFlights
    witnesses: Witnesses
    runner: type[EpochRunner]
    last_day: int = 0

    def epoch(self) -> dict[str, str]:
        """Land four days, and publish the next checkpoint."""
        days = range(self.last_day + 1, self.last_day + 5)
        self.flights.job.land(days)
        self.last_day = days[-1]
        return self.forward()

    def forward(self) -> dict[str, str]:
        """Publish the next checkpoint of what is landed."""
        report = self.flights.job.master().epochs.run(Session.cli(), self.runner())
        assert isinstance(report, CheckpointReport)
        return self.look()

    def back_to(self, checkpoint_id: int) -> dict[str, str]:
        roll_back(self.flights.job.master(), checkpoint_id)
        return self.look()

    def look(self) -> dict[str, str]:
        """Every engine sees what the oracle says; return the state of each table."""
        return self.witnesses.see(self.flights.expected(), FILTERS)

    def head(self) -> int:
        return self.flights.job.lineage()[-1][0]


def begun(
    folder: Path, table_format: str, engines: ReadingEngines, names: tuple[str, ...], *, on_spark: bool = False
) -> Story:
    """Return a job that has published nothing yet; its epochs need no Spark, or run there with SQL."""
    flights = OpenFlights.create(folder, table_format, {} if on_spark else without_sql() | {RIGHT: WRONG})
    witnesses = Witnesses(engines, names, table_format, flights.place)
    return Story(flights, witnesses, SparkEpochRunner if on_spark else SparklessRunner)


def hour_of(day: int, departures: int) -> pa.Table:
    """A row of table `hourly` that an external writer adds."""
    start = datetime(2013, 12, day, tzinfo=UTC)
    row = {
        "origin": "FOREIGN",
        "window_start": start,
        "window_end": start.replace(hour=1),
        "departures": departures,
        "delay_sum": -departures,
    }
    time = pa.timestamp("us", "UTC")
    numbers = [("departures", pa.int64()), ("delay_sum", pa.int64())]
    return pa.Table.from_pylist(
        [row], pa.schema([("origin", pa.string()), ("window_start", time), ("window_end", time), *numbers])
    )


def there_and_back(story: Story) -> None:
    """Publish three checkpoints, go back to the second and forward again, while engines watch; others add a row."""
    story.epoch()
    with story.witnesses.watching() as seen:
        second = story.epoch()
        third = story.epoch()
        assert story.back_to(2) == second
        story.flights.append_by_library("hourly", hour_of(1, 7))
        story.look()
        again = story.forward()
        assert (again["carriers"], again["late_flights"]) == (third["carriers"], third["late_flights"])
    assert len(seen[story.witnesses.names[0], "carriers"]) > 1, "it read before and after something was published"
    assert (verified := story.flights.job.master().reports.verify(deep=True)).unasked == verified.discarded == ()
