"""Fetches the jars of the Kafka broker that tests start: `python -m scripts.kafka_jars`.

Only where Maven Central gives no answer are they not fetched. The last line of `make test-all` then says why.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.bootstrap import ROOT, say
from scripts.spark.maven_jars import are_there, fetch_or_stop, note_unreached, pinned_jars, repository_url

PINS = ROOT / "jars-kafka.txt"
JARS = ROOT / ".jars-kafka"
UNREACHED = ROOT / ".milepost" / "kafka-jars-unreached.txt"


def jars_are_there() -> bool:
    """Return whether exactly the pinned jars are there."""
    return are_there(PINS, JARS)


def unreached() -> str | None:
    """Return why the last attempt to fetch them reached no repository; None: it did, or there was none."""
    return UNREACHED.read_text(encoding="utf-8").strip() if UNREACHED.exists() else None


def fetch() -> None:
    """Fetch what is missing. Where no repository answers, keep the reason."""
    UNREACHED.unlink(missing_ok=True)
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


def closing_words() -> str | None:
    """Return what `make test-all` says last of the Kafka broker; None: it ran."""
    reason = unreached()
    return None if reason is None else f"a Kafka broker DID NOT RUN, Maven Central was not reached: {reason}"


if __name__ == "__main__":
    fetch()
