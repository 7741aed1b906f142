"""Shares of a record: the limits hold, and every partition that is behind comes forward."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.codec import dump
from milepost.sources.landed.kafka.positions import (
    Partition,
    PartitionPosition,
    ReadMessage,
    behind,
    decode_position,
    encode_position,
    plan_shares,
    resolve_positions,
)

PARTITIONS = st.builds(Partition, st.sampled_from(["clicks", "views"]), st.integers(0, 12))
OFFSETS = st.integers(0, 2_000)
READ = st.builds(ReadMessage, OFFSETS, st.integers(0, 2**32 - 1))


@pytest.mark.parametrize(
    ("backlogs", "rows"),
    [([10, 60, 500], [10, 45, 45]), ([500, 10, 60], [45, 10, 45]), ([5], [5]), ([900], [100]), ([0, 7], [7])],
)
def test_a_small_backlog_leaves_its_share_to_the_others(backlogs: list[int], rows: list[int]) -> None:
    ends = {Partition("clicks", number): PartitionPosition(backlog) for number, backlog in enumerate(backlogs)}
    shares = plan_shares(dict.fromkeys(ends, PartitionPosition(0)), ends, 100, 1_000)
    assert [share.max_rows for share in shares] == rows


@given(st.dictionaries(PARTITIONS, st.tuples(OFFSETS, OFFSETS)), st.integers(1, 300), st.integers(1, 300))
def test_each_partition_that_is_behind_gets_a_share(
    partitions: dict[Partition, tuple[int, int]], max_rows: int, max_bytes: int
) -> None:
    """None gets more than it has. The limits hold unless one message of each is already more."""
    positions = {partition: PartitionPosition(at) for partition, (at, _) in partitions.items()}
    ends = {partition: PartitionPosition(at + backlog) for partition, (at, backlog) in partitions.items()}
    shares = plan_shares(positions, ends, max_rows, max_bytes)
    assert [share.partition for share in shares] == list(behind(positions, ends)) == sorted(behind(positions, ends))
    assert all(1 <= share.max_rows <= share.end.next - share.start.next and share.max_bytes >= 1 for share in shares)
    assert sum(share.max_rows for share in shares) <= max(max_rows, len(shares))
    assert sum(share.max_bytes for share in shares) <= max_bytes + len(shares)
    total = sum(end.next - positions[partition].next for partition, end in ends.items())
    assert sum(share.max_rows for share in shares) >= min(total, max_rows) - len(shares)


@given(st.dictionaries(PARTITIONS, st.builds(PartitionPosition, OFFSETS, st.none() | OFFSETS, st.none() | READ)))
def test_a_position_equals_itself_after_it_was_stored(positions: dict[Partition, PartitionPosition]) -> None:
    ids = {"clicks": "id1", "views": "id2"}
    stored = json.loads(dump(encode_position(ids, positions)))
    assert decode_position(stored) == (ids, positions)


def test_a_new_partition_begins_at_offset_0_and_a_new_topic_at_its_earliest_message() -> None:
    old, new, other = Partition("clicks", 0), Partition("clicks", 1), Partition("views", 0)
    earliest = {old: PartitionPosition(70), new: PartitionPosition(5), other: PartitionPosition(30, 2)}
    found = resolve_positions({old: PartitionPosition(90, 1)}, [old, new, other], earliest, ["clicks"])
    assert found == {old: PartitionPosition(90, 1), new: PartitionPosition(0), other: PartitionPosition(30, 2)}


def test_a_place_forgets_a_message_that_has_expired() -> None:
    partition, position = Partition("clicks", 0), PartitionPosition(90, 1, ReadMessage(80, 7))
    for earliest, read in ((80, position.read), (81, None), (90, None)):
        found = resolve_positions(
            {partition: position}, [partition], {partition: PartitionPosition(earliest)}, ["clicks"]
        )
        assert found == {partition: PartitionPosition(90, 1, read)}


def test_positions_of_earlier_versions_have_no_message() -> None:
    position = {"clicks": {"id": "id1", "partitions": {"0": {"next": 5, "leader_epoch": None}}}}
    assert decode_position(position) == ({"clicks": "id1"}, {Partition("clicks", 0): PartitionPosition(5)})
    assert encode_position(*decode_position(position)) == position
