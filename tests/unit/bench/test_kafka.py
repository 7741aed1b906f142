"""The messages of the Kafka part are the bids, of one size, and its report names what is missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from bench.studies.kafka import EPOCH, KAFKA_TARGETS, LANDED, LOG, kafka_parts
from bench.studies.kafka_report import render_kafka
from bench.studies.many_landings import many_landings
from bench.systems.registry import SYSTEMS
from bench.systems.topics import MESSAGE_BYTES, messages, rows_of
from bench.workloads.generate import write_epoch
from bench.workloads.shapes import Shape
from bench.workloads.workloads import WORKLOADS


def test_messages_are_the_bids_in_100_bytes(tmp_path: Path) -> None:
    write_epoch(Shape(1_000, rows=500), 1, tmp_path / "epoch")
    values = list(messages(tmp_path / "epoch"))
    assert {len(value) for value in values} == {MESSAGE_BYTES} and len(values) == rows_of(tmp_path / "epoch") == 500
    written = pq.read_table(tmp_path / "epoch").select(["auction", "price"]).to_pylist()
    found = [json.loads(value) for value in values]
    assert [{name: one[name] for name in ("auction", "price")} for one in found] == written
    assert len({one["id"] for one in found}) == 500


def record(*systems: str) -> dict[str, Any]:
    phases = {"plan_ms": 1, "total_ms": 2}
    figures = {"message_bytes": 1_000_000, "landing_s": 1.5, "phases": phases}
    epoch = {"wall_s": 2.0, "cpu_s": 1.0, "memory_bytes": 1, "largest_task_bytes": 1, "counted": True}
    epochs = [epoch | {"number": number, "figures": figures} for number in range(2)]
    return {
        "taken": "2026-11-29T10:00:00+00:00",
        "commit": "abc",
        "workload": WORKLOADS["keyed-1m"].to_json(),
        "rows": 10,
        "other_busy_cores": 0.0,
        "systems": {name: {"versions": {name: "1"}, "epochs": epochs} for name in systems},
    }


def test_the_report_has_both_sides_and_names_missed_targets() -> None:
    point = {
        "landings": 10,
        "landing_ms": 1,
        "landing_requests": 11,
        "epoch_ms": 1,
        "status_ms": 1,
        "stored_bytes": 9,
    }
    log = {"taken": "2026-11-29T10:00:00+00:00", "commit": "abc", "points": [point, point], "other_busy_cores": 0.0}
    document = {
        "mode": "quick",
        "machine": {"processor": "p", "cores": 2, "memory_gb": 24, "system": "Linux", "java": "21"},
        "unavailable": {},
        "parts": {
            EPOCH: record("milepost-kafka", "spark-kafka", "flink-kafka"),
            LANDED: record("milepost-landing", "spark-landing", "plain-consumer"),
            LOG: log | {"systems": {}, "fsck_ms": 1, "gc_ms": 1},
        },
    }
    text = render_kafka(document)
    for name in ("spark-kafka", "flink-kafka", "spark-landing", "plain-consumer"):
        assert SYSTEMS[name].says in text
    assert text.count("**missed**") == 2, "all systems are alike here, and ours must be twice as fast as two of them"


def test_each_target_is_of_a_part_that_is_measured() -> None:
    names = {part.name for part in kafka_parts("quick")}
    assert {target.part for target in KAFKA_TARGETS} == names == {part.name for part in kafka_parts("full")}


@pytest.mark.deep
def test_the_log_is_landed_and_compared(tmp_path: Path) -> None:
    found = many_landings(500, tmp_path, lambda text: None)
    assert [point["landings"] for point in found["points"]] == list(range(50, 501, 50))
