"""The archive of Spark's classes belongs to one environment and one Java, and is only named when it is there."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from milepost.spark.driver.engines.class_archive import archive_options, archive_path
from milepost.spark.driver.engines.java import JavaRuntime


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JavaRuntime:
    """A Java in an environment whose folder has a space in its name."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "an environment"))
    home = tmp_path / "java"
    home.mkdir()
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n', encoding="utf-8")
    return JavaRuntime(home, 17, "JAVA_HOME")


def test_without_an_archive_java_gets_no_option(java: JavaRuntime) -> None:
    assert archive_options(java) == ""


def test_an_archive_that_is_there_is_mapped_and_one_that_does_not_fit_says_nothing(java: JavaRuntime) -> None:
    path = archive_path(java)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"")
    options = shlex.split(archive_options(java))
    assert f"-XX:SharedArchiveFile={path}" in options
    assert {"-Xshare:auto", "-Xlog:disable"} <= set(options)


def test_a_java_that_was_updated_in_place_has_another_archive(java: JavaRuntime) -> None:
    before = archive_path(java)
    (java.home / "release").write_text('JAVA_VERSION="17.0.16"\n', encoding="utf-8")
    assert archive_path(java) != before


def test_an_environment_that_is_reached_by_a_link_has_the_archive_of_its_folder(
    java: JavaRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = archive_path(java)
    (tmp_path / "link").symlink_to(sys.prefix)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "link"))
    assert archive_path(java) == before
