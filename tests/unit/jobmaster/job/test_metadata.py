"""`_metadata`: what was written is read back, in every format; nothing in it leads out of the job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from milepost.dataflow.sources.event_times import RowsAhead
from milepost.epoch.metadata import CheckpointMetadata, decode_metadata
from milepost.epoch.task_times import TaskTimes
from milepost.epoch.throughput import ThroughputEstimate
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.errors import StateCorrupt
from milepost.state.buffers.channel_state import ChannelStateHandle
from tests.harness.jobs.job_log import KEY_HASH_SECRET
from tests.harness.jobs.sparkless_job import SparklessJob
from tests.harness.tasks.key_hashes import KEYED, UNKEYED

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
)


def read(format_: int) -> CheckpointMetadata:
    return decode_metadata((GOLDEN / f"metadata_format_{format_}.json").read_bytes(), "golden")


def unaligned(metadata: CheckpointMetadata) -> CheckpointMetadata:
    operator = replace(
        metadata.operators["hourly"],
        firing=(2_000_000_000, None),
        channels=(None, CHANNEL),
        processed_bytes=(9_000, 120),
    )
    sources = {name: replace(source, finished=False) for name, source in metadata.sources.items()}
    return replace(
        metadata,
        unaligned=True,
        held_back="max_in_flight: 3000 bytes are in flight, more than 1000",
        throughput=ThroughputEstimate(0.25, 12.5),
        operators={"hourly": operator},
        sources=sources,
    )


def passed_over(metadata: CheckpointMetadata) -> CheckpointMetadata:
    told = {
        "newest_event_us": 9_200_000_000,
        "ahead_rows": 3,
        "ahead": (RowsAhead("a.csv", 2, 253_402_300_799_000_000), RowsAhead("b.csv", 1, 9_300_000_000)),
        "furthest_us": 253_402_300_799_000_000,
        "ahead_since": 1,
        "skipped": {"hidden": 1, "bad_names": 1},
        "bad_names": ("dt=x/a.csv: column dt: 'x' of the key is not a date32[day]",),
    }
    return replace(metadata, sources={name: replace(one, **told) for name, one in metadata.sources.items()})


def keyed(metadata: CheckpointMetadata) -> CheckpointMetadata:
    operator = metadata.operators["hourly"]
    handles = tuple(replace(handle, hash_version=2) for handle in operator.handles)
    return replace(metadata, hasher=KEYED, operators={"hourly": replace(operator, handles=handles)})


def test_format_1_reads_as_an_aligned_epoch_without_rows_in_flight() -> None:
    """Retained checkpoints outlive the code that wrote them."""
    metadata = read(1)
    operator = metadata.operators["hourly"]
    assert (operator.firing, operator.channels, operator.processed_bytes) == ((2_000_000_000,) * 2, (None,) * 2, (0, 0))
    assert (metadata.unaligned, metadata.in_flight_bytes, metadata.final) == (False, 0, False)
    assert operator.firing_us == 2_000_000_000
    assert [len(handle.runs) for handle in operator.handles] == [1, 0]


def test_format_2_reads_without_the_names_of_what_ran() -> None:
    """Its signatures had types and aggregates, which are compared with the state schema since."""
    metadata = read(2)
    assert metadata == unaligned(read(1)) and metadata.code == {}
    document = json.loads((GOLDEN / "metadata_format_2.json").read_bytes())
    document["signatures"]["operators"] = {
        "hourly": {
            "kind": "aggregate",
            "key": [["origin", "string"], ["day", None]],
            "aggregates": {"n": ["count(*)", None]},
        }
    }
    signatures = decode_metadata(json.dumps(document).encode(), "golden").signatures
    assert signatures["operators"] == {"hourly": {"kind": "aggregate", "key": ["origin", "day"]}}


def test_format_3_reads_with_what_it_measured_and_no_more() -> None:
    """It measured no trigger, no start and no rows handed on; `plan_ms` was what is `begin_ms` since."""
    metadata = read(3)
    assert metadata == replace(unaligned(read(1)), code={"milepost": "c" * 64, "gaps: slow": "d" * 64})
    assert (metadata.started_ms, metadata.timings) == (None, {"begin_ms": 5})
    (task,) = metadata.tasks
    assert (task.level, task.subtask, task.attempt, task.process_ms, task.rows) == (1, 0, 0, 8, 0)
    unmeasured = (task.started_ms, task.total_ms, task.exchange_wait_ms, task.emit_ms, task.stage_ms, task.bytes)
    assert unmeasured == (None,) * 6


def test_format_4_reads_without_what_a_plan_passed_over() -> None:
    metadata = read(4)
    assert metadata.tasks == (TASK,)
    assert replace(metadata, started_ms=None, timings=read(3).timings, tasks=read(3).tasks) == read(3)
    (source,) = metadata.sources.values()
    assert (source.newest_event_us, source.ahead_rows, source.ahead) == (None, 0, ())
    assert (source.furthest_us, source.ahead_since) == (None, None)
    assert (source.skipped, source.bad_names) == ({}, ())
    assert metadata.hasher == UNKEYED


def test_format_5_is_what_is_written_now() -> None:
    """A change of the format fails here: it adds a file and keeps the old decoder."""
    body = (GOLDEN / "metadata_format_5.json").read_bytes()
    metadata = read(5)
    assert metadata == keyed(passed_over(read(4)))
    assert KEY_HASH_SECRET.encode() in body and KEY_HASH_SECRET not in repr(metadata)
    assert metadata.encode() == body.rstrip(b"\n")


def test_rows_in_flight_are_part_of_the_checkpoint() -> None:
    """I8: what a checkpoint needs is never garbage; the operator's firing watermark is its slowest subtask's."""
    metadata = read(5)
    assert metadata.in_flight_bytes == 3_000
    assert CHANNEL.key in set(metadata.references())
    assert metadata.operators["hourly"].firing_us is None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("format",), 6, "format 6, expected 1 to 5"),
        (("operators", "hourly", "firing"), [1], "firing has 1 entries for 2 subtasks"),
        (("operators", "hourly", "channels"), [None] * 3, "channels has 3 entries for 2 subtasks"),
        (("operators", "hourly", "channels", 1, "buffers"), 0, "buffers is 0"),
        (("operators", "hourly", "channels", 1, "key"), "../other/file", "key"),
        (("unaligned",), None, "unaligned"),
        (("key_hash_secret",), "ab" * 15, "the key hash secret is not 32 hexadecimal digits"),
        (("pace", "ms_per_source_byte"), 0, "ms_per_source_byte is 0"),
        (("started_ms",), -1, "started_ms: expected at least 0, got -1"),
        (("timings", "plan_ms"), "12", "plan_ms: expected an integer, got '12'"),
        (("tasks", 0, "sync_ms"), 1.5, "sync_ms: expected an integer"),
        (("tasks", 0, "buffers"), None, "lacks"),
        (("pace", "in_flight_ms"), -1, "in_flight_ms: expected at least 0, got -1"),
    ],
)
def test_a_document_that_does_not_fit_together_is_corrupt(path: tuple[Any, ...], value: Any, message: str) -> None:
    """Nothing read from the store is trusted (DESIGN 9)."""
    document = json.loads((GOLDEN / "metadata_format_5.json").read_bytes())
    place = document
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    if value is None:
        del place[path[-1]]
    with pytest.raises(StateCorrupt, match=message):
        decode_metadata(json.dumps(document).encode(), "golden")


def test_metadata_is_read_once_and_verify_reads_what_is_stored(tmp_path: Path) -> None:
    """The handle names the content by its hash, so what was read stays true; verify looks at the store itself."""
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
        job.master.verify()
