"""Fetch the jars of the Kafka broker that tests start: `python -m scripts.kafka_jars`.

If Maven Central does not answer, they are not fetched, and the last line of `make test-all` reports the reason.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.bootstrap import ROOT, say
from scripts.spark.maven_jars import are_there, fetch_or_stop, note_unreached, pinned_jars, repository_url
from scripts.unreached import Unreached

PINS = ROOT / "jars-kafka.txt"
JARS = ROOT / ".jars-kafka"
UNREACHED = Unreached(
    ROOT / ".milepost" / "kafka-jars-unreached.txt", "a Kafka broker", "Maven Central was not reached"
)


def jars_are_there() -> bool:
    """Return whether exactly the pinned jars are there."""
    return are_there(PINS, JARS)


def fetch() -> None:
    """Fetch the missing jars. If no repository answers, store the reason."""
    UNREACHED.clear()
    if jars_are_there():
        return
    repository = repository_url()
    reason = note_unreached(repository, PINS, UNREACHED)
    if reason is not None:
        say(f"{JARS.name} is not fetched: {repository} gives no answer ({reason})")
        return
    say(f"{JARS.name}: {len(pinned_jars(PINS))} jars of 43 MB from {repository}")
    pyspark = Path(sys.prefix) / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    ivy = next((pyspark / "pyspark" / "jars").glob("ivy-*.jar"))
    fetch_or_stop(PINS, JARS, ivy=ivy, repository=repository, command="make test-all")


if __name__ == "__main__":
    fetch()
