"""State that is read in pieces equals the state that a subtask restores, alone and in comparisons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.epoch.metadata import CheckpointMetadata, OperatorTable, StateTableSnapshot
from milepost.jobmaster.reports.tables import state_rows
from milepost.jobmaster.reports.tables.row_changes import changes_by_key
from milepost.jobmaster.reports.tables.state_rows import StateSide, changed_by_key, rows_by_hash, rows_by_key
from milepost.spill.external_sort import sorted_rows
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.key_groups import key_group_range
from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import KeySpec
from milepost.state.runs import runs
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost_testkit import profiles
from milepost_testkit.jobs.sparkless.counted_job import CountedJob
from milepost_testkit.rows.key_hashes import KEYED, WEAK
from milepost_testkit.stores.held_rows import hold_few_rows
from milepost_testkit.stores.memory_store import MemoryStore

SCHEMA = pa.schema([("k", pa.float64()), ("n", pa.int64()), ("v", pa.int64()), ("__expires", pa.int64())])
KEY, GROUPS = ("k", "n"), 8

keys = st.sampled_from([None, float("nan"), -0.0, 0.0, 1.5])
rows = st.tuples(keys, st.integers(0, 1), st.integers(0, 2), st.none() | st.integers(0, 30))
epochs = st.lists(st.tuples(st.lists(rows, max_size=8), st.lists(st.tuples(keys, st.integers(0, 1)), max_size=3)))


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> CheckpointMetadata:
    context = CountedJob.with_epochs(tmp_path_factory.mktemp("counted"), 1).small.context
    found = context.base_metadata(context.head().state, context.head().state.timeline().head)
    assert found is not None
    return found


class States:
    """One operator's state, epoch by epoch, in two subtasks or in one."""

    def __init__(self, metadata: CheckpointMetadata, hasher: KeyHash) -> None:
        self.metadata = replace(metadata, hasher=hasher)
        self.keys = KeySpec(KEY, ("k",), hasher)
        self.store = MemoryStore("file:///memory")
        self.sides: list[StateSide] = []

    def epoch(self, upserts: Sequence[tuple[Any, ...]], deletes: Sequence[tuple[Any, ...]], parallelism: int) -> None:
        """Change it; its firing watermark is then ten times the number of the epoch."""
        before = self.sides[-1].table.state.handles if self.sides else ()
        number, handles = len(self.sides), []
        for subtask in range(parallelism):
            own = key_group_range(GROUPS, parallelism, subtask)
            state = self.restored(before, own, (number - 1) * 10 if number else None)
            for change, rows, names in ((state.upsert, upserts, SCHEMA.names), (state.delete, deletes, KEY)):
                latest = {repr(row[:2]).replace("-0.0", "0.0"): row for row in rows}
                table = pa.Table.from_pylist(
                    [dict(zip(names, row, strict=True)) for row in latest.values()],
                    schema=pa.schema([SCHEMA.field(name) for name in names]),
                )
                change(table.filter(pa.array(state.owns(table), pa.bool_())))
            snapshot = state.freeze(number * 10).encode(f"chk-{number}/{subtask}/")
            for upload in snapshot.uploads:
                self.store.put(upload.key, upload.body)
            handles.append(snapshot.handle)
        stored = StateTableSnapshot(KEY, ("k",), SCHEMA, tuple(handles))
        self.sides.append(StateSide(self.metadata, OperatorTable("agg", stored, (number * 10,) * parallelism)))

    def restored(self, handles: Sequence[StateHandle], own: range, watermark_us: int | None) -> Any:
        identity = StateIdentity.of("agg", self.keys, SCHEMA, own, GROUPS)
        objects = CheckpointObjects(self.store, 1, "counted")
        return restore_state(identity, handles, objects, watermark_us=watermark_us)

    def whole(self, number: int) -> pa.Table:
        """All live rows as subtasks restore them."""
        table = self.sides[number].table
        parts = [
            self.restored([handle], handle.key_groups, fired).rows()
            for handle, fired in zip(table.state.handles, table.firing, strict=True)
        ]
        return pa.concat_tables([SCHEMA.empty_table(), *parts])


def plain(rows: pa.Table) -> list[str]:
    return [repr(row) for row in rows.to_pylist()]


def joined(pieces: Any) -> pa.Table:
    return pa.concat_tables([SCHEMA.empty_table(), *pieces])


@pytest.mark.long
@profiles.examples(share=0.4)
@given(
    history=st.lists(epochs.map(lambda some: some[:1]).filter(bool), min_size=1, max_size=5),
    parallelisms=st.lists(st.integers(1, 2), min_size=5, max_size=5),
    hasher=st.sampled_from([KEYED, WEAK]),
    most_changed=st.sampled_from([0, 3, 1_000]),
    group_rows=st.sampled_from([2, 100]),
)
@example(  # a row that both have expires between the two; a newer one that both have hides another from both
    history=[[([(0.0, 0, 0, 15), (1.5, 0, 0, 15)], [])], [([(1.5, 0, 1, None)], [])], [([], [])]],
    parallelisms=[1] * 5,
    hasher=KEYED,
    most_changed=1_000,
    group_rows=100,
)
def test_two_sides_are_compared_as_if_each_were_read_alone(
    metadata: CheckpointMetadata,
    history: list[Any],
    parallelisms: list[int],
    hasher: KeyHash,
    most_changed: int,
    group_rows: int,
) -> None:
    """By hash, by key and as changes; with deletes, expiry, rescaling, keys that share a hash, and tiny pieces."""
    with pytest.MonkeyPatch.context() as patch:
        hold_few_rows(patch, 150)
        patch.setattr(state_rows, "MAX_CHANGED_ROWS", most_changed)
        patch.setattr(runs, "_ROWS_PER_ROW_GROUP", group_rows)
        states = States(metadata, hasher)
        for ((upserts, deletes),), parallelism in zip(history, parallelisms, strict=False):
            states.epoch(upserts, deletes, parallelism)
        for number, side in enumerate(states.sides):
            whole = states.whole(number)
            assert plain(joined(rows_by_hash(states.store, side))) == plain(whole)
            assert sorted(plain(joined(rows_by_key(states.store, side)))) == sorted(plain(whole))
            by_key = joined(rows_by_key(states.store, side)).select(KEY)
            assert plain(by_key) == plain(sorted_rows(by_key, KEY))
            for other in {0, max(0, number - 1)}:
                before = states.sides[other]
                steps = changed_by_key(states.store, before, side)
                found = [changes_by_key(*step, KEY) for step in steps]
                expected = changes_by_key(states.whole(other), whole, KEY)
                assert plain(pa.concat_tables([expected.slice(0, 0), *found])) == plain(expected)
