"""`_metadata` round-trips, and no key in it can point outside the job."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.codec.packing import pack, unpack
from milepost.epoch.metadata import decode_metadata
from milepost.epoch.subtask_shares import SubtaskShare
from milepost.epoch.timing.task_times import OperatorTimes, TaskTimes
from milepost.epoch.timing.throughput import ThroughputEstimate
from milepost.errors import StateCorrupt, StoreUnavailable
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.object_store import ObjectStore
from milepost.sources.bad_input import BadInput, BadRecordLocation
from milepost.sources.event_times import RowsAhead
from milepost.state.buffers.channel_state import ChannelStateHandle
from milepost.storage.object_cache import ObjectCache
from milepost.storage.requests import StoreRequests
from milepost.tables.records.committables import encode_schema
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.rows.key_hashes import KEY_HASH_SECRET, KEYED
from milepost_testkit.stores.faulty_store import Effect, Fault
from milepost_testkit.stores.job_stores import break_store

GOLDEN = Path(__file__).parent / "golden"
CHANNEL = ChannelStateHandle(
    key="chk-00000000000000000007/t00000000000000000031/channel/" + "b" * 64 + ".arrow",
    size=4_096,
    sha256="b" * 64,
    uid="hourly",
    key_groups=range(2, 4),
    buffers=3,
    bytes=3_000,
    oldest_us=1_500_000_000,
    signature="5" * 64,
)
TASK = TaskTimes(
    level=1,
    subtask=0,
    attempt=0,
    started_ms=1_700_000_000_950,
    total_ms=90,
    read_ms=None,
    exchange_wait_ms=10,
    restore_ms=7,
    process_ms=8,
    emit_ms=2,
    sync_ms=3,
    stage_ms=40,
    async_ms=45,
    async_wait_ms=6,
    rows=10,
    bytes=9_120,
    buffers=4,
    alignment_ms=1,
    in_flight_bytes=3_000,
    left_ms=None,
    requests=StoreRequests(puts=3, gets=2, sent_bytes=9_000, received_bytes=120),
    operators={"hourly": OperatorTimes(7, 8, 2, 3, async_ms=45, alignment_ms=1, from_ms=12, to_ms=34)},
)
SHARES = (
    SubtaskShare(node="flights", kind="source", level=0, subtask=0, rows_in=10, rows_out=10, bad_records=2, files=2),
    SubtaskShare(node="hourly", kind="window", level=1, subtask=0, rows_in=9, rows_out=1, late_rows=2),
    SubtaskShare(node="hourly", kind="window", level=1, subtask=1, rows_in=1, rows_out=0, late_rows=0, unaligned=True),
    SubtaskShare(node="hourly", kind="sink", level=1, subtask=0, rows_in=1, files=1, bytes=310),
)


LEFT = {"handles": [], "key": ["k"], "routing_key": ["k"], "schema": encode_schema(pa.schema([("k", pa.int64())]))}


BEFORE = {"restore_ms": 7, "process_ms": 8, "emit_ms": 2, "sync_ms": 3, "async_ms": 45, "alignment_ms": 1}


def golden() -> bytes:
    return (GOLDEN / "metadata.json").read_bytes().rstrip(b"\n")


def test_a_checkpoint_without_slices_is_read() -> None:
    document = json.loads(golden())
    document["tasks"] = pack([_without_slices(task) for task in unpack(document["tasks"])])
    assert decode_metadata(json.dumps(document).encode(), "earlier").tasks == (TASK,)


def _without_slices(task: dict[str, Any]) -> dict[str, Any]:
    operators = {uid: {k: v for k, v in one.items() if k != "slices"} for uid, one in task["operators"].items()}
    return task | {"operators": operators}


def test_metadata_round_trips_to_the_same_bytes() -> None:
    """With rows in flight, a source with skipped objects, and a hidden secret."""
    metadata = decode_metadata(golden(), "golden")
    assert metadata.encode() == golden()
    assert metadata.hasher == KEYED and KEY_HASH_SECRET not in repr(metadata)
    assert metadata.requests["begin"] == StoreRequests(1, 2, 0, 700, 5_000)
    assert (metadata.tasks, metadata.shares) == ((TASK,), SHARES)
    assert metadata.throughput == ThroughputEstimate(0.25, 12.5)
    operator, (source,) = metadata.operators["hourly"], metadata.sources.values()
    assert (operator.firing, operator.channels) == ((2_000_000_000, None), (None, CHANNEL))
    ahead = (RowsAhead("a.csv", 2, 253_402_300_799_000_000), RowsAhead("b.csv", 1, 9_300_000_000))
    assert (source.ahead, source.ahead_rows, source.ahead_since) == (ahead, 3, 1)
    places = (
        BadRecordLocation("a.csv", 7, "k", "is not an int64"),
        BadRecordLocation("b.csv", None, None, "opens a quote that is never closed"),
    )
    assert source.bad == BadInput(records=2, objects=1, total=9, first=places)
    assert source.skipped == {"hidden": 1, "bad_names": 1} and "dt=x/a.csv" in source.bad_names[0]


def test_a_checkpoint_without_horizons_is_continued() -> None:
    document = json.loads(golden())
    for name in ("horizon_ms", "empty"):  # nor were empty objects named
        del document["sources"]["flights"][name]
    source = decode_metadata(json.dumps(document).encode(), "golden").sources["flights"]
    assert (source.horizon_ms, source.empty) == (None, ())


def test_a_checkpoint_without_operator_spans_is_continued() -> None:
    document = json.loads(golden())
    document["tasks"] = pack([{**task, "operators": {"hourly": BEFORE}} for task in unpack(document["tasks"])])
    (task,) = decode_metadata(json.dumps(document).encode(), "golden").tasks
    assert task.operators["hourly"] == OperatorTimes(7, 8, 2, 3, async_ms=45, alignment_ms=1)


def test_rows_in_flight_are_part_of_the_checkpoint() -> None:
    """I8: what a checkpoint needs is never garbage; the operator's firing watermark is its slowest subtask's."""
    metadata = decode_metadata(golden(), "golden")
    assert metadata.in_flight_bytes == 3_000
    (record,) = metadata.tables["hourly"].records
    assert {CHANNEL.key, record.key} <= set(metadata.references())
    assert metadata.operators["hourly"].firing_us is None


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), 5),
        (("format",), "milepost.metadata/5"),
        (("format",), "milepost.metadata/7"),
        (("operators", "hourly", "tables"), {}),
        (("operators", "hourly", "tables", "left"), LEFT),
        (("operators", "hourly", "firing"), [1]),
        (("operators", "hourly", "channels"), [None] * 3),
        (("operators", "hourly", "channels", 1, "buffers"), 0),
        (("operators", "hourly", "channels", 1, "key"), "../other/file"),
        (("unaligned",), None),
        (("tables", "hourly", "records", 0, "key"), "../other/file"),
        (("tables", "hourly", "rows"), -1),
        (("key_hash_secret",), "ab" * 15),
        (("throughput", "ms_per_source_byte"), 0),
        (("started_ms",), -1),
        (("timings", "plan_ms"), "12"),
        (("tasks", 0, "sync_ms"), 1.5),
        (("tasks", 0, "buffers"), None),
        (("throughput", "in_flight_ms"), -1),
    ],
)
def test_a_document_that_does_not_fit_together_is_corrupt(path: tuple[Any, ...], value: Any) -> None:
    """Nothing read from the store is trusted (DESIGN 9)."""
    document = json.loads(golden())
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    if value is None:
        del place[path[-1]]
    with wording.raises(StateCorrupt):
        decode_metadata(json.dumps(document).encode(), "golden")


def test_metadata_that_another_thread_evicts_immediately_is_still_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints are read in parallel, and the cache is bounded."""
    job = SparklessJob.create(tmp_path)
    for name in ("a.csv", "b.csv"):
        job.land(name)
        job.epoch()
    context, read = JobContext(job.loaded()), ObjectCache.read
    older, newer = sorted(context.head().state.checkpoints, key=lambda one: one.checkpoint_id)
    newest = context.stored_metadata(newer)

    def overtaken(self: ObjectCache, store: ObjectStore, named: tuple[str, str, str], *reading: Any) -> Any:
        found = read(self, store, named, *reading)
        read(self, store, ("metadata", newer.metadata.key, "of another thread"), newer.metadata.size, lambda: newest)
        assert not self.has(store, named)
        return found

    monkeypatch.setattr("milepost.jobmaster.job.context._METADATA_BYTES", 0)
    monkeypatch.setattr(ObjectCache, "read", overtaken)
    assert context.metadata(older).checkpoint_id == older.checkpoint_id


