"""The flights job as Spark runs it, on Delta: engines that had no part in its tables read them at every checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit.jobs.flights.watched_flights import begun, there_and_back
from milepost_testkit.readers.reading_engines import ReadingEngines, all_engines


@pytest.mark.deep
def test_engines_see_whole_checkpoints_only_forward_and_back(tmp_path: Path, reading_engines: ReadingEngines) -> None:
    """TABLES 1.1, 1.2, 1.6, with SQL and real workers."""
    there_and_back(begun(tmp_path, "delta", reading_engines, all_engines(), on_spark=True))
