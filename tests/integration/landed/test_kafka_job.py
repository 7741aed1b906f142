"""A job over a topic of a real Kafka broker: land, epoch, rollback, and what stops a landing."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

from milepost.jobmaster import JobMaster, NothingToDo, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.jobs.avro_messages import avro, record_schema
from milepost_testkit.jobs.backfills import back_fill
from milepost_testkit.jobs.rollbacks import roll_back
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.servers.kafka_server import KAFKA_IS_NOT_TO_BE_HAD, KafkaServer
from milepost_testkit.servers.schema_registry import schema_registry

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
    kafka.new_topic(2, topic)
    again = [{"user": f"u{number % 5}", "n": number} for number in range(300, 360)]
    kafka.produce(topic, {p: [json.dumps(row).encode() for row in again[p::2]] for p in range(2)})
    (failed,) = job(tmp_path).landings.land().failed
    assert (failed.error, failed.may_pass) == ("PositionExpired", False)
    plan = job(tmp_path).gaps.plan("clicks", "earliest")
    assert any(change.startswith(f"{topic}.id: ") for change in plan.changes)
    assert any(line.startswith(f"topic {topic}: its offsets begin at 0 again.") for line in plan.text)
    job(tmp_path).gaps.approve(plan.approved, "by a test")
    assert not job(tmp_path).landings.land().failed
    while not isinstance(job(tmp_path).epochs.run(Session.cli(), SparklessRunner()), NothingToDo):
        pass
    assert totals(tmp_path) == duckdb_totals([*produced, *again])


def duckdb_totals(rows: list[dict[str, object]], total: str = "sum(n)") -> list[tuple[str, int, int]]:
    """Return the table of the job over these messages, as DuckDB computes it."""
    table = pa.Table.from_pylist(rows)
    with duckdb.connect() as connection:
        connection.register("messages", table)
        return connection.sql(
            f"SELECT user, count(*), CAST({total} AS BIGINT) FROM messages GROUP BY user ORDER BY user"
        ).fetchall()


def test_the_newest_message_of_a_key_is_the_newest_landed_also_in_a_topic_that_was_created_again(
    tmp_path: Path, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The offsets of the new topic begin at 0, so offsets alone take its messages for older ones."""
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    topic = kafka.new_topic(2)
    spec = SPEC.replace("TOPIC", topic).replace("at: offset", "at: offset, part: partition, record: sequence")
    spec = spec.replace(
        "operators:\n",
        "operators:\n"
        "  - {uid: newest, kind: latest, inputs: [clicks], key: [user], sequence_by: [record, part, at]}\n"
        "  - {uid: by_offset, kind: latest, inputs: [clicks], key: [user], sequence_by: [part, at]}\n",
    ).replace(
        "sinks:\n",
        "sinks:\n"
        "  - {name: newest, input: newest, format: parquet, path: ../lake/newest, mode: upsert}\n"
        "  - {name: by_offset, input: by_offset, format: parquet, path: ../lake/by_offset, mode: upsert}\n",
    )
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "clicks.yaml").write_text(spec)

    def produced(first: int, count: int) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = [{"user": f"u{n % 4}", "n": n} for n in range(first, first + count)]
        kafka.produce(topic, {p: [json.dumps(row).encode() for row in rows[p::2]] for p in (0, 1)})
        return rows

    def newest(table: str) -> list[tuple[str, int]]:
        return sorted((row["user"], row["n"]) for row in job(tmp_path).reports.read(table).to_pylist())

    def land_and_process() -> None:
        assert not job(tmp_path).landings.land().failed
        while not isinstance(job(tmp_path).epochs.run(Session.cli(), SparklessRunner()), NothingToDo):
            pass

    before = produced(0, 60)
    land_and_process()
    assert newest("newest") == newest("by_offset") == newest_of(before)
    kafka.delete_topic(topic)
    kafka.new_topic(2, topic)
    after = produced(100, 20)
    job(tmp_path).gaps.approve(job(tmp_path).gaps.plan("clicks", "earliest").approved, "by a test")
    land_and_process()
    assert newest("newest") == newest_of([*before, *after])
    assert newest("by_offset") == newest_of(before)


