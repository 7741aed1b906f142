"""A checkpoint says which large objects one task read alone, and why: what a person can change about a slow epoch."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from milepost.jobmaster import CheckpointDetails, Session
from milepost.sources.planning import splits
from milepost_testkit import wording
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.runners.sparkless_runner import SparklessRunner

EDIT = {"landing/*.csv": "landing/*", "max_files: 1": "max_files: 9"}


@pytest.mark.parametrize(
    ("option", "found"),
    [
        ("newlines_in_values: true", {"options.newlines_in_values": 1, "compressed": 1}),
        ("newlines_in_values: false", {"compressed": 1}),
    ],
)
def test_large_objects_read_by_one_task_are_counted_by_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, found: dict[str, int]
) -> None:
    monkeypatch.setattr(splits, "MAX_WHOLE_READ_BYTES", 100)
    monkeypatch.setattr(splits, "UNIT_BYTES", 50)
    job = SparklessJob.create(tmp_path, {**EDIT, "format: csv": f"format: csv\n    options: {{{option}}}"})
    rows = "k,v\n" + "".join(f"{number},{number * 7919 % 1000}\n" for number in range(100))
    job.land("a.csv", rows)
    job.land("small.csv", "k,v\n1,a\n")
    (tmp_path / "landing" / "b.csv.gz").write_bytes(gzip.compress(rows.encode()))
    job.master.epochs.run(Session.cli(), SparklessRunner())
    report = job.master.reports.show(1)
    assert isinstance(report, CheckpointDetails)
    source = report.sources["rows"]
    assert source.read is not None and dict(source.read.whole) == found
    assert (source.rows, source.objects) == (201, 3)
    shown = milepost("show", job.folder / "config" / "small.yaml", 1).stdout
    wording.matches("show", wording.paragraphs(shown, *found), replace=wording.SHORT_SIZES)


@pytest.mark.deep
def test_dead_letters_of_a_large_object_are_counted_once_and_have_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads which part of it: the tables are those of an object that one task has read."""
    tables = []
    for whole_bytes in (100, 10_000):
        monkeypatch.setattr(splits, "MAX_WHOLE_READ_BYTES", whole_bytes)
        monkeypatch.setattr(splits, "UNIT_BYTES", 50)
        folder = tmp_path / str(whole_bytes)
        folder.mkdir()
        job = SparklessJob.create(
            folder,
            {
                "format: csv": "format: csv\n    bad_records: dead_letter\n    options: {newlines_in_values: false}",
                "mode: upsert}\n": "mode: upsert}\n"
                "  - {name: unread, input: rows.bad, format: parquet, path: ../lake/unread, mode: append}\n",
                "checkpointing:": "spark: {parallelism: 3}\ncheckpointing:",
            },
        )
        lines = [f"{'none' if number % 40 == 39 else number},x\n" for number in range(200)]
        job.land("a.csv", "k,v\n" + "".join(lines))
        job.master.epochs.run(Session.cli(), SparklessRunner())
        report = job.master.reports.show(1)
        assert isinstance(report, CheckpointDetails)
        source = report.sources["rows"]
        assert (source.rows, source.objects, source.bad.records) == (195, 1, 5)
        assert len(source.subtasks) == (3 if whole_bytes == 100 else 1)
        tables.append([job.master.reports.read(name).to_pylist() for name in ("unread", "table")])
        assert [row["line"] for row in tables[-1][0]] == [41, 81, 121, 161, 201]
    cut, alone = ([sorted(map(str, table)) for table in pair] for pair in tables)
    assert cut == alone
