"""Keyed state equals a dictionary through rescaling, compaction, caching and hash collisions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.codec.records import from_json, to_json
from milepost.errors import InvalidRequest, ProtocolViolation, StateCorrupt
from milepost.protocol.records.object_store import StoreConfig
from milepost.state.cache.cache import StateCache
from milepost.state.keyed import run_reader
from milepost.state.keyed.grouping import number_keys
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.restore import restore_state
from milepost.state.layers import layer
from milepost.state.layers.key_groups import key_group, key_group_range, subtask_of_key_group
from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import KeySpec, sort_rows, stack
from milepost.state.runs.compaction import BASE_FACTOR, MAX_DELTAS, Choice, SnapshotWrite, choose_write
from milepost.state.runs.handles import RunKind, StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.rows.key_hashes import KEYED, WEAK

SCHEMA = pa.schema(
    [("k", pa.string()), ("n", pa.int64()), ("v", pa.int64()), ("__timer", pa.int64()), ("__expires", pa.int64())]
)
KEY = ("k", "n")
GROUPS = 8


def local_store(folder: Path) -> LocalStore:
    return LocalStore(StoreConfig(f"file://{folder}"))


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=SCHEMA)


def row(k: str | None, n: int | None, v: int, timer: int | None = None, expires: int | None = None) -> dict[str, Any]:
    return {"k": k, "n": n, "v": v, "__timer": timer, "__expires": expires}


def identity_of(key_groups: range, hasher: KeyHash = KEYED) -> StateIdentity:
    return StateIdentity.of("agg", KeySpec(tuple(KEY), ("k",), hasher), SCHEMA, key_groups, GROUPS)


class Checkpoints:
    """One operator's state over epochs and parallelisms on a real store."""

    def __init__(self, folder: Path, hasher: KeyHash = KEYED, cached: bool = False) -> None:
        self.store = local_store(folder / "store")
        self.cache = StateCache(folder / "cache") if cached else None
        self.hasher = hasher
        self.handles: list[StateHandle] = []
        self.watermark_us: int | None = None
        self.uploaded: list[int] = []

    def restore(self, subtask: int = 0, parallelism: int = 1, cache: StateCache | None = None) -> SubtaskState:
        return restore_state(
            identity_of(key_group_range(GROUPS, parallelism, subtask), hasher=self.hasher),
            self.handles,
            CheckpointObjects(self.store, 7, "flights"),
            watermark_us=self.watermark_us,
            cache=cache if cache is not None else self.cache,
        )

    def commit(self, states: Sequence[SubtaskState], watermark_us: int | None = None) -> None:
        handles = []
        for state in states:
            frozen = state.freeze(watermark_us)
            snapshot = frozen.encode(f"chk-{len(self.uploaded)}/t1/state/")
            for upload in snapshot.uploads:
                self.store.put(upload.key, upload.body)
            frozen.stage_cache(snapshot)
            self.uploaded.append(sum(len(upload.body) for upload in snapshot.uploads))
            handles.append(from_json(StateHandle, to_json(snapshot.handle), "state handle"))
        self.handles, self.watermark_us = handles, watermark_us

    def epoch(self, upserts: Sequence[dict[str, Any]], deletes: Sequence[dict[str, Any]] = ()) -> None:
        state = self.restore()
        state.upsert(table(upserts))
        state.delete(table(deletes))
        self.commit([state], self.watermark_us)


def contents(rows: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(r.values()) for r in rows.to_pylist()), key=repr)


texts = st.sampled_from([None, "", "a", "b", "c", "a long key that fills words"])
keys = st.tuples(texts, st.sampled_from([None, 0, 1, 2]))
int64 = st.integers(-(2**63), 2**63 - 1)
values = st.tuples(int64, st.none() | st.integers(0, 9), st.none() | st.integers(0, 9))
steps = st.lists(st.tuples(st.dictionaries(keys, values, max_size=8), st.sets(keys, max_size=4)), max_size=3)
epochs = st.lists(st.tuples(steps, st.integers(1, 4), st.integers(0, 2)), min_size=1, max_size=12)


