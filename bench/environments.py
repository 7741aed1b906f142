"""Builds the further environments of the benchmark, and gets jars: `python -m bench.environments`.

`.venv-bench` must be built. PyFlink may be impossible on a machine (no wheel for its Python or processor): then pip's
own words are kept, and the results give them as the reason why it was not measured. So it is with the jars by which
Spark reaches S3, 690 MB of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark

from bench.systems import topics
from bench.systems.far_store import JARS, PINS
from bench.systems.registry import FLINK, SPARK_KAFKA, TOOLS
from scripts import kafka_jars
from scripts.bootstrap import ROOT, Environment, build, check_disk, say
from scripts.spark.maven_jars import are_there, fetch_or_stop, note_unreached, repository_url
from scripts.unreached import Unreached

FOLDER = ROOT / ".milepost" / "bench"
_REASON = FOLDER / "flink-unavailable.txt"
_CAUSE = "Maven Central was not reached"
_UNREACHED = Unreached(FOLDER / "jars-s3a-unreached.txt", "Spark with S3", _CAUSE)
_UNREACHED_KAFKA = Unreached(FOLDER / "jars-kafka-unreached.txt", "Spark and Flink with Kafka", _CAUSE)
_KEPT_LINES = 4
KAFKA = "kafka"
"""In place of the name of an environment: all that the benchmark of Kafka needs."""

ENVIRONMENTS = {
    TOOLS: Environment(TOOLS, "bench/requirements.txt", False, 900_000_000, "Polars and Matplotlib, 620 MB on disk"),
    SPARK_KAFKA: Environment(
        SPARK_KAFKA,
        "bench/requirements-spark-kafka.txt",
        False,
        1_500_000_000,
        "Spark with a Kafka source, 700 MB on disk",
    ),
    FLINK: Environment(FLINK, "bench/requirements-flink.txt", False, 1_500_000_000, "PyFlink, 850 MB on disk"),
}


def unavailable() -> dict[str, str]:
    """Environments and jars that are not to be had here, and why."""
    files = {FLINK: _REASON, JARS.name: _UNREACHED.file, topics.JARS.name: _UNREACHED_KAFKA.file}
    return {name: file.read_text(encoding="utf-8").strip() for name, file in files.items() if file.exists()}


def main(arguments: list[str]) -> int:
    """Build what is missing; with the name of an environment, that one alone; with `kafka`, what that part needs."""
    if arguments == [KAFKA]:
        return _kafka()
    if arguments:
        if not ENVIRONMENTS[arguments[0]].is_built():
            build(ENVIRONMENTS[arguments[0]])
        return 0
    _fetch_jars("by which Spark reaches S3, 690 MB", PINS, JARS, _UNREACHED)
    missing = [ENVIRONMENTS[name] for name in (TOOLS, FLINK) if not ENVIRONMENTS[name].is_built()]
    if not missing:
        return 0
    check_disk(missing)
    if not ENVIRONMENTS[TOOLS].is_built():
        build(ENVIRONMENTS[TOOLS])
    if not ENVIRONMENTS[FLINK].is_built():
        _try_flink()
    return 0


def _kafka() -> int:
    """Build what `python -m bench kafka` needs: a broker, and two rivals. What is not to be had is noted."""
    kafka_jars.fetch()
    _fetch_jars("by which Spark and Flink read Kafka, 17 MB", topics.PINS, topics.JARS, _UNREACHED_KAFKA)
    for name in (TOOLS, SPARK_KAFKA):
        if not ENVIRONMENTS[name].is_built():
            build(ENVIRONMENTS[name])
    if not ENVIRONMENTS[FLINK].is_built():
        _try_flink()
    return 0


def _fetch_jars(purpose: str, pins: Path, folder: Path, unreached: Unreached) -> None:
    """Fetch the missing jars. If no repository answers, store the reason."""
    if are_there(pins, folder):
        return
    repository = repository_url()
    if note_unreached(repository, pins, unreached) is not None:
        say(f"{folder.name}: {repository} gives no answer; the benchmark leaves out what needs them and says why")
        return
    say(f"{folder.name}: the jars {purpose}, from {repository}")
    (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    fetch_or_stop(pins, folder, ivy=ivy, repository=repository, command="make bench")


def _try_flink() -> None:
    """Build PyFlink's environment; what pip says when it cannot is kept."""
    command = [sys.executable, "-m", "bench.environments", FLINK]
    lines: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.strip())
    if process.returncode == 0:
        _REASON.unlink(missing_ok=True)
        return
    errors = [line for line in lines if line.startswith("ERROR")] or lines
    FOLDER.mkdir(parents=True, exist_ok=True)
    _REASON.write_text("\n".join(errors[-_KEPT_LINES:]) + "\n", encoding="utf-8")
    say(f"{FLINK} could not be built; the benchmark runs without it and says why")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