def test_metadata_is_read_once_and_verify_reads_the_stored_objects(tmp_path: Path) -> None:
    """The handle has the content hash, so cached metadata stays valid. `verify` bypasses the cache."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.epoch()
    context = JobContext(job.loaded())
    checkpoint = context.head().state.checkpoints[0]
    first = context.metadata(checkpoint)
    file = job.folder / "store" / "small" / checkpoint.metadata.key
    file.write_bytes(b"{}")
    assert context.metadata(checkpoint) is first
    with pytest.raises(StateCorrupt):
        context.stored_metadata(checkpoint)
    with pytest.raises(StateCorrupt):
        job.master.reports.verify()


@pytest.mark.parametrize("object_", ["_metadata", "consumed/"])
def test_an_outage_is_not_reported_as_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, object_: str) -> None:
    """A person who believes that an object is broken rolls back to an older checkpoint."""
    job = SparklessJob.create(tmp_path)
    job.land("a.csv")
    job.epoch()
    outage = Fault(lambda operation, key: operation == "get" and f"/{object_}" in key, Effect.UNAVAILABLE)
    break_store(monkeypatch, job.context.store_config.url, outage)
    with pytest.raises(StoreUnavailable):
        job.master.reports.verify(deep=True)
    assert (
        outage.reached.is_set()
        and (verified := job.master.reports.verify(deep=True)).unasked == verified.discarded == ()
    )
