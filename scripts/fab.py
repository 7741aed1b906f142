"""Builds `.venv-fab`, what Airflow's FAB auth manager needs besides `.venv`: `python -m scripts.fab`.

If no package index answers, it is not built, and the last line of `make test-all` states the reason. Any other failure
to build fails the run.
"""

from __future__ import annotations

from pathlib import Path

from scripts.bootstrap import ROOT, Environment, check_disk, make_venv, run, say
from scripts.older_versions import why_unreachable

FAB = Environment(".venv-fab", "requirements-fab.txt", False, 150_000_000, "Airflow's FAB auth manager, 60 MB")
UNREACHED = ROOT / ".milepost" / "fab-unreached.txt"


def interpreter() -> Path:
    """Return the Python of the environment. Raises FileNotFoundError: it is not built; the message says how it is."""
    if FAB.is_built():
        return FAB.python
    raise FileNotFoundError(f"{FAB.folder} is not built: python -m scripts.fab")


def unreached() -> str | None:
    """Return why the last attempt to build reached no package index; None where it did, or there was none."""
    return UNREACHED.read_text(encoding="utf-8").strip() if UNREACHED.exists() else None


def build_fab() -> None:
    """Build the environment if it is missing. If no package index answers, store the reason."""
    UNREACHED.unlink(missing_ok=True)
    if FAB.is_built():
        return
    if (reason := why_unreachable()) is not None:
        UNREACHED.parent.mkdir(exist_ok=True)
        UNREACHED.write_text(f"{reason}\n", encoding="utf-8")
        say(f"{FAB.folder} is not built: no package index answers ({reason})")
        return
    check_disk([FAB])
    say(f"{FAB.folder}: {FAB.says}; a minute the first time")
    make_venv(FAB)
    pip = (FAB.python, "-m", "pip", "--no-input")
    run(*pip, "uninstall", "--yes", "--quiet", "setuptools")  # a new environment of Python 3.11 has an old one
    run(*pip, "install", "--progress-bar", "off", "--quiet", "--no-deps", "-r", FAB.requirements)
    _link_main_environment()
    run(*pip, "check")
    FAB.stamp.write_text(FAB.identity() + "\n", encoding="utf-8")
    say(f"{FAB.folder} is built")


def _link_main_environment() -> None:
    """Let the environment import what it lacks from `.venv`. After pip has run, which would treat that as its own.

    `.pth` files of `.venv` count, as its own do not.
    """
    (own,), (main,) = ((ROOT / folder).glob("lib/python*/site-packages") for folder in (FAB.folder, ".venv"))
    (own / "zz_everything_else.pth").write_text(f"import site; site.addsitedir({str(main)!r})\n", encoding="utf-8")


def closing_words() -> str | None:
    """Return what `make test-all` says last of FAB; None: it ran."""
    reason = unreached()
    return None if reason is None else f"Airflow's FAB auth manager DID NOT RUN, no package index was reached: {reason}"


if __name__ == "__main__":
    build_fab()
