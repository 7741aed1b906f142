"""Print the last line of `make test-all`: what could not run, because this machine did not reach a server."""

from __future__ import annotations

import sys

from scripts import kafka_jars
from scripts.browser import environment
from scripts.fab import FAB
from scripts.older_versions import VERSIONS
from scripts.spark import spark_readers
from scripts.suite.rings import Part


def closing_line(part: Part) -> str:
    """Return the line for a run of one part of the ring."""
    missing = [
        words
        for words in (
            spark_readers.UNREACHED.closing_words(),
            VERSIONS.unreached.closing_words(),
            kafka_jars.UNREACHED.closing_words(),
            FAB.unreached.closing_words(),
            environment.UNREACHED.closing_words(),
        )
        if words is not None
    ]
    if not missing:
        ran = "all" if part.count == 1 else f"part {part.number} of {part.count}"
        return (
            f"test-all: {ran} ran, older versions of PySpark and Airflow, Spark with Delta's and Iceberg's jars, a "
            "Kafka broker, Airflow's FAB auth manager and a browser at hand"
        )
    return f"test-all: {'; '.join(missing)}"


if __name__ == "__main__":
    print(closing_line(Part.parse(sys.argv[1])))
