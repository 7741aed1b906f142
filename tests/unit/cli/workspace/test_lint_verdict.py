"""The first line of `lint` says what the last ones do: whether the next epoch would run."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob


@pytest.mark.deep
def test_a_spec_that_run_refuses_is_not_called_valid(tmp_path: Path) -> None:
    job = CountedJob.with_epochs(tmp_path, 1)
    wording.matches("lint", milepost("lint", job.spec_path).stdout)
    job.edit("key: [k], aggregates", "key: [v], aggregates")
    told = milepost("lint", job.spec_path)
    wording.matches("lint", told.stdout)
    assert told.exit_code == 2
    wording.matches("lint", told.error)


def test_a_path_that_matches_nothing_is_a_warning(tmp_path: Path) -> None:
    job = SparklessJob.create(tmp_path, {"../landing/*.csv": "../landnig/*.csv"})
    spec, warning = job.folder / "config" / "small.yaml", "source rows: no object matches ../landnig/*.csv"
    told = milepost("lint", spec)
    assert (told.exit_code, told.error) == (0, [f"warning: {warning}"])
    assert milepost("lint", spec, "--json").document()["source_warnings"] == [warning]
    spec.write_text(spec.read_text().replace("landnig", "landing"))
    job.land("1.csv")
    assert milepost("lint", spec).error == []
