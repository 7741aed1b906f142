"""Going back: real flights, rolled back and forth; after every step each table equals the oracle."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.flights.flights_job import FlightsJob
from milepost_testkit.jobs.flights.kill_chain import without_quality
from milepost_testkit.jobs.flights.recovering_job import SINKS, key_of
from milepost_testkit.rows.tables import assert_same_rows
from milepost_testkit.runners.planes import Plane

pytestmark = pytest.mark.deep


def test_flights_go_back_to_an_epoch_and_on_from_there_and_back_again_iceberg_10892(
    tmp_path: Path, plane: Plane
) -> None:
    """Windows that were emitted, keys that were seen and late rows return with the rest; nothing is there twice, and
    nothing that is read again is lost because a table saw higher ids before (apache/iceberg#10892)."""
    job = FlightsJob.create(tmp_path, {"max_files: 4": "max_files: 1", without_quality(): ""})
    job.land(range(1, 8))
    assert len(job.run_until_caught_up()) == 7
    at_7 = {name: job.master().reports.read(name) for name in SINKS}
    job.assert_tables_equal_the_oracle()

    shown = milepost("rollback", job.spec_path, "--to", "3", "--dry-run")
    assert shown.exit_code == 0
    wording.matches("rollback", shown.stdout, replace=wording.SIZES)
    rows = {name: job.master().reports.read(name, 3).num_rows for name in SINKS}
    numbers = [rf"\b{name}: {at_7[name].num_rows:,}\D+{rows[name]:,}\b" for name in SINKS]
    assert all(re.search(number, shown.stdout) for number in numbers)
    done = milepost("rollback", job.spec_path, "--to", "3", "--yes")
    assert done.exit_code == 0, done.stderr
    assert job.epochs() == [[key_of(1)], [key_of(2)], [key_of(3)]]
    job.assert_tables_equal_the_oracle()

    job.edit(job.spec_path.read_text(), {"max_files: 1": "max_files: 2"})
    assert milepost("run", job.spec_path, "--until-caught-up").exit_code == 0
    assert job.epochs()[3:] == [[key_of(4), key_of(5)], [key_of(6), key_of(7)]]
    expected = job.assert_tables_equal_the_oracle()
    assert sum(expected.late.values()) + sum(expected.duplicates.values()) > 0

    assert milepost("rollback", job.spec_path, "--to", "7", "--yes").exit_code == 0
    for name in SINKS:
        assert_same_rows(job.master().reports.read(name), at_7[name], name)
    job.land([8])
    assert job.run().checkpoint_id == 10
    assert [len(epoch) for epoch in job.epochs()] == [1] * 8
    job.assert_tables_equal_the_oracle()
    assert milepost("verify", job.spec_path, "--deep").exit_code == 0
    assert milepost("fsck", job.spec_path).exit_code == 0
