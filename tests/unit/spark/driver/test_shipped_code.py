"""The archive of the code that executors run is the code of the process that sends it (I13)."""

from __future__ import annotations

import resource
import zipfile
from pathlib import Path

import pytest

from milepost.epoch.code_hash import CODE_HASH, hash_package
from milepost.errors import EnvironmentUnusable
from milepost.spark.driver.engines import shipped_code
from milepost_testkit import wording


@pytest.fixture(autouse=True)
def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_unpacked_code_has_the_hash_of_the_process_that_packed_it(tmp_path: Path) -> None:
    archive = shipped_code.shipped_code()
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "milepost")
    assert hash_package(tmp_path / "milepost") == CODE_HASH == archive.stem


@pytest.mark.deep
def test_the_same_code_is_the_same_archive_and_is_packed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = shipped_code.shipped_code()
    written = first.stat().st_mtime_ns
    assert shipped_code.shipped_code().stat().st_mtime_ns == written
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another"))
    assert shipped_code.shipped_code().read_bytes() == first.read_bytes()


def test_code_that_changed_after_it_was_imported_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be sent is not what the driver runs: every task would decline."""
    (tmp_path / "edited.py").write_text("FORM = 'new'\n")
    monkeypatch.setattr(shipped_code, "PACKAGE", tmp_path)
    with wording.raises(EnvironmentUnusable):
        shipped_code.shipped_code()
    assert not [*tmp_path.rglob("*.zip")]


def test_a_disk_that_takes_no_archive_is_reported_and_left_clean(tmp_path: Path) -> None:
    """Of so many bytes a file may be no larger: what the disk says then is what a full one says in other words."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with wording.raises(EnvironmentUnusable):
            shipped_code.shipped_code()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert shipped_code.shipped_code().is_file()
