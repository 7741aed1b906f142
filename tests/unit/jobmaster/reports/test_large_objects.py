"""A checkpoint says which large objects one task read alone, and why: what a person can change about a slow epoch."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from milepost.dataflow.sources import splits
from milepost.jobmaster.jobmaster import CheckpointDetails, Session
from tests.harness.jobs.milepost_cli import milepost
from tests.harness.jobs.sparkless.sparkless_job import SparklessJob
from tests.harness.jobs.sparkless.sparkless_runner import SparklessRunner

EDIT = {"landing/*.csv": "landing/*", "max_files: 1": "max_files: 9"}


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("newlines_in_values: true", {"options.newlines_in_values": 1, "compressed": 1}),
        ("newlines_in_values: false", {"compressed": 1}),
    ],
)
def test_large_objects_that_one_task_read_are_counted_by_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, found: dict[str, int]
) -> None:
    monkeypatch.setattr(splits, "WHOLE_BYTES", 100)
    monkeypatch.setattr(splits, "UNIT_BYTES", 50)
    job = SparklessJob.create(tmp_path, {**EDIT, "format: csv": f"format: csv\n    options: {{{option}}}"})
    rows = "k,v\n" + "".join(f"{number},{number * 7919 % 1000}\n" for number in range(100))
    job.land("a.csv", rows)
    job.land("small.csv", "k,v\n1,a\n")
    (tmp_path / "landing" / "b.csv.gz").write_bytes(gzip.compress(rows.encode()))
    job.master.run(Session.cli(), SparklessRunner())
    report = job.master.show(1)
    assert isinstance(report, CheckpointDetails)
    source = report.sources["rows"]
    assert source.read is not None and dict(source.read.whole) == found
    assert (source.rows, source.objects) == (201, 3)
    shown = milepost("show", job.folder / "config" / "small.yaml", 1).stdout
    for why, number in found.items():
        assert f"{number} large object read by one task: {why}" in " ".join(shown.split())
