"""Build `.venv-spark-readers`, a Spark with Delta's and Iceberg's jars: `python -m scripts.spark.spark_readers`.

If Maven Central does not answer, it is not built, and the last line of `make test-all` reports the reason. Any other
failure to build ends the run.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from milepost.spark.driver.engines.java import find_java_home
from scripts.bootstrap import ROOT, Environment, build, check_disk, say
from scripts.spark.maven_jars import are_there, fetch_or_stop, note_unreached, pinned_jars, repository_url
from scripts.unreached import Unreached

SPARK_READERS = Environment(
    ".venv-spark-readers",
    "requirements-spark-readers.txt",
    False,
    1_100_000_000,
    "Spark with Delta's and Iceberg's jars, 760 MB on disk",
)
LOOPBACK = "127.0.0.1"
PINS = ROOT / "jars-spark-readers.txt"
JARS = ROOT / SPARK_READERS.folder / "jars"
UNREACHED = Unreached(
    ROOT / ".milepost" / "spark-readers-unreached.txt",
    "Spark with Delta's and Iceberg's jars",
    "Maven Central was not reached",
)


def jars_are_there() -> bool:
    """Return whether the environment has exactly the pinned jars."""
    return are_there(PINS, JARS)


def interpreter() -> Path:
    """Return the Python of the environment.

    Raises FileNotFoundError: it is not built. The message has the command that builds it.
    """
    if jars_are_there():
        return SPARK_READERS.python
    raise FileNotFoundError(
        f"{SPARK_READERS.folder} is not built, or not with the pinned jars: python -m scripts.spark.spark_readers"
    )


def environ() -> dict[str, str]:
    """Return the environment variables for processes of that Python: `scripts` is importable, Spark uses loopback."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LANG") if name in os.environ}
    return kept | {
        "JAVA_HOME": str(find_java_home()),
        "PYTHONPATH": str(ROOT),
        "SPARK_LOCAL_HOSTNAME": "localhost",
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": str(SPARK_READERS.python),
        "NO_PROXY": LOOPBACK,
        "no_proxy": LOOPBACK,
        "TZ": "UTC",
    }


def build_readers() -> None:
    """Build the environment and download the jars. If no repository answers, store the reason."""
    UNREACHED.clear()
    if SPARK_READERS.is_built() and jars_are_there():
        return
    repository = repository_url()
    reason = note_unreached(repository, PINS, UNREACHED)
    if reason is not None:
        say(f"{SPARK_READERS.folder} is not built: {repository} gives no answer ({reason})")
        return
    if not SPARK_READERS.is_built():
        check_disk([SPARK_READERS])
        build(SPARK_READERS)
    ivy = next(SPARK_READERS.python.parent.parent.glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar"))
    say(f"{SPARK_READERS.folder}: {len(pinned_jars(PINS))} jars from {repository}")
    fetch_or_stop(PINS, JARS, ivy=ivy, repository=repository, command="make test-all")


if __name__ == "__main__":
    argparse.ArgumentParser(prog="python -m scripts.spark.spark_readers", description=__doc__).parse_args()
    build_readers()