def newest_of(rows: list[dict[str, object]]) -> list[tuple[str, int]]:
    """Return the newest `n` of each user, as DuckDB computes it."""
    table = pa.Table.from_pylist(rows)
    with duckdb.connect() as connection:
        connection.register("messages", table)
        return connection.sql('SELECT "user", max(n) FROM messages GROUP BY 1 ORDER BY 1').fetchall()


def test_the_example_of_a_topic_reads_all_messages_and_keeps_a_poison_message_apart(
    tmp_path: Path, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    kafka.new_topic(2, "orders")
    good = [json.dumps({"customer": f"c{n % 3}", "amount": "1.50"}).encode() for n in range(30)]
    kafka.produce("orders", {0: good[:20], 1: [*good[20:], b'{"customer": "c1", "amount": "much"}']})
    spec = tmp_path / "config" / "examples" / "kafka_topic.yaml"
    spec.parent.mkdir(parents=True)
    shutil.copy(REPOSITORY / "config" / "examples" / spec.name, spec)
    master = JobMaster(load_job(str(spec)))
    assert not master.landings.land().failed
    assert not isinstance(master.epochs.run(Session.cli(), SparklessRunner()), NothingToDo)
    rows = master.reports.read("totals").select(["customer", "orders", "total"]).sort_by("customer").to_pylist()
    assert [tuple(row.values()) for row in rows] == [(f"c{n}", 10, Decimal("15.00")) for n in range(3)]
    (bad,) = master.reports.read("bad_orders").to_pylist()
    place = {name: bad[name] for name in ("topic", "partition", "offset", "column", "value")}
    assert place == {"topic": "orders", "partition": 1, "offset": 10, "column": "amount", "value": "much"}


def test_without_its_topic_a_job_goes_back_and_backfills_and_moves_with_every_landed_row(
    tmp_path: Path, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    topic = kafka.new_topic(3)
    spec = tmp_path / "config" / "clicks.yaml"
    spec.parent.mkdir()
    spec.write_text(SPEC.replace("TOPIC", topic))
    produced: list[dict[str, object]] = [{"user": f"u{number % 7}", "n": number} for number in range(200)]
    seen: dict[int, list[dict[str, object]]] = {}
    for first in range(0, 200, 50):
        part = produced[first : first + 50]
        kafka.produce(topic, {p: [json.dumps(row).encode() for row in part[p::3]] for p in range(3)})
        assert not job(tmp_path).landings.land().failed
        if first < 150:  # the last messages are landed and not processed
            seen[epoch(tmp_path)] = produced[: first + 50]
    location = job(tmp_path).savepoints.create("saved", target=str(tmp_path / "saved"), with_input=True).location
    kafka.delete_topic(topic)

    for checkpoint, rows in sorted(seen.items(), reverse=True):
        roll_back(job(tmp_path), checkpoint)
        assert totals(tmp_path) == duckdb_totals(rows)
    while not isinstance(job(tmp_path).epochs.run(Session.cli(), SparklessRunner()), NothingToDo):
        pass
    assert totals(tmp_path) == duckdb_totals(produced)

    spec.write_text(spec.read_text().replace("total: sum(n)", "total: max(n)"))
    back_fill(job(tmp_path), SparklessRunner(), from_checkpoint=0)
    assert totals(tmp_path) == duckdb_totals(produced, "max(n)")

    other = tmp_path / "other"
    (other / "config").mkdir(parents=True)
    moved = SPEC.replace("TOPIC", topic).replace("name: clicks", "name: moved", 1)
    (other / "config" / "clicks.yaml").write_text(moved)
    job(other).restores.start(location)
    assert totals(other) == duckdb_totals(produced[:150])
    epoch(other)
    assert totals(other) == duckdb_totals(produced)


def test_a_job_goes_on_after_messages_that_expired_before_they_were_landed(
    tmp_path: Path, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    topic = kafka.new_topic(2)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "clicks.yaml").write_text(SPEC.replace("TOPIC", topic))
    produced = [{"user": f"u{number % 3}", "n": number} for number in range(90)]
    for first in (0, 30, 60):  # partition 1 has what is divisible by 5, and loses nothing
        part = produced[first : first + 30]
        divided = {p: [json.dumps(row).encode() for row in part if (row["n"] % 5 == 0) == (p == 1)] for p in (0, 1)}
        kafka.produce(topic, divided)
        if first == 0:
            assert not job(tmp_path).landings.land().failed
            epoch(tmp_path)
    next(iter(kafka.admin.delete_records([TopicPartition(topic, 0, 40)]).values())).result(30)
    (failed,) = job(tmp_path).landings.land().failed
    assert failed.error == "PositionExpired" and failed.hint.endswith(
        "milepost land clicks --source clicks --resume-from earliest"
    )
    plan = job(tmp_path).gaps.plan("clicks", "earliest")
    assert not any("begin at 0" in line for line in plan.text)
    assert plan.changes[0] == f"{topic}.partitions.0.next: 24 -> 40"
    job(tmp_path).gaps.approve(plan.approved, "by a test")
    assert not job(tmp_path).landings.land().failed
    epoch(tmp_path)
    in_partition_0 = [row for row in produced if row["n"] % 5]
    rows = [row for row in produced if row["n"] % 5 == 0] + in_partition_0[:24] + in_partition_0[40:]
    assert len(rows) == 74 and totals(tmp_path) == duckdb_totals(rows)


def test_a_restored_disk_is_detected_and_the_rows_that_it_lost_are_void(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka = KafkaServer(tmp_path / "kafka")
    kafka.start()
    monkeypatch.setenv("KAFKA", kafka.bootstrap)
    try:
        topic = kafka.new_topic(2)
        (tmp_path / "config").mkdir()
        (tmp_path / "config" / "clicks.yaml").write_text(SPEC.replace("TOPIC", topic))

        def produce(first: int, count: int) -> list[dict[str, object]]:
            rows: list[dict[str, object]] = [{"user": f"u{n % 5}", "n": n} for n in range(first, first + count)]
            kafka.produce(topic, {p: [json.dumps(row).encode() for row in rows[p::2]] for p in (0, 1)})
            return rows

        true = produce(0, 50)
        assert not job(tmp_path).landings.land().failed
        before = epoch(tmp_path)
        kafka.stop()
        data, copy = kafka.directory / "data", kafka.directory / "copy"
        shutil.copytree(data, copy)
        kafka.start()
        produce(100, 20)
        assert not job(tmp_path).landings.land().failed
        epoch(tmp_path)
        kafka.stop()
        shutil.rmtree(data)
        shutil.move(copy, data)
        kafka.start()
        true += produce(200, 90)
        (failed,) = job(tmp_path).landings.land().failed
        assert failed.error == "SourceWentBack"
        job(tmp_path).voids.approve(job(tmp_path).voids.plan("clicks", "auto").approved, "by a test")
        assert not job(tmp_path).landings.land().failed
        roll_back(job(tmp_path), before)
        while not isinstance(job(tmp_path).epochs.run(Session.cli(), SparklessRunner()), NothingToDo):
            pass
        assert totals(tmp_path) == duckdb_totals(true)
    finally:
        kafka.remove()


def test_avro_messages_are_read_without_kafka_and_without_the_registry(
    tmp_path: Path, kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kafka.new_topic(3)
    schema = record_schema(user="string", n="int")
    (tmp_path / "config").mkdir()
    value = 'value: {format: avro, registry: {url: "${env:REGISTRY}"}}'
    spec = SPEC.replace("TOPIC", topic).replace("value: {format: json}", value)
    (tmp_path / "config" / "clicks.yaml").write_text(spec)
    rows = [{"user": f"u{number % 5}", "n": number} for number in range(150)]
    kafka.produce(topic, {p: [avro(7, schema, row) for row in rows[p::3]] for p in range(3)})
    with schema_registry() as registry:
        registry.register(7, schema, f"{topic}-value")
        monkeypatch.setenv("KAFKA", kafka.bootstrap)
        monkeypatch.setenv("REGISTRY", registry.url)
        report = job(tmp_path).landings.land()
        assert not report.failed and registry.asked == ["/schemas/ids/7"]
    kafka.delete_topic(topic)
    while not isinstance(job(tmp_path).epochs.run(Session.cli(), SparklessRunner()), NothingToDo):
        pass
    users = {row["user"] for row in rows}
    expected = {user: [int(str(row["n"])) for row in rows if row["user"] == user] for user in users}
    assert totals(tmp_path) == sorted((str(user), len(n), sum(n)) for user, n in expected.items())
