"""The file of an SQLite catalog is the same one before and after the spec names it, wherever a command is typed."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.tables.records.table_address import CatalogAddress, TableAddress
from milepost_testkit.jobs.sparkless.migrating_job import MigratingJob

pytestmark = pytest.mark.deep

TARGET = TableAddress(
    "iceberg", "../lake/ice-seen", "small.seen", CatalogAddress("sql", "sqlite:///../catalog.db", "milepost", {})
)


def test_a_relative_catalog_begins_at_the_folder_of_the_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = MigratingJob.with_epochs(tmp_path / "job", 2)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    job.migrate("seen", TARGET)
    assert (job.small.folder / "catalog.db").is_file()
    job.assert_whole()
    job.say("seen", TARGET)
    monkeypatch.chdir(tmp_path / "there")
    job.land([3])
    job.run_one()
    job.assert_whole()
    assert not [*(tmp_path / "here").iterdir(), *(tmp_path / "there").iterdir()]
