"""`KAFKA.md` from the raw results: a pure function of them, so that it can be built again."""

from __future__ import annotations

from typing import Any

from bench.reports.reasons import KAFKA_REASONS
from bench.reports.report import (
    failures,
    judged,
    memory,
    phase_section,
    quartiles,
    smoke,
    stamps,
    table_lines,
    versions,
)
from bench.reports.statistics import Spread, ratio
from bench.reports.targets import Parts, Record, counted, walls
from bench.studies.kafka import EPOCH, KAFKA_TARGETS, LANDED, LOG, kafka_parts
from bench.systems.registry import entry_of
from bench.systems.topics import MESSAGE_BYTES, PARTITIONS

_NOTES = {
    EPOCH: (
        "JSON is decoded, rows are grouped by an int64 key, and the changed keys are published. Ours lands the "
        "messages first, as an object of the log, and reads them from there. Flink publishes CSV, the others Parquet."
    ),
    LANDED: (
        "Messages are stored as they are, with partition, offset and timestamp, as Parquet with zstd. Ours is durable "
        "and chained when its time ends. The Python client drops what it has consumed: it is what the landing could at "
        "best be, and what it stores for the comparison is outside of its time."
    ),
}


def render_kafka(document: dict[str, Any]) -> str:
    """The whole text. Args: document: raw results as `command.py` stores them."""
    parts: Parts = document["parts"]
    measured = {name: record for name, record in parts.items() if "failed" not in record}
    sections = [
        _head(document, measured),
        failures(document),
        _targets(document["mode"], measured),
        *(_side_by_side(name, measured[name]) for name in (EPOCH, LANDED) if name in measured),
        _phases(measured),
        _log(measured),
        stamps(parts),
        versions(document, measured),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _head(document: dict[str, Any], measured: Parts) -> str:
    machine, mode = document["machine"], document["mode"]
    commits = " and ".join(dict.fromkeys(one["commit"] or "unknown" for one in document["parts"].values()))
    where = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, {machine['system']}"
    made = f"Written by `make bench-kafka MODE={mode}`, not by hand; how: [README.md](README.md#kafka)"
    lines = [
        "# Kafka, side by side",
        "",
        f"{made}; raw figures: [results-kafka.json](results-kafka.json).",
        "",
        f"Measured on {where} at {commits or 'no commit'}. The broker has the same two cores.",
    ]
    return "\n".join([*lines, *smoke(measured)])


def _targets(mode: str, parts: Parts) -> str:
    rows = judged(
        KAFKA_TARGETS, parts, KAFKA_REASONS, {part.name for part in kafka_parts(mode)}, "make bench-kafka MODE=full"
    )
    text = (
        "Medians over rounds of (their wall time / ours); in rows “against” something, of (ours / that). Both sides "
        "were measured in one part, in turns. The reasons of what is missed are written by hand."
    )
    return "\n".join(["## Targets", "", text, "", *rows])


def _side_by_side(name: str, record: Record) -> str:
    workload, ours = record["workload"], next(iter(record["systems"]))
    rows = []
    for system in record["systems"]:
        epochs, wall = counted(record, system), Spread.of(walls(record, system))
        rows.append(
            (
                entry_of(system).says,
                f"{wall.median:.2f}",
                quartiles(wall),
                f"{ratio(walls(record, system), walls(record, ours)).median:.2f}",
                f"{Spread.of([epoch['cpu_s'] for epoch in epochs]).median:.2f}",
                f"{workload['rows'] / wall.median:,.0f}",
                _stored(record, system),
                memory(system, epochs),
            )
        )
    number = len(counted(record, ours))
    says = (
        f"{workload['rows']:,} messages of {MESSAGE_BYTES} bytes per epoch in {PARTITIONS} partitions, "
        f"{workload['keys']:,} keys, seed {workload['seed']}; {number} rounds after "
        f"{len(record['systems'][ours]['epochs']) - number}. All gave the same {record['rows']:,} rows."
    )
    head = ("system", "wall s", "25–75 %", "× first row", "CPU s", "messages/s", "stored MB", "memory MB")
    title = {EPOCH: "An epoch: messages to a table", LANDED: "Landing alone"}[name]
    return "\n".join([f"## {title}", "", _NOTES[name], "", says, "", *table_lines(head, rows)])


def _stored(record: Record, system: str) -> str:
    """Megabytes of messages that an epoch stores."""
    sizes = [epoch["figures"].get("message_bytes") for epoch in record["systems"][system]["epochs"]]
    if len(sizes) < 2 or not all(sizes):
        return "–"
    return f"{(sizes[-1] - sizes[0]) / (len(sizes) - 1) / 1e6:.1f}"


def _phases(parts: Parts) -> str:
    record = parts.get(EPOCH)
    if record is None or "milepost-kafka" not in record["systems"]:
        return ""
    epochs = counted(record, "milepost-kafka")
    landing = Spread.of([epoch["figures"]["landing_s"] * 1_000 for epoch in epochs]).median
    text = f"Milliseconds by phase, medians. Before them the landing takes {landing:,.0f}."
    return phase_section(text, {entry_of("milepost-kafka").says: epochs})


def _log(parts: Parts) -> str:
    record = parts.get(LOG)
    if record is None:
        return ""
    rows = [
        (
            f"{point['landings']:,}",
            f"{point['landing_ms']:.1f}",
            f"{point['landing_requests']:.0f}",
            f"{point['status_ms']:.1f}",
            f"{point['epoch_ms']:.1f}",
            f"{point['stored_bytes'] / 1e6:.1f}",
        )
        for point in record["points"]
    ]
    text = (
        "Landings of 100 generated rows each, with an epoch without Spark after every fiftieth; medians of those since "
        f"the row before. In the end `fsck` takes {record['fsck_ms'] / 1_000:.1f} s and `gc` "
        f"{record['gc_ms'] / 1_000:.1f} s."
    )
    head = ("landings", "landing ms", "its requests", "`status` ms", "epoch ms", "log MB")
    return "\n".join(["## Landing after landing", "", text, "", *table_lines(head, rows)])
