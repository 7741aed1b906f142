"""A job over a topic of a real Kafka broker: land, epoch, rollback, and what stops a landing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.kafka_server import KAFKA_IS_NOT_TO_BE_HAD, KafkaServer

pytestmark = pytest.mark.deep
if KAFKA_IS_NOT_TO_BE_HAD:
    pytest.skip("Maven Central was not reached; the last line of `make test-all` says so", allow_module_level=True)

SPEC = """\
name: clicks
storage: ../store
sources:
  clicks:
    format: kafka
    bootstrap_servers: "${env:KAFKA}"
    topics: [TOPIC]
    value: {format: json}
    schema: {user: string, n: int64}
    metadata: {sent: timestamp, at: offset}
    event_time: sent
    land: {max_rows: 40}
operators:
  - {uid: totals, kind: aggregate, inputs: [clicks], key: [user], aggregates: {rows: count(*), total: sum(n)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
checkpointing: {retained: {last: 50}}
"""


def job(folder: Path) -> JobMaster:
    return JobMaster(load_job(str(folder / "config" / "clicks.yaml")))


def epoch(folder: Path) -> int:
    result = job(folder).epochs.run(Session.cli(), SparklessRunner())
    assert not isinstance(result, NothingToDo)
    return int(result.checkpoint_id)


def totals(folder: Path) -> list[tuple[str, int, int]]:
    rows = job(folder).reports.read("totals").to_pylist()
    return sorted((row["user"], row["rows"], row["total"]) for row in rows)


def test_a_job_reads_each_message_once_and_again_after_a_rollback(
    tmp_path: Path, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    topic = kafka.new_topic(3)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "clicks.yaml").write_text(SPEC.replace("TOPIC", topic))
    produced = [{"user": f"u{number % 5}", "n": number} for number in range(300)]
    for first in (0, 150):
        part = produced[first : first + 150]
        kafka.produce(topic, {p: [json.dumps(row).encode() for row in part[p::3]] for p in range(3)})
        report = job(tmp_path).landings.land()
        assert not report.failed and sum(landing.rows for landing in report.landed) == 150
        checkpoint = epoch(tmp_path)
        seen = produced[: first + 150]
        expected = {user: [row["n"] for row in seen if row["user"] == user] for user in {"u0", "u1", "u2", "u3", "u4"}}
        assert totals(tmp_path) == sorted((user, len(n), sum(n)) for user, n in expected.items())
    kafka.delete_topic(topic)
    roll_back(job(tmp_path), checkpoint - 1)
    (failed,) = job(tmp_path).landings.land().failed
    assert (failed.error, failed.may_pass) == ("SourceUnreachable", True) and topic in failed.message
    epoch(tmp_path)
    assert totals(tmp_path) == sorted((user, len(n), sum(n)) for user, n in expected.items()), "Kafka is not needed"
    kafka.new_topic(name=topic)
    (failed,) = job(tmp_path).landings.land().failed
    assert (failed.error, failed.may_pass) == ("SourceReplaced", False)