@pytest.mark.deep
@profiles.examples(share=0.4)
@given(epochs, st.booleans(), st.booleans())
def test_state_equals_a_dictionary_through_rescale_compaction_and_collisions(
    tmp_path_factory: pytest.TempPathFactory, plan: Any, weak: bool, cached: bool
) -> None:
    """DESIGN 5: merged on read, last wins per exact key (nulls equal nulls), tombstones, expiry, any parallelism."""
    checkpoints = Checkpoints(tmp_path_factory.mktemp("state"), WEAK if weak else KEYED, cached)
    model: dict[tuple[Any, Any], tuple[Any, ...]] = {}
    watermark: int | None = None
    for changes, parallelism, advance in plan:
        states = [checkpoints.restore(subtask, parallelism) for subtask in range(parallelism)]
        owner = _owner(checkpoints.hasher, parallelism)
        for changed, removed in changes:
            for subtask, state in enumerate(states):
                own = {key: value for key, value in changed.items() if owner(key) == subtask}
                state.upsert(table([row(*key, *value) for key, value in own.items()]))
                state.delete(table([row(*key, 0) for key in removed if owner(key) == subtask]))
            model.update(changed)
            model = {key: value for key, value in model.items() if key not in removed}
        asked = table([row(*key, 0) for key in [*model, ("absent", 5), ("absent", 5)]])
        live = {key: value for key, value in model.items() if not _dead(value, watermark)}
        found = pa.concat_tables([state.lookup(asked) for state in states])
        assert contents(found) == sorted(((*key, *value) for key, value in live.items()), key=repr)
        due = {key: v for key, v in live.items() if any(at is not None and at <= 4 for at in v[1:])}
        assert contents(pa.concat_tables([state.due(4) for state in states])) == sorted(
            ((*key, *value) for key, value in due.items()), key=repr
        )
        watermark = None if watermark is None and advance == 0 else (watermark or 0) + advance
        checkpoints.commit(states, watermark)
        model = {key: value for key, value in live.items() if not _dead(value, watermark)}
        assert contents(checkpoints.restore().rows()) == sorted(((*k, *v) for k, v in model.items()), key=repr)
        assert sum(handle.live_rows for handle in checkpoints.handles) == len(model)
        expected: dict[int, int] = {}
        for key, value in model.items():
            if value[1] is not None and (watermark is None or value[1] > watermark):
                group = int(key_group(checkpoints.hasher(table([row(*key, 0)]), ["k"]), GROUPS)[0])
                expected[group] = min(value[1], expected.get(group, value[1]))
        assert sorted(timer for handle in checkpoints.handles for timer in handle.timers) == sorted(expected.items())


def _dead(value: tuple[Any, ...], watermark: int | None) -> bool:
    return watermark is not None and value[2] is not None and value[2] <= watermark


def _owner(hasher: KeyHash, parallelism: int) -> Any:
    def owner(key: tuple[Any, Any]) -> int:
        groups = key_group(hasher(table([row(*key, 0)]), ["k"]), GROUPS)
        return int(subtask_of_key_group(groups, GROUPS, parallelism)[0])

    return owner


def test_nothing_changed_writes_no_run_and_keeps_the_runs(tmp_path: Path) -> None:
    """Unchanged state is carried by reference: no I/O."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.epoch([row("a", 1, 1)])
    before = checkpoints.handles
    checkpoints.epoch([])
    assert checkpoints.handles == before and checkpoints.uploaded[-1] == 0
    checkpoints.epoch([row("z", 1, 1)], [row("z", 1, 1)])
    assert checkpoints.handles == before, "inserted and deleted in one epoch: nothing to record"
    checkpoints.epoch([row("b", n, 1) for n in range(9)])
    checkpoints.epoch([], [row("a", 1, 0)])
    before = checkpoints.handles
    checkpoints.epoch([], [row("a", 1, 0), row("never", 1, 0)])
    assert checkpoints.handles == before, "what is gone already needs no second tombstone"


def test_frozen_state_is_independent_of_later_changes(tmp_path: Path) -> None:
    """The synchronous part ends with the freeze: what comes later belongs to no snapshot of this epoch."""
    checkpoints = Checkpoints(tmp_path)
    state = checkpoints.restore()
    state.upsert(table([row("a", 1, 1)]))
    frozen = state.freeze(None)
    state.upsert(table([row("a", 1, 2), row("b", 1, 2)]))
    snapshot = frozen.encode("chk-1/t1/")
    checkpoints.store.put(snapshot.uploads[0].key, snapshot.uploads[0].body)
    checkpoints.handles = [snapshot.handle]
    assert contents(checkpoints.restore().rows()) == [("a", 1, 1, None, None)]
    with wording.raises(ProtocolViolation):
        state.freeze(None)


def test_two_attempts_write_the_same_bytes_under_the_same_name(tmp_path: Path) -> None:
    """I12: what a subtask acknowledges is a pure function of its input, with or without cache and in any order."""
    checkpoints = Checkpoints(tmp_path)
    rows = [row(f"k{i}", i % 7, i) for i in range(500)]
    checkpoints.epoch(rows)
    changes = [row(f"k{i}", i % 7, -i) for i in range(100)]
    snapshots = []
    for order, cache in ((changes, None), (changes[::-1], StateCache(tmp_path / "cache"))):
        state = checkpoints.restore(cache=cache)
        for piece in (order[:30], order[30:]):
            state.upsert(table(piece))
        snapshots.append(state.freeze(None).encode("chk-2/t5/state/"))
    assert snapshots[0] == snapshots[1]


def test_deltas_grow_until_a_base_replaces_every_run(tmp_path: Path) -> None:
    """Bytes follow changed keys; once deltas hold some times the base's rows, a base of live rows is written."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.epoch([row(f"k{i}", 0, i) for i in range(100)])
    kinds = []
    for epoch in range(14):
        checkpoints.epoch([row(f"k{(60 * epoch + i) % 100}", 0, -epoch) for i in range(60)])
        kinds.append([run.kind for run in checkpoints.handles[0].runs])
    deltas = 100 * BASE_FACTOR // 60
    assert [len(runs) for runs in kinds] == [*range(2, deltas + 2), 1, *range(2, deltas + 2), 1][:14]
    assert len(checkpoints.restore().rows()) == 100


