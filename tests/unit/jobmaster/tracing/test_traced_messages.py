"""A row that was made of messages is traced to topic, partition and offset."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from milepost.jobmaster import CheckpointReport, JobMaster, RowOrigin, Session
from milepost.jobspec.load.load import load_job
from milepost_testkit.commands.milepost_cli import milepost
from milepost_testkit.jobs.message_feed import MessageFeed
from milepost_testkit.runners.duckdb_tracer import duckdb_tracer
from milepost_testkit.runners.sparkless_runner import SparklessRunner

SPEC = """\
name: clicked
storage: ../store
sources:
  clicks:
    format: kafka
    bootstrap_servers: "broker:9092"
    topics: [clicks]
    value: {format: json}
    schema: {page: string, views: int64}
    bad_records: dead_letter
operators:
  - {uid: totals, kind: aggregate, inputs: [clicks], key: [page], aggregates: {n: count(*), s: sum(views)}}
sinks:
  - {name: totals, input: totals, format: parquet, path: ../lake/totals, mode: upsert}
"""
MESSAGES = (
    (b'{"page": "a", "views": 1}', 0),
    (b'{"page": "b", "views": 2}', 1),
    (b"no JSON", 0),
    (None, 0),  # a tombstone, which is no row
    (b'{"page": "a", "views": 4}', 1),
    (b'{"page": "a", "views": 8}', 0),
)

SHOWN = """\
totals at checkpoint 1
page  n   s
----  -  --
a     3  13

back to the input, over 1 epoch
step    kind       rows  selected by
------  ---------  ----  -----------
totals  aggregate     1  page, n, s
clicks  source        3  page

input rows of clicks: 3
topic   partition  offset  checkpoint  page  views
------  ---------  ------  ----------  ----  -----
clicks          0       0           1  a         1
clicks          0       3           1  a         8
clicks          1       1           1  a         4

proven: 3 input rows alone make this row
"""

CUT = """\
topic   partition  offset  checkpoint  page  views
------  ---------  ------  ----------  ----  -----
clicks          1       2           2  a        16

cut: the trace began there. What was read up to checkpoint 1 is not listed

state of totals at checkpoint 1
page  n   s
----  -  --
a     3  13

proven: 1 input row alone makes this row from the state at checkpoint 1
"""


@pytest.fixture
def feed(monkeypatch: pytest.MonkeyPatch) -> MessageFeed:
    made = MessageFeed(record_rows=4)
    monkeypatch.setattr("milepost.jobmaster.landing.open_sources.open_kafka_source", lambda *_, **__: made)
    return made


@pytest.fixture
def master(tmp_path: Path) -> JobMaster:
    (tmp_path / "config").mkdir()
    path = tmp_path / "config" / "clicked.yaml"
    path.write_text(SPEC)
    return JobMaster(load_job(str(path)))


def land_and_run(master: JobMaster) -> None:
    assert not master.landings.land().failed
    while isinstance(master.epochs.run(Session.cli(), SparklessRunner()), CheckpointReport):
        pass


def traced(master: JobMaster, values: Mapping[str, str]) -> RowOrigin:
    return master.tracing.origin("totals", values, duckdb_tracer())


def test_messages_are_named_by_topic_partition_and_offset(master: JobMaster, feed: MessageFeed) -> None:
    feed.add([(value, None, partition) for value, partition in MESSAGES])
    land_and_run(master)
    origin = traced(master, {"page": "a"})
    assert origin.is_proven
    assert {place.message for item in origin.inputs for place in item.places} == {
        ("clicks", 0, 0),
        ("clicks", 1, 1),
        ("clicks", 0, 3),
    }
    assert sorted(row["views"] for row in origin.inputs[0].listed.to_pylist()) == [1, 4, 8]


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a line of progress would be on stderr."""
    monkeypatch.setattr("milepost.cli.reading.why._SILENT_S", 600)


def test_the_command_shows_steps_places_and_values(master: JobMaster, feed: MessageFeed) -> None:
    feed.add([(value, None, partition) for value, partition in MESSAGES])
    land_and_run(master)
    shown = milepost("why", master.job.path, "totals", "page=a")
    assert (shown.exit_code, shown.error) == (0, [])
    assert shown.stdout == SHOWN
    document = milepost("why", master.job.path, "totals", "page=a", "--rows", "1", "--json").document()
    assert (document["proven"], document["problem"], document["row"]) == (True, None, {"page": "a", "n": 3, "s": 13})
    (clicks,) = document["inputs"]
    assert (clicks["source"], clicks["rows"], len(clicks["listed"])) == ("clicks", 3, 1)
    assert clicks["listed"][0]["message"] == {"topic": "clicks", "partition": 0, "offset": 0}


def test_a_list_that_is_not_proven_has_another_exit_code(master: JobMaster, feed: MessageFeed) -> None:
    feed.add([(value, None, partition) for value, partition in MESSAGES])
    land_and_run(master)
    spec = Path(master.job.path)
    spec.write_text(SPEC.replace("s: sum(views)", "s: max(views)"))
    shown = milepost("why", spec, "totals", "page=a")
    assert shown.exit_code == 1
    assert "input rows of clicks: 3" in shown.stdout
    assert "not proven: a replay of all recorded input with the current spec and code makes" in shown.stdout
    assert shown.stdout.endswith("The listed input rows are candidates\n")


@pytest.mark.parametrize("word", ["page", "=a"])
def test_a_value_without_a_column_is_refused(master: JobMaster, word: str) -> None:
    refused = milepost("why", master.job.path, "totals", word)
    assert (refused.exit_code, refused.error[0]) == (
        2,
        f"Error: expected COLUMN=VALUE, got '{word}'. Nothing was read.",
    )


@pytest.mark.long
def test_a_list_that_begins_at_a_checkpoint_shows_the_state_that_the_key_had(
    master: JobMaster, feed: MessageFeed
) -> None:
    feed.add([(value, None, partition) for value, partition in MESSAGES])
    land_and_run(master)
    feed.add([(b'{"page": "a", "views": 16}', None, 1)])
    land_and_run(master)
    shown = milepost("why", master.job.path, "totals", "page=a", "--since", "1")
    assert (shown.exit_code, shown.error) == (0, [])
    assert shown.stdout.endswith(CUT)
    cut = milepost("why", master.job.path, "totals", "page=a", "--since", "1", "--json").document()["cut"]
    assert cut == {
        "checkpoint_id": 1,
        "reason": "the trace began there",
        "state": {"totals": [{"page": "a", "n": 3, "s": 13}]},
    }
