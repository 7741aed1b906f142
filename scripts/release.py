"""`make release`: build the sdist and the wheel of a commit, check them, and list the packages they were tested with.

    python -m scripts.release           of a commit whose CHANGELOG.md dates its version
    python -m scripts.release --trial   of any commit, to check whether it could be released

Publishing is a separate step: docs/contributing/release.md.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path

from milepost import __version__
from scripts.bootstrap import ENVIRONMENTS, ROOT, Environment, build, check_disk, clean_environ

RELEASE = Environment(
    ".venv-release", "requirements-release.txt", False, 300_000_000, "checks of a distribution, 110 MB on disk"
)
DIST = ROOT / "dist"
PRODUCT = "pipeline/"
"""Folder of the package."""

OTHER_FILES = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml")
"""Files of an sdist in addition to the package and its generated metadata."""

_MADE = frozenset({"PKG-INFO", ".gitignore"})


class NotReleasable(Exception):
    """The commit cannot be released. The message has the reason and the next step."""


def main(words: list[str] | None = None) -> int:
    """Build and check a release in dist/. Returns the exit code: 2 if the commit cannot be released."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trial", action="store_true", help="do not require a date in CHANGELOG.md")
    chosen = parser.parse_args(words)
    try:
        made = release(trial=chosen.trial)
    except NotReleasable as error:
        print(f"not releasable: {error}", file=sys.stderr)
        return 2
    for path in made:
        print(f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(ROOT)}")
    return 0


def release(*, trial: bool) -> list[Path]:
    """Build the distribution of the current commit twice and check it. Returns the files in dist/.

    Raises:
        NotReleasable: uncommitted changes, no dated section in CHANGELOG.md, two builds that differ, wrong contents,
            or metadata that PyPI refuses.
    """
    if changed := _git("status", "--porcelain"):
        raise NotReleasable(f"the release would lack these uncommitted changes; commit or remove them:\n{changed}")
    if not trial:
        check_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), __version__)
    if not RELEASE.is_built():
        check_disk([RELEASE])
        build(RELEASE)
    with tempfile.TemporaryDirectory(prefix="milepost-release-") as folder:
        first, second = (_built(Path(folder) / name) for name in ("first", "second"))
        check_equal(first, second)
        tracked = _git("ls-files", PRODUCT, *OTHER_FILES).splitlines()
        sdist, wheel = first
        check_contents(sdist, wheel, tracked)
        _run(RELEASE.python, "-m", "twine", "check", "--strict", sdist, wheel)
        shutil.rmtree(DIST, ignore_errors=True)
        DIST.mkdir()
        made = [Path(shutil.copy(path, DIST)) for path in first]
    return [*made, _components()]


def check_changelog(text: str, version: str) -> None:
    """Require a section `## [version] - date` above all others. Raises NotReleasable.

    >>> check_changelog("# Changelog\\n\\n## [0.2.0] - 2027-01-31\\n", "0.2.0")
    """
    sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
    newest = next((section for section in sections if section != "[Unreleased]"), "(none)")
    if not re.fullmatch(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d", newest):
        raise NotReleasable(
            f"the newest section of CHANGELOG.md is `## {newest}`, and `milepost.__version__` is {version}: "
            f"write `## [{version}] - YYYY-MM-DD` with the day of the release, or set the version"
        )


def check_equal(first: Iterable[Path], second: Iterable[Path]) -> None:
    """Require that two builds are identical. Raises NotReleasable."""
    for one, other in zip(first, second, strict=True):
        if one.read_bytes() != other.read_bytes():
            raise NotReleasable(f"two builds of one commit differ in {one.name}: it depends on the folder or the time")


def check_contents(sdist: Path, wheel: Path, tracked: Iterable[str]) -> None:
    """Require every tracked file of the product in both, the licence, and no other file. Raises NotReleasable."""
    product = {path.removeprefix(PRODUCT) for path in tracked if path.startswith(PRODUCT)}
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    metadata = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    _require_same(wheel, {*names} - metadata, product)
    if not any(name.endswith("/licenses/LICENSE") for name in metadata):
        raise NotReleasable(f"{wheel.name} has no LICENSE")
    with tarfile.open(sdist) as sources:
        packed = {name.partition("/")[2] for name in sources.getnames()}
    _require_same(sdist, packed - _MADE, {f"{PRODUCT}{name}" for name in product} | {*OTHER_FILES})


def _require_same(archive: Path, found: set[str], expected: set[str]) -> None:
    lacks, more = sorted(expected - found), sorted(found - expected)
    if lacks or more:
        raise NotReleasable(f"{archive.name} lacks {lacks or 'nothing'} and has {more or 'nothing'} besides")


def _built(folder: Path) -> tuple[Path, Path]:
    """Build the sdist of the commit, and the wheel from that sdist, in a folder with only the files of the commit."""
    sources, target = folder / "sources", folder / "dist"
    sources.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", sources], input=archive, check=True)
    commit_time = {"SOURCE_DATE_EPOCH": _git("log", "-1", "--format=%ct")}
    python = ENVIRONMENTS[0].python
    _run(python, "-m", "hatchling", "build", "-t", "sdist", "-d", target, cwd=sources, more=commit_time)
    (sdist,) = target.iterdir()
    with tarfile.open(sdist) as packed:
        packed.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        packed.extractall(folder / "unpacked")
    (unpacked,) = (folder / "unpacked").iterdir()
    _run(python, "-m", "hatchling", "build", "-t", "wheel", "-d", target, cwd=unpacked, more=commit_time)
    (wheel,) = target.glob("*.whl")
    return sdist, wheel


def _components() -> Path:
    """Write the packages of the test environment, with versions and licences, as CycloneDX."""
    target = DIST / f"milepost-{__version__}.cdx.json"
    project = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library")
    written = ("--output-reproducible", "-o", target, ENVIRONMENTS[0].python)
    _run(RELEASE.python, "-m", "cyclonedx_py", "environment", *project, *written)
    return target


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _run(*command: object, cwd: Path = ROOT, more: Mapping[str, str] | None = None) -> None:
    """Run a step. Raises NotReleasable with its output."""
    words = [str(part) for part in command]
    environ = {**clean_environ(), **(more or {}), "PYTHONHASHSEED": "0"}
    done = subprocess.run(words, cwd=cwd, env=environ, check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise NotReleasable(f"`{' '.join(words[1:])}` failed:\n{done.stdout}{done.stderr}".rstrip())


if __name__ == "__main__":
    sys.exit(main())