@pytest.mark.deep
def test_small_deltas_on_a_large_base_are_merged_without_rewriting_it(tmp_path: Path) -> None:
    """Many epochs of few keys: the base stays, the deltas become one."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.epoch([row(f"k{i}", 0, i) for i in range(1_000)])
    base = checkpoints.handles[0].runs[0]
    for epoch in range(MAX_DELTAS + 1):
        checkpoints.epoch([row(f"k{epoch}", 0, -1)], [row(f"k{500 + epoch}", 0, 0)])
    runs = checkpoints.handles[0].runs
    assert [run.kind for run in runs] == [RunKind.BASE, RunKind.DELTA] and runs[0] == base
    assert runs[1].rows == 2 * (MAX_DELTAS + 1)
    assert checkpoints.restore().rows().num_rows == 1_000 - (MAX_DELTAS + 1)
    assert checkpoints.handles[0].live_rows == 1_000 - (MAX_DELTAS + 1)


@pytest.mark.long
def test_a_large_delta_is_not_rewritten_when_small_newer_ones_are_merged(tmp_path: Path) -> None:
    """A tombstone in a merged delta hides the row of the delta that stays, and goes with the row when a base comes."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.epoch([row(f"k{i}", 0, i) for i in range(1_000)])
    checkpoints.epoch([row(f"n{i}", 0, i) for i in range(700)])
    large = checkpoints.handles[0].runs[1]
    for epoch in range(MAX_DELTAS):
        checkpoints.epoch([row(f"k{epoch}", 0, -1)], [row(f"n{epoch}", 0, 0)])
    runs = checkpoints.handles[0].runs
    assert runs[1] == large and runs[2].rows == 2 * MAX_DELTAS and len(runs) == 3
    left = checkpoints.restore().rows()
    assert left.num_rows == checkpoints.handles[0].live_rows == 1_700 - MAX_DELTAS
    checkpoints.epoch([row(f"k{i}", 0, 7) for i in range(1_000)])
    assert [run.kind for run in checkpoints.handles[0].runs] == [RunKind.BASE]
    assert checkpoints.restore().rows().num_rows == 1_700 - MAX_DELTAS


@pytest.mark.parametrize(
    ("base", "deltas", "changed", "expected"),
    [
        (0, [], 0, Choice(SnapshotWrite.KEEP)),
        (0, [], 1, Choice(SnapshotWrite.BASE)),
        (100, [], 79, Choice(SnapshotWrite.DELTA)),
        (100, [], 80, Choice(SnapshotWrite.BASE)),
        (100, [50] * 7, 50, Choice(SnapshotWrite.DELTA)),
        (100, [50] * 7, 51, Choice(SnapshotWrite.BASE)),
        (1_000, [1] * MAX_DELTAS, 1, Choice(SnapshotWrite.MERGED_DELTA, MAX_DELTAS)),
        (1_000, [400, *[1] * (MAX_DELTAS - 1)], 1, Choice(SnapshotWrite.MERGED_DELTA, MAX_DELTAS - 1)),
        (1_000, [*[60] * (MAX_DELTAS - 2), 9, 9], 1, Choice(SnapshotWrite.MERGED_DELTA, 2)),
        (1_000, [30] * MAX_DELTAS, 30, Choice(SnapshotWrite.BASE)),
        (100, [1] * MAX_DELTAS, 0, Choice(SnapshotWrite.KEEP)),
    ],
)
def test_the_choice_of_what_to_write_follows_the_compaction_rule(
    base: int, deltas: list[int], changed: int, expected: Choice
) -> None:
    """A pure function of a few numbers."""
    assert choose_write(base_rows=base, delta_rows=deltas, changed_rows=changed) == expected


