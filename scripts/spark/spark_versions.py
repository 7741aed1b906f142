"""Builds an environment per older PySpark that Milepost supports: `python -m scripts.spark.spark_versions`.

Each has a PySpark of its own, 500 MB, and everything else from `.venv`. If no package index answers, none is built, and
the last line of `make test-all` states the reason. Any other failure to build fails the run.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from scripts.bootstrap import ROOT, Environment, build, check_disk, clean_environ, say

OLDER = {
    minor: Environment(
        f".venv-spark-{minor}", f"requirements-spark-{minor}.txt", False, 1_500_000_000, f"PySpark {minor}, 500 MB"
    )
    for minor in ("4.0", "4.1", "4.2")
}
UNREACHED = ROOT / ".milepost" / "spark-versions-unreached.txt"
_ANSWER_S = 60


def version_of(minor: str) -> str:
    """Return the exact version that is pinned for a minor one: "4.0.5" for "4.0"."""
    text = (ROOT / OLDER[minor].requirements).read_text(encoding="utf-8")
    match = re.search(r"^pyspark==(\S+)$", text, re.MULTILINE)
    assert match is not None, f"{OLDER[minor].requirements} pins no pyspark"
    return match[1]


def is_there(minor: str) -> bool:
    """Return whether the environment is built, and imports what it lacks from this one."""
    environment = OLDER[minor]
    return environment.is_built() and _link(environment).is_file() and _link(environment).read_text() == _linked()


def interpreter(minor: str) -> Path:
    """Return the Python of an environment.

    Raises:
        FileNotFoundError: it is not built; the message says how it is.
    """
    if is_there(minor):
        return OLDER[minor].python
    raise FileNotFoundError(f"{OLDER[minor].folder} is not built: python -m scripts.spark.spark_versions")


def unreached() -> str | None:
    """Return why the last attempt to build reached no package index; None where it did, or there was none."""
    return UNREACHED.read_text(encoding="utf-8").strip() if UNREACHED.exists() else None


def build_versions() -> None:
    """Build the missing environments. If no package index answers, store the reason."""
    UNREACHED.unlink(missing_ok=True)
    missing = [minor for minor in OLDER if not is_there(minor)]
    if not missing:
        return
    if (reason := why_unreachable()) is not None:
        UNREACHED.parent.mkdir(exist_ok=True)
        UNREACHED.write_text(f"{reason}\n", encoding="utf-8")
        say(f"older versions of PySpark are not built: no package index answers ({reason})")
        return
    check_disk([OLDER[minor] for minor in missing])
    for minor in missing:
        build(OLDER[minor])
        link_main_environment(OLDER[minor])


def closing_words() -> str | None:
    """Return what `make test-all` says last of older versions of PySpark; None: they ran."""
    reason = unreached()
    return None if reason is None else f"older versions of PySpark DID NOT RUN, no package index was reached: {reason}"


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


def link_main_environment(environment: Environment) -> None:
    """Let an environment import what it lacks from `.venv`. After pip has run, which would treat that as its own."""
    _link(environment).write_text(_linked(), encoding="utf-8")


def _link(environment: Environment) -> Path:
    (packages,) = environment.python.parent.parent.glob("lib/python*/site-packages")
    return packages / "zz_everything_else.pth"


def _linked() -> str:
    """Return a line that Python runs at its start. `.pth` files of the other environment count, as its own do not."""
    (packages,) = (ROOT / ".venv").glob("lib/python*/site-packages")
    return f"import site; site.addsitedir({str(packages)!r})\n"


if __name__ == "__main__":
    build_versions()
