"""Reasons that prevent a release of a commit, and their messages."""

from __future__ import annotations

import subprocess
import tarfile
import zipfile
from pathlib import Path

import pytest

from scripts import release
from scripts.release import NotReleasable, check_changelog, check_contents, check_equal

TRACKED = ("pipeline/milepost/__init__.py", "pipeline/milepost/page.css", *release.OTHER_FILES)
INFO = "milepost-1.0.dist-info"


def archives(folder: Path, *, sdist: tuple[str, ...], wheel: tuple[str, ...]) -> tuple[Path, Path]:
    """Write an sdist and a wheel with files of these names."""
    empty = folder / "empty"
    empty.write_text("")
    with tarfile.open(folder / "milepost-1.0.tar.gz", "w:gz") as packed:
        for name in sdist:
            packed.add(empty, f"milepost-1.0/{name}")
    with zipfile.ZipFile(folder / "milepost-1.0.whl", "w") as zipped:
        for name in wheel:
            zipped.writestr(name, "")
    return folder / "milepost-1.0.tar.gz", folder / "milepost-1.0.whl"


WHEEL = ("milepost/__init__.py", "milepost/page.css", f"{INFO}/METADATA", f"{INFO}/licenses/LICENSE")


def test_archives_with_all_tracked_and_generated_files_pass(tmp_path: Path) -> None:
    check_contents(*archives(tmp_path, sdist=(*TRACKED, "PKG-INFO"), wheel=WHEEL), TRACKED)


@pytest.mark.parametrize(
    ("sdist", "wheel", "said"),
    [
        (TRACKED, WHEEL[1:], r"1\.0\.whl lacks \['milepost/__init__.py'\] and has nothing"),
        (TRACKED, (*WHEEL, "milepost/notes.txt"), r"lacks nothing and has \['milepost/notes.txt'\]"),
        (TRACKED, WHEEL[:-1], "has no LICENSE"),
        (TRACKED[1:], WHEEL, r"tar\.gz lacks \['pipeline/milepost/__init__.py'\]"),
        ((*TRACKED, ".env"), WHEEL, r"has \['.env'\] besides"),
    ],
)
def test_a_file_too_few_or_too_many_is_named(
    tmp_path: Path, sdist: tuple[str, ...], wheel: tuple[str, ...], said: str
) -> None:
    with pytest.raises(NotReleasable, match=said):
        check_contents(*archives(tmp_path, sdist=sdist, wheel=wheel), TRACKED)


def test_builds_that_differ_are_named(tmp_path: Path) -> None:
    same, other = tmp_path / "milepost.whl", tmp_path / "other.whl"
    same.write_bytes(b"1")
    other.write_bytes(b"2")
    check_equal([same], [same])
    with pytest.raises(NotReleasable, match=r"differ in milepost\.whl"):
        check_equal([same], [other])


@pytest.mark.parametrize("newest", ["## [1.0.0] - 2027-01-31", "## [Unreleased]\n\n## [1.0.0] - 2027-01-31"])
def test_a_dated_section_of_the_version_passes(newest: str) -> None:
    check_changelog(f"# Changelog\n\n{newest}\n\n## [0.9.0] - 2026-01-31\n", "1.0.0")


@pytest.mark.parametrize(
    "newest", ["## [Unreleased]", "## [1.0.0]", "## 1.0.0 (unreleased)", "## [0.9.1] - 2027-01-31"]
)
def test_a_changelog_without_the_dated_version_is_refused_with_the_line_to_write(newest: str) -> None:
    with pytest.raises(NotReleasable, match=r"write `## \[1\.0\.0\] - YYYY-MM-DD`"):
        check_changelog(f"# Changelog\n\n{newest}\n", "1.0.0")


@pytest.mark.long
def test_files_that_are_not_committed_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    (tmp_path / "new.py").write_text("")
    monkeypatch.setattr(release, "ROOT", tmp_path)
    assert release.main(["--trial"]) == 2
    assert "?? new.py" in capsys.readouterr().err