@pytest.mark.parametrize("bits", [64, 2])
@pytest.mark.parametrize("names", [3, 211])
def test_rows_are_numbered_by_key_in_the_order_of_their_hash_also_where_keys_share_one(names: int, bits: int) -> None:
    """Each row gets the number of its key, each key its first row, whether a table or a sort finds the keys."""
    rows = [{"name": f"k{i % names}" if i % names else None, "part": i % 2} for i in range(1_000)]
    keys = pa.Table.from_pylist(rows)

    def hasher(table: pa.Table) -> np.ndarray:
        return KEYED(table, table.column_names) >> np.uint64(64 - bits)

    numbered = number_keys(keys, hasher)
    assert len(numbered.first) == 2 * names
    assert [rows[numbered.first[code]] for code in numbered.codes] == rows
    assert [rows.index(item) for item in rows] == [numbered.first[code] for code in numbered.codes]
    assert (numbered.hashes[1:] >= numbered.hashes[:-1]).all()
    assert (numbered.hashes == hasher(keys)[numbered.first]).all()
    shared = numbered.hashes[1:] == numbered.hashes[:-1]
    assert (numbered.first[1:] > numbered.first[:-1])[shared].all() and shared.any() == (bits == 2)


@pytest.mark.parametrize("hasher", [KEYED, WEAK])
def test_layers_that_are_merged_part_by_part_are_the_same_layer(
    monkeypatch: pytest.MonkeyPatch, hasher: KeyHash
) -> None:
    """A part holds all rows of its hashes, so the newest of each key is found in it."""
    keys = KeySpec(KEY, ("k",), hasher)
    layers = [
        sort_rows(table([row(f"k{i % 50}", i % 3, age) for i in range(age, 150, 2)]), keys, deleted=age == 1)
        for age in range(3)
    ]
    at_once = stack(layers, keys, SCHEMA)
    monkeypatch.setattr(layer, "ROWS_AT_ONCE", 20)
    in_parts = stack(layers, keys, SCHEMA)
    assert in_parts.rows.equals(at_once.rows) and in_parts.rows.column(0).num_chunks == 1
    assert (in_parts.hashes == at_once.hashes).all() and (in_parts.deleted == at_once.deleted).all()


