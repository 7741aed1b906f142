"""Build environments that have only what differs from `.venv`, and link to everything else there.

If no package index answers, none is built, and the last line of `make test-all` states the reason. Any other failure
to build fails the run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bootstrap import ENVIRONMENTS, ROOT, Environment, check_disk, clean_environ, make_venv, run, say
from scripts.unreached import Unreached

_ANSWER_S = 60
_LINKS = "rest/site-packages"
_MAIN = ENVIRONMENTS[0]


@dataclass(frozen=True)
class LinkedEnvironments:
    """Environments that one command builds.

    Attributes:
        module: `python -m module` builds them. unreached: why the last attempt to build reached no package index.
        only_add: whether they replace no package of `.venv`, and may add to a namespace of it, such as
            `airflow.providers`. Then its whole folder is on the path.
    """

    module: str
    environments: tuple[Environment, ...]
    unreached: Unreached
    only_add: bool = False

    def interpreter(self, environment: Environment) -> Path:
        """Return the Python of an environment.

        Raises:
            FileNotFoundError: it is not built. The message has the command that builds it.
        """
        if self.is_there(environment):
            return environment.python
        raise FileNotFoundError(f"{environment.folder} is not built: python -m {self.module}")

    def build(self) -> None:
        """Build the missing environments. If no package index answers, store the reason."""
        self.unreached.clear()
        missing = [environment for environment in self.environments if not self.is_there(environment)]
        if not missing:
            return
        if (reason := _why_unreachable()) is not None:
            self.unreached.store(reason)
            say(f"not built, because no package index answers: {self.unreached.what} ({reason})")
            return
        check_disk(missing)
        for environment in missing:
            self._build(environment)

    def is_there(self, environment: Environment) -> bool:
        """Return whether an environment is built, and links to `.venv` as it is now."""
        if not environment.is_built():
            return False
        path_file = _path_file(environment)
        return path_file.is_file() and path_file.read_text(encoding="utf-8") == self._path_lines(environment)

    def _build(self, environment: Environment) -> None:
        """Install what differs, link the rest, and check that the dependencies of all packages are met."""
        say(f"{environment.folder}: {environment.description}; a minute the first time")
        make_venv(environment)
        _path_file(environment).unlink(missing_ok=True)  # pip would treat the linked packages as its own
        pip = (environment.python, "-m", "pip", "--no-input")
        run(*pip, "uninstall", "--yes", "--quiet", "setuptools")  # a new environment of Python 3.11 has an old one
        run(*pip, "install", "--progress-bar", "off", "--quiet", "--no-deps", "-r", environment.requirements)
        if not self.only_add:
            _link(environment)
        _path_file(environment).write_text(self._path_lines(environment), encoding="utf-8")
        run(*pip, "check")
        environment.stamp.write_text(environment.identity() + "\n", encoding="utf-8")
        say(f"{environment.folder} is built")

    def _path_lines(self, environment: Environment) -> str:
        """Return the content of the `.pth` file: a line that Python runs, and the identity of the linked `.venv`."""
        linked = _packages(_MAIN) if self.only_add else ROOT / environment.folder / _LINKS
        return f"import site; site.addsitedir({str(linked)!r})\n# {_MAIN.identity()}\n"


def _why_unreachable() -> str | None:
    """Return in one line why pip reaches no index with the user's settings; None: it does."""
    command = [sys.executable, "-m", "pip", "index", "versions", "py4j"]
    try:
        done = subprocess.run(
            command, env=clean_environ(), capture_output=True, text=True, check=False, timeout=_ANSWER_S
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {_ANSWER_S} s"
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    return None if done.returncode == 0 else (lines or [f"exit code {done.returncode}"])[-1]


def _link(environment: Environment) -> None:
    """Link to each package of `.venv` that the environment lacks.

    Its whole folder cannot be on the path: `airflow` is a namespace, so modules that only the newer version has would
    be imported from there.
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
