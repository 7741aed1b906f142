"""Kafka side by side: an epoch that lands and processes messages, landing alone, and a log of ten thousand landings.

All systems read the same topic of a real broker, in turns. `kafka_report.py` renders it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from bench.parts import Part, present
from bench.reports.statistics import Spread
from bench.reports.targets import Measure, Record, Target, against, faster
from bench.rounds import Plan, Say, run_workload
from bench.studies.many_landings import LANDINGS, many_landings
from bench.systems.topics import JARS, PINS, kafka_topic
from bench.workloads.workloads import WORKLOADS
from scripts.spark.maven_jars import are_there

WORKLOAD = WORKLOADS["keyed-1m"]
EPOCHS = ("milepost-kafka", "spark-kafka", "flink-kafka")
LANDING = ("milepost-landing", "spark-landing", "plain-consumer")
EPOCH, LANDED, LOG = "epoch/keyed-1m", "landing/messages", "log/landings"


def kafka_parts(mode: str) -> list[Part]:
    """The parts of `quick` (below 5 minutes on two calm cores) or `full` (below 20), in order. Raises KeyError."""
    rounds, landings = {"quick": (2, 1_000), "full": (5, LANDINGS)}[mode]
    return [
        _part(EPOCH, EPOCHS, Plan(warmups=3, rounds=rounds)),
        _part(LANDED, LANDING, Plan(warmups=2, rounds=rounds)),
        Part(LOG, partial(many_landings, landings)),
    ]


def _part(name: str, systems: Sequence[str], plan: Plan) -> Part:
    def measure(folder: Path, say: Say) -> Record:
        folder.mkdir(parents=True, exist_ok=True)
        there = [one for one in present(systems) if are_there(PINS, JARS) or not one.startswith(("spark-", "flink-"))]
        with kafka_topic(folder) as topic:

            def land(source: Path) -> None:
                say(f"{name}: writing the messages of {source.name}")
                topic.write(source)

            return run_workload(WORKLOAD, there, plan, folder, say, land=land)

    return Part(name, measure)


def _grown(figure: str) -> Measure:
    """The last point of the log over its first one."""

    def measure(record: Record) -> Spread:
        points = record["points"]
        return Spread.of([points[-1][figure] / points[0][figure]])

    return measure


KAFKA_TARGETS: Sequence[Target] = (
    Target("landing and epoch, 1 M keys: Structured Streaming", EPOCH, 2, faster("spark-", "milepost-kafka")),
    Target("landing and epoch, 1 M keys: PyFlink SQL", EPOCH, 2, faster("flink-", "milepost-kafka")),
    Target("messages stored as Parquet: Structured Streaming", LANDED, 1, faster("spark-", "milepost-landing")),
    Target(
        "landing, against the Python client that stores nothing",
        LANDED,
        2,
        against("milepost-landing", "plain-consumer"),
        at_most=True,
    ),
    *(
        Target(f"log: {says}, the last landings against the first", LOG, 1.2, _grown(figure), at_most=True)
        for says, figure in (
            ("time of a landing", "landing_ms"),
            ("requests of a landing", "landing_requests"),
            ("time of an epoch", "epoch_ms"),
            ("time of `status`", "status_ms"),
        )
    ),
)
