"""Builds an environment per older PySpark and Airflow that Milepost supports: `python -m scripts.older_versions`.

Each has only what differs from `.venv`, and links to everything else there. If no package index answers, none is
built, and the last line of `make test-all` states the reason. Any other failure to build fails the run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from scripts.bootstrap import ENVIRONMENTS, ROOT, Environment, check_disk, clean_environ, make_venv, run, say


def _older(library: str, minor: str, disk_bytes: int, size: str) -> Environment:
    name = f"{library}-{minor}"
    return Environment(f".venv-{name}", f"requirements-{name}.txt", False, disk_bytes, f"{library} {minor}, {size}")


OLDER: dict[str, dict[str, Environment]] = {
    "pyspark": {minor: _older("spark", minor, 1_500_000_000, "500 MB") for minor in ("4.0", "4.1", "4.2")},
    "apache-airflow": {minor: _older("airflow", minor, 200_000_000, "80 MB") for minor in ("3.1", "3.2")},
}
"""Library -> minor version -> its environment."""

UNREACHED = ROOT / ".milepost" / "older-versions-unreached.txt"
_ANSWER_S = 60
_LINKS = "rest/site-packages"
_MAIN = ENVIRONMENTS[0]


def version_of(library: str, minor: str) -> str:
    """Return the exact version that is pinned for a minor one: "4.0.5" for "4.0"."""
    requirements = OLDER[library][minor].requirements
    text = (ROOT / requirements).read_text(encoding="utf-8")
    match = re.search(rf"^{library}==(\S+)$", text, re.MULTILINE)
    assert match is not None, f"{requirements} pins no {library}"
    return match[1]


def is_there(environment: Environment) -> bool:
    """Return whether an environment is built, and links to `.venv` as it is now."""
    if not environment.is_built():
        return False
    path_file = _path_file(environment)
    return path_file.is_file() and path_file.read_text(encoding="utf-8") == _linked(environment)


def interpreter(library: str, minor: str) -> Path:
    """Return the Python of an environment.

    Raises:
        FileNotFoundError: it is not built; the message says how it is.
    """
    environment = OLDER[library][minor]
    if is_there(environment):
        return environment.python
    raise FileNotFoundError(f"{environment.folder} is not built: python -m scripts.older_versions")


def unreached() -> str | None:
    """Return why the last attempt to build reached no package index; None where it did, or there was none."""
    return UNREACHED.read_text(encoding="utf-8").strip() if UNREACHED.exists() else None


def build_versions() -> None:
    """Build the missing environments. If no package index answers, store the reason."""
    UNREACHED.unlink(missing_ok=True)
    missing = [environment for library in OLDER.values() for environment in library.values()]
    missing = [environment for environment in missing if not is_there(environment)]
    if not missing:
        return
    if (reason := why_unreachable()) is not None:
        UNREACHED.parent.mkdir(exist_ok=True)
        UNREACHED.write_text(f"{reason}\n", encoding="utf-8")
        say(f"older versions of PySpark and Airflow are not built: no package index answers ({reason})")
        return
    check_disk(missing)
    for environment in missing:
        _build(environment)


def closing_words() -> str | None:
    """Return what `make test-all` says last of older versions; None: they ran."""
    reason = unreached()
    if reason is None:
        return None
    return f"older versions of PySpark and Airflow DID NOT RUN, no package index was reached: {reason}"


def why_unreachable() -> str | None:
    """Return, in a line, why pip finds no package by the user's settings; None: it does."""
    command = [sys.executable, "-m", "pip", "index", "versions", "py4j"]
    try:
        done = subprocess.run(
            command, env=clean_environ(), capture_output=True, text=True, check=False, timeout=_ANSWER_S
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_ANSWER_S} s"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return None if done.returncode == 0 else (lines or [f"exit code {done.returncode}"])[-1]


def _build(environment: Environment) -> None:
    """Install what differs, link the rest, and check that together they are what each package needs."""
    say(f"{environment.folder}: {environment.says}; a minute the first time")
    make_venv(environment)
    _path_file(environment).unlink(missing_ok=True)  # pip would treat the linked packages as its own
    pip = (environment.python, "-m", "pip", "--no-input")
    run(*pip, "uninstall", "--yes", "--quiet", "setuptools")  # a new environment of Python 3.11 has an old one
    run(*pip, "install", "--progress-bar", "off", "--quiet", "--no-deps", "-r", environment.requirements)
    _link(environment)
    _path_file(environment).write_text(_linked(environment), encoding="utf-8")
    run(*pip, "check")
    environment.stamp.write_text(environment.identity() + "\n", encoding="utf-8")
    say(f"{environment.folder} is built")


def _link(environment: Environment) -> None:
    """Link to each package of `.venv` that the environment lacks.

    Its whole folder on the path would not do: `airflow` is a namespace, so modules that only the newer version has
    would be found there.
    """
    links = ROOT / environment.folder / _LINKS
    links.mkdir(parents=True, exist_ok=True)
    for link in links.iterdir():
        link.unlink()
    for entry in _missing_entries(_packages(environment), _packages(_MAIN)):
        (links / entry.name).symlink_to(entry)


def _missing_entries(own: Path, main: Path) -> Iterator[Path]:
    """Yield the packages, modules and metadata of `main` that `own` has in no version.

    own has airflow/ and apache_airflow-3.1.8.dist-info; main also airflow/, apache_airflow-3.3.2.dist-info, pyarrow/ ->
    pyarrow/
    """
    present = {entry.name for entry in own.iterdir()}
    replaced = {_distribution(entry) for entry in own.glob("*.dist-info")}
    for entry in sorted(main.iterdir()):
        if entry.name not in present and _distribution(entry) not in replaced:
            yield entry


def _distribution(entry: Path) -> str | None:
    """Return the distribution whose metadata this is: "apache-airflow" of apache_airflow-3.1.8.dist-info."""
    if entry.suffix != ".dist-info":
        return None
    return re.sub(r"[-_.]+", "-", entry.name.rpartition("-")[0]).lower()


def _packages(environment: Environment) -> Path:
    (packages,) = (ROOT / environment.folder).glob("lib/python*/site-packages")
    return packages


def _path_file(environment: Environment) -> Path:
    return _packages(environment) / "zz_everything_else.pth"


def _linked(environment: Environment) -> str:
    """Return the content of the `.pth` file: Python runs its first line, and the second says which `.venv` it links."""
    links = ROOT / environment.folder / _LINKS
    return f"import site; site.addsitedir({str(links)!r})\n# {_MAIN.identity()}\n"


if __name__ == "__main__":
    build_versions()
