"""Whatever epochs change, by however many subtasks and buckets, a table of the latest rows has each key once."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest, ProtocolViolation
from milepost.sinks.buckets.bucket_staging import BucketStaging
from milepost.sinks.buckets.table_buckets import (
    MAX_BUCKETS,
    ROWS_PER_BUCKET,
    BucketPlan,
    OwnedKeys,
    bucket_count,
    buckets_of,
)
from milepost.sinks.contract import SinkMode
from milepost_testkit import profiles, wording
from milepost_testkit.formats.played_manifest import Completed
from milepost_testkit.tasks.staging import HASHER, KEY_GROUPS, stage, stage_buckets
from tests.conformance.sinks.contract.case import SCHEMA, deleting, rows
from tests.unit.sinks.conformance.test_delta_conformance import LocalCase

EPOCH = st.tuples(
    st.lists(st.integers(0, 30), min_size=0, max_size=12),
    st.none() | st.sets(st.integers(0, 30), max_size=8),
    st.integers(1, 5),
    st.none() | st.integers(1, KEY_GROUPS),
    st.booleans(),
)
"""Keys that change, those that are deleted if any can be, subtasks, buckets, and whether the buckets are written."""


class Case(LocalCase):
    mode = SinkMode.UPSERT


@pytest.mark.deep
@profiles.examples(share=0.6)
@given(st.lists(EPOCH, min_size=1, max_size=6))
def test_each_key_has_its_latest_row_and_buckets_cover_their_key_groups(
    epochs: list[tuple[list[int], set[int] | None, int, int | None, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        job = Case().begin(Path(folder))
        head: Completed | None = None
        latest: dict[int, str] = {}
        for number, (keys, deleted, parallelism, count, rewrites) in enumerate(epochs):
            changed = [rows(*((key, f"{number}-{at}") for at, key in enumerate(keys)))] if keys else []
            latest |= {key: f"{number}-{at}" for at, key in enumerate(keys)}
            if deleted is not None:
                changed = [deleting(table, deleted) for table in (*changed, rows((99, "")).slice(1))]
                latest = {key: value for key, value in latest.items() if key not in deleted & set(keys)}
            staged = stage_buckets(
                job.sink,
                None if head is None else head.contents,
                job.manifest.next_id,
                1,
                *changed,
                schema=changed[0].schema if changed else SCHEMA,
                rewrites=rewrites,
                count=count,
                parallelism=parallelism,
            )
            head = job.manifest.completed_on_fork(job.sink, staged, head, "fork")
            table = job.sink.read(head.contents, verify=True)
            assert dict(zip(*(table.column(name).to_pylist() for name in "kv"), strict=True)) == latest
            assert table.num_rows == len(latest)
            files = job.sink.files(head.contents)
            if rewrites:
                ranges = sorted((file.groups.start, file.groups.stop) for file in files if file.groups)
                assert len(ranges) == len(files) and all(one[1] <= other[0] for one, other in pairwise(ranges))
                assert head.contents.rows == len(latest)
            elif keys:
                assert any(file.groups is None for file in files)


def test_changes_of_a_fork_cannot_become_the_table(tmp_path: Path) -> None:
    """No engine merges by key: it would show two rows of one key."""
    job = Case().begin(tmp_path)
    base = job.publish(rows((1, "a")))
    staged = stage_buckets(job.sink, base.contents, 2, 1, rows((1, "b")), schema=SCHEMA, rewrites=False)
    fork = job.manifest.completed_on_fork(job.sink, staged, base, "fork")
    with wording.raises(InvalidRequest):
        job.sink.check(fork.contents)


def test_rows_of_another_subtasks_keys_are_refused(tmp_path: Path) -> None:
    """They would be a second row of their key in the table."""
    job = Case().begin(tmp_path)
    groups = HASHER.key_groups(rows((1, "a")), ("k",), KEY_GROUPS)
    others = range(int(groups[0]) + 1, KEY_GROUPS)
    owned = OwnedKeys(others, KEY_GROUPS, HASHER.key_groups)
    plan = BucketPlan((), None, None, rewrites=True, keeps_changes=False)
    staging = BucketStaging("table", key=("k",), routing_key=("k",), store=job.sink.store, plan=plan, owned=owned)
    with wording.raises(ProtocolViolation):
        stage(staging, rows((1, "a")), checkpoint_id=1, token=1, subtask=0)


@given(st.integers(1, KEY_GROUPS), st.integers(1, KEY_GROUPS), st.data())
def test_the_buckets_of_a_subtask_are_exactly_its_key_groups(of: int, count: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, of - 1))
    stop = data.draw(st.integers(start + 1, of))
    buckets = buckets_of(OwnedKeys(range(start, stop), of, HASHER.key_groups), count)
    assert [group for bucket in buckets for group in bucket] == list(range(start, stop))
    assert all(len(bucket) for bucket in buckets)


@given(st.integers(0, 10**7), st.integers(0, 10**7))
def test_the_number_of_buckets_is_a_power_of_two_that_grows_with_the_table(fewer: int, more: int) -> None:
    """So a cut stays a cut."""
    owned = OwnedKeys(range(64), 128, HASHER.key_groups)
    small, large = (bucket_count(one, owned) for one in sorted((fewer, fewer + more)))
    assert 1 <= small <= large <= MAX_BUCKETS and small & (small - 1) == 0
    assert bucket_count(MAX_BUCKETS * ROWS_PER_BUCKET, owned) == MAX_BUCKETS
