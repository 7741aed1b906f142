"""Epochs that leave rows in flight give what epochs that never do give, row for row (DESIGN 4.3)."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from milepost.epoch.plan import EpochAlignment
from milepost.protocol.exchange.watermarks import END_OF_TIME_US
from milepost.protocol.records.object_store import StoreConfig
from milepost.spark.wire.exchange import BufferLimits
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles
from milepost_testkit.tasks.clocks import ticking
from milepost_testkit.tasks.dataplane import DELAY_US, FIRST, MINUTE_US, SCHEMA, DataPlane

FINAL = EpochAlignment(None, None, 0, True)
SMALL = BufferLimits(bytes=10**6, rows=3)
APPENDED = ("unique", "unique.late", "hourly", "hourly.late", "steady", "steady.late", "longer", "longer.late")


def cut(timeout_ms: int) -> EpochAlignment:
    return EpochAlignment(timeout_ms, None, 0, False)


def events(seed: int, epoch: int, count: int) -> list[pa.Table]:
    """Two source subtasks' rows of one epoch: event time goes on with epochs, out of order, some late, some twice."""
    chance = random.Random(f"{seed}/{epoch}")
    rows = []
    for _ in range(count):
        minute = epoch * 20 + chance.randint(-25, 25) - (60 if chance.random() < 0.1 else 0)
        rows.append({"k": chance.choice("abcdefgh"), "id": chance.randint(0, 4 * count), "t": minute * MINUTE_US})
    table = pa.table({name: pa.array([row[name] for row in rows]) for name in SCHEMA.names}).cast(SCHEMA)
    return [table.slice(0, count // 2), table.slice(count // 2)]


def nothing() -> list[pa.Table]:
    return [SCHEMA.empty_table()]


def counted(plane: DataPlane, node: str) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in plane.table(node))


def newest(plane: DataPlane, node: str) -> dict[Any, Any]:
    return {row["k"]: row for row in plane.table(node)}


def open_plane(folder: str | Path, name: str) -> DataPlane:
    return DataPlane(LocalStore(StoreConfig(url=Path(folder, name).as_uri())))


def assert_equal(actual: DataPlane, expected: DataPlane) -> None:
    for node in APPENDED:
        assert counted(actual, node) == counted(expected, node), node
    assert newest(actual, "totals") == newest(expected, "totals")
    for uid in ("unique", "hourly", "totals", "steady", "longer"):
        assert actual.state(uid) == expected.state(uid), uid


@pytest.mark.deep
@profiles.examples(share=0.06, suppress_health_check=list(HealthCheck))
@given(
    seed=st.integers(0, 10**6),
    timeouts=st.lists(st.integers(1, 60), min_size=4, max_size=4),
    parallelism=st.lists(st.integers(1, 4), min_size=6, max_size=6),
    rows=st.integers(0, 40),
)
def test_an_unaligned_run_equals_the_aligned_one_also_when_it_is_rescaled(
    seed: int, timeouts: list[int], parallelism: list[int], rows: int
) -> None:
    """Two levels, rows in flight on both, another number of subtasks in each epoch; then drained to the end."""
    with tempfile.TemporaryDirectory() as folder:
        aligned, unaligned = open_plane(folder, "aligned"), open_plane(folder, "unaligned")
        for epoch, timeout_ms in enumerate(timeouts):
            sources = events(seed, epoch, rows)
            aligned.epoch(sources, parallelism=2)
            unaligned.epoch(
                sources, parallelism=parallelism[epoch], alignment=cut(timeout_ms), clock=ticking(1), limits=SMALL
            )
        unaligned.epoch(nothing(), parallelism=parallelism[4], alignment=cut(5), clock=ticking(1), limits=SMALL)
        for plane in (aligned, unaligned):
            plane.epoch(nothing(), parallelism=parallelism[5])
        assert unaligned.in_flight == 0
        assert_equal(unaligned, aligned)
        for plane in (aligned, unaligned):
            plane.epoch(nothing(), parallelism=2, alignment=FINAL)
            assert {one for state in plane.states.values() for one in state.firing} == {END_OF_TIME_US}
        assert_equal(unaligned, aligned)


@pytest.fixture
def plane(tmp_path: Path) -> DataPlane:
    return open_plane(tmp_path, "store")


@pytest.mark.deep
def test_every_epoch_makes_progress_even_when_its_time_is_over_at_once(plane: DataPlane) -> None:
    """At least one buffer of each operator with input is processed before the clock is looked at."""
    plane.epoch(events(1, 0, 60), alignment=cut(1), clock=ticking(10_000), limits=SMALL)
    left = plane.in_flight
    assert left > 0
    for _ in range(200):
        processed = {uid: [ack["processed_bytes"] for ack in acks] for uid, acks in plane.acks.items()}
        assert any(size for sizes in processed.values() for size in sizes)
        if not plane.in_flight:
            break
        plane.epoch(nothing(), alignment=cut(1), clock=ticking(10_000), limits=SMALL)
        for uid in ("unique", "hourly"):
            before = plane.acks[uid]
            assert all(ack["processed_bytes"] for ack in before if ack["channel"] is not None), uid
    assert plane.in_flight == 0


@pytest.mark.deep
def test_an_acknowledgement_says_what_it_left_in_flight(plane: DataPlane) -> None:
    plane.epoch(events(5, 0, 60), alignment=cut(1), clock=ticking(10_000), limits=SMALL)
    acks = [ack for item in plane.acks.values() for ack in item]
    assert any(ack["unaligned"] for ack in acks)
    for ack in acks:
        assert ack["unaligned"] == (ack["channel"] is not None)
        if ack["channel"] is not None:
            assert ack["channel"]["buffers"] >= 1 and ack["channel"]["signature"] == "made so"
            assert ack["channel"]["key"].startswith(f"{FIRST}channel/")
            assert ack["firing_us"] is None, "rows without a stamp are in flight, so nothing may fire"


def test_the_operators_of_a_task_share_one_file_of_channel_state(plane: DataPlane) -> None:
    plane.epoch(events(2, 0, 60), parallelism=1, alignment=cut(1), clock=ticking(10_000), limits=SMALL)
    unique, hourly = plane.states["unique"].channels[0], plane.states["hourly"].channels[0]
    assert unique is not None and hourly is not None
    assert unique.key == hourly.key and unique.buffers > 0 and hourly.buffers > 0
    assert plane.store.stat(unique.key).size == unique.size


@pytest.mark.deep
def test_an_epoch_with_time_to_spare_is_aligned_and_writes_no_channel_state(plane: DataPlane) -> None:
    plane.epoch(events(3, 0, 60), alignment=cut(10**9), clock=ticking(1), limits=SMALL)
    assert plane.in_flight == 0 and not list(plane.store.list(f"{FIRST}channel/"))
    assert not any(ack["unaligned"] for acks in plane.acks.values() for ack in acks)


@pytest.mark.deep
def test_the_last_epoch_leaves_nothing_in_flight_whatever_its_budget(plane: DataPlane) -> None:
    plane.epoch(events(4, 0, 60), alignment=cut(1), clock=ticking(10_000), limits=SMALL)
    assert plane.in_flight
    final = EpochAlignment(aligned_timeout_ms=1, epoch_budget_ms=1, started_ms=0, final=True)
    plane.epoch(nothing(), alignment=final, clock=ticking(10_000))
    assert plane.in_flight == 0


@pytest.mark.deep
def test_rows_in_flight_keep_the_lateness_they_were_read_with(plane: DataPlane) -> None:
    """DESIGN 4.3: a row that was on time when it was read stays on time, however long it was in flight."""
    slow, fast = cut(1), cut(10**9)
    minute = [0, 1, 2, 3, 300]
    table = pa.table({"k": ["a"] * 5, "id": range(5), "t": [one * MINUTE_US for one in minute]}).cast(SCHEMA)
    plane.epoch([table], parallelism=1, alignment=slow, clock=ticking(10_000), limits=BufferLimits(10**6, rows=1))
    assert plane.watermark_us == 300 * MINUTE_US - DELAY_US
    assert plane.states["hourly"].firing == (None,)
    plane.epoch(nothing(), parallelism=1, alignment=fast, clock=ticking(1))
    assert not plane.table("hourly.late") and not plane.table("unique.late")
    assert [(row["n"], row["window_start"].hour) for row in plane.table("hourly")] == [(4, 0)]


@pytest.mark.deep
def test_another_order_of_arrival_changes_nothing(tmp_path: Path) -> None:
    """I12: an aligned epoch is a pure function of the plan: equal attempts acknowledge equally."""
    planes = [open_plane(tmp_path, name) for name in ("one", "two")]
    for plane in planes:
        plane.epoch(events(5, 0, 60), limits=SMALL)
        plane.epoch(events(5, 1, 60), limits=SMALL)
    assert planes[0].answers == planes[1].answers
    assert planes[0].outputs.keys() == planes[1].outputs.keys()