def test_rows_compacted_away_do_not_come_back_after_rescaling_twice(tmp_path: Path) -> None:
    """A file may count for some key groups and be replaced by a newer base for others."""
    checkpoints = Checkpoints(tmp_path)
    rows = [row(f"k{i}", 0, i) for i in range(200)]
    checkpoints.epoch(rows)
    states = [checkpoints.restore(subtask, 2) for subtask in range(2)]
    gone = states[1].rows()
    states[1].delete(gone)
    checkpoints.commit(states)
    assert states[0].rows().num_rows + gone.num_rows == 200
    assert contents(checkpoints.restore().rows()) == contents(states[0].rows())
    for parallelism in (1, 3, 2, 1):
        again = [checkpoints.restore(subtask, parallelism) for subtask in range(parallelism)]
        checkpoints.commit(again)
    assert contents(checkpoints.restore().rows()) == contents(states[0].rows())


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: body[:-1],
        lambda body: body[:50] + bytes([body[50] ^ 1]) + body[51:],
        None,
    ],
)
def test_a_damaged_run_is_refused_naming_run_checkpoint_and_command(tmp_path: Path, damage: Any) -> None:
    """A corrupt checkpoint is never skipped: StateCorrupt, exit code 7, and what to type."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.epoch([row(f"k{i}", 0, i) for i in range(50)])
    key = checkpoints.handles[0].runs[0].key
    if damage is None:
        checkpoints.store.delete([key])
    else:
        checkpoints.store.put(key, damage(checkpoints.store.get(key)))
    with wording.raises(StateCorrupt) as caught:
        checkpoints.restore()
    assert key in caught.value.message
    assert "milepost verify flights" in caught.value.hint and caught.value.exit_code == 7
    assert caught.value.details == {"checkpoint_id": 7, "uid": "agg", "key": key}


def test_a_run_is_not_called_damaged_because_memory_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is to restore what is whole."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.epoch([row("k", 0, 1)])

    def refused(*_: Any, **__: Any) -> Any:
        raise pa.ArrowMemoryError("malloc of size 1325376 failed")

    monkeypatch.setattr(run_reader, "decode_run", refused)
    with pytest.raises(MemoryError):
        checkpoints.restore()


def test_handles_that_do_not_cover_the_subtask_are_refused(tmp_path: Path) -> None:
    """A lost handle must not read as missing keys."""
    checkpoints = Checkpoints(tmp_path)
    states = [checkpoints.restore(subtask, 2) for subtask in range(2)]
    checkpoints.commit(states)
    checkpoints.handles = checkpoints.handles[:1]
    with wording.raises(StateCorrupt):
        checkpoints.restore()


def test_runs_missing_from_the_cache_are_requested_together(tmp_path: Path) -> None:
    """A remote store answers each request after a while; runs in the cache are not requested."""
    checkpoints, asked = Checkpoints(tmp_path), list[int]()
    for number in range(4):
        checkpoints.epoch([row(str(key), number, key) for key in range(number, 8)])

    def each(ask: Callable[[Any], bytes], subjects: Sequence[Any]) -> list[bytes]:
        asked.append(len(subjects))
        return [ask(subject) for subject in subjects]

    def restored() -> list[Any]:
        objects, cache = CheckpointObjects(checkpoints.store, 7, "flights", each=each), StateCache(tmp_path / "node")
        state = restore_state(identity_of(range(GROUPS)), checkpoints.handles, objects, watermark_us=None, cache=cache)
        return contents(state.rows())

    runs = len({run.key for run in checkpoints.handles[0].runs})
    assert restored() == restored() == contents(checkpoints.restore().rows())
    assert runs > 1 and [count for count in asked if count] == [runs]


def test_a_changed_schema_or_max_parallelism_is_refused(tmp_path: Path) -> None:
    """State is matched by uid; what does not fit is the user's input, and nothing is changed."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.epoch([row("a", 1, 1)])

    def restore(schema: pa.Schema, groups: int) -> None:
        identity = StateIdentity.of("agg", KeySpec(tuple(KEY), ("k",), KEYED), schema, range(groups), groups)
        restore_state(identity, checkpoints.handles, CheckpointObjects(checkpoints.store, 1, "j"), watermark_us=None)

    with wording.raises(InvalidRequest):
        restore(SCHEMA.set(2, pa.field("v", pa.float64())), GROUPS)
    with wording.raises(InvalidRequest):
        restore(SCHEMA, 16)


def test_expired_rows_stay_expired_after_a_merge_with_a_slower_subtask(tmp_path: Path) -> None:
    """DESIGN 4.3: firing watermarks differ while rows are in flight; a joined subtask goes on from the least."""
    checkpoints = Checkpoints(tmp_path)
    names = [chr(ord("a") + index) for index in range(26)]
    owner = _owner(KEYED, 2)
    states = [checkpoints.restore(subtask, 2) for subtask in range(2)]
    for subtask, state in enumerate(states):
        state.upsert(table([row(name, 1, 0, expires=50) for name in names if owner((name, 1)) == subtask]))
    checkpoints.commit(states, 10)
    ahead, behind = 60, 20
    handles = []
    for subtask, fired_us in enumerate((ahead, behind)):
        state = checkpoints.restore(subtask, 2)
        snapshot = state.freeze(fired_us).encode("chk-9/t1/state/")
        assert not snapshot.uploads, "expiry alone writes nothing"
        handles.append(snapshot.handle)

    def joined(handles: Sequence[StateHandle], firing: Sequence[int | None], watermark_us: int) -> SubtaskState:
        objects = CheckpointObjects(checkpoints.store, 9, "flights")
        return restore_state(identity_of(range(GROUPS)), handles, objects, watermark_us=watermark_us, firing=firing)

    kept = sorted(name for name in names if owner((name, 1)) == 1)
    state = joined(handles, (ahead, behind), behind)
    assert 0 < len(kept) < len(names) and [item[0] for item in contents(state.rows())] == kept
    snapshot = state.freeze(30).encode("chk-10/t1/state/")
    for upload in snapshot.uploads:
        checkpoints.store.put(upload.key, upload.body)
    assert [item[0] for item in contents(joined([snapshot.handle], (30,), 30).rows())] == kept
