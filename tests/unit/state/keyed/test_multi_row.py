"""Multi-row tables: equal rows stored once, and all rows of a key found, whichever subtask wrote them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.codec.records import from_json, to_json
from milepost.errors import InvalidRequest
from milepost.operators.contract import multi_row_table
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import EXPIRES_COLUMN
from milepost.state.cache.cache import StateCache
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.multi_row import RowIdentity
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.key_groups import key_group, key_group_range, subtask_of_key_group
from milepost.state.layers.key_hash import KeyHash
from milepost.state.layers.layer import KeySpec
from milepost.state.layers.row_identity import identity_of, plain_columns
from milepost.state.runs.evolution import compare_schemas
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.rows.key_hashes import KEYED, WEAK

GROUPS = 8
ROWS = pa.schema([("k", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("tags", pa.list_(pa.string()))])
TABLE = multi_row_table(("k", "n"), ROWS, [EXPIRES_COLUMN])
GIVEN = pa.schema([*ROWS, (EXPIRES_COLUMN, pa.int64())])
Row = tuple[str | None, int | None, float | None, tuple[str, ...] | None]


class Rows:
    """A multi-row table over epochs and parallelisms, on a real store."""

    def __init__(self, folder: Path, hasher: KeyHash = KEYED, cached: bool = False) -> None:
        self.store = LocalStore(StoreConfig(f"file://{folder}/store"))
        self.cache = StateCache(folder / "cache") if cached else None
        self.hasher, self.epochs = hasher, 0
        self.handles: tuple[StateHandle, ...] = ()
        self.watermark_us: int | None = None

    def restore(self, parallelism: int = 1) -> list[SubtaskState]:
        keys = KeySpec(TABLE.key, TABLE.routing_key, self.hasher)
        parts = [key_group_range(GROUPS, parallelism, subtask) for subtask in range(parallelism)]
        return [
            restore_state(
                StateIdentity.of("joined", keys, TABLE.schema, own, GROUPS, table="left"),
                self.handles,
                CheckpointObjects(self.store, self.epochs, "test"),
                watermark_us=self.watermark_us,
                cache=self.cache,
            )
            for own in parts
        ]

    def own(self, rows: pa.Table, parallelism: int) -> list[pa.Table]:
        groups = key_group(self.hasher(rows, TABLE.routing_key), GROUPS)
        owners = subtask_of_key_group(groups, GROUPS, parallelism)
        return [rows.filter(pa.array(owners == subtask)) for subtask in range(parallelism)]

    def commit(self, states: Sequence[SubtaskState], watermark_us: int | None = None) -> None:
        self.epochs += 1
        handles = []
        for state in states:
            frozen = state.freeze(watermark_us)
            snapshot = frozen.encode(f"chk-{self.epochs}/t1/state/")
            for upload in snapshot.uploads:
                self.store.put(upload.key, upload.body)
            frozen.stage_cache(snapshot)
            handles.append(from_json(StateHandle, to_json(snapshot.handle), "state handle"))
        self.handles, self.watermark_us = tuple(handles), watermark_us


def given_rows(rows: Sequence[tuple[Row, int | None]]) -> pa.Table:
    columns = zip(
        *((*row[:3], None if row[3] is None else list(row[3]), expires) for row, expires in rows), strict=True
    )
    return pa.table(list(columns) if rows else [[] for _ in GIVEN], schema=GIVEN)


def found(states: Sequence[SubtaskState], keys: pa.Table) -> list[tuple[int, str, int]]:
    """Of each row found: the number of its key, its values, and how often it is there."""
    rows = []
    for state in states:
        there = state.lookup_all(keys)
        assert bool(np.all(there.owners[1:] >= there.owners[:-1]))
        values = there.take([*ROWS.names, "__weight"]).to_pylist()
        rows += [
            (int(owner), shown(tuple(value.values())[:4]), value["__weight"])
            for owner, value in zip(there.owners, values, strict=True)
        ]
    return sorted(rows)


def shown(row: Any) -> str:
    return repr((*row[:3], None if row[3] is None else list(row[3])))


nan = float("nan")
some_keys = st.tuples(st.sampled_from([None, "", "a", "b"]), st.sampled_from([None, 0, 1]))
payloads = st.tuples(
    st.sampled_from([None, 0.0, -0.0, 1.5, nan]), st.sampled_from([None, (), ("a",), ("a", "b"), ("ab",)])
)
some_rows = st.builds(lambda key, payload: (*key, *payload), some_keys, payloads)
batches = st.lists(st.lists(some_rows, max_size=8), max_size=3)
histories = st.lists(st.tuples(batches, st.sampled_from([1, 2, 3]), st.integers(0, 2)), min_size=1, max_size=8)


@profiles.examples(share=0.2)
@given(history=histories, weak=st.booleans(), cached=st.booleans())
def test_rows_of_keys_are_those_of_a_dictionary_through_epochs_rescales_collisions_and_expiry(
    tmp_path_factory: pytest.TempPathFactory, history: Any, weak: bool, cached: bool
) -> None:
    """A row expires two epochs' time after it came last; equal ones are one row with their number."""
    table = Rows(tmp_path_factory.mktemp("rows"), WEAK if weak else KEYED, cached)
    model: dict[str, tuple[Row, int, int]] = {}
    now = 0
    for batch, parallelism, advance in history:
        states = table.restore(parallelism)
        for rows in batch:
            own = table.own(given_rows([(row, now + 2) for row in rows]), parallelism)
            for state, mine in zip(states, own, strict=True):
                state.add(mine)
            for row in rows:
                _, weight, _ = model.get(shown(row), (row, 0, 0))
                model[shown(row)] = (row, weight + 1, now + 2)
        keys = sorted({row[:2] for row, _, _ in model.values()} | {("absent", 1)}, key=repr)
        asked = pa.table(list(zip(*keys, strict=True)), schema=pa.schema([ROWS.field("k"), ROWS.field("n")]))
        expected = sorted((keys.index(row[:2]), name, weight) for name, (row, weight, _) in model.items())
        assert found(states, asked) == expected
        now += advance
        table.commit(states, now)
        model = {name: one for name, one in model.items() if one[2] > now}
        assert sum(handle.live_rows for handle in table.handles) == len(model)
        kept = pa.concat_tables([state.rows() for state in table.restore()]).to_pylist()
        assert Counter(row["__weight"] for row in kept) == Counter(weight for _, weight, _ in model.values())


def test_deleted_or_replaced_rows_are_not_found(tmp_path: Path) -> None:
    """In any layer: the base, a delta, or this epoch's changes."""
    table = Rows(tmp_path)
    rows: list[tuple[Row, int | None]] = [(("a", n % 2, float(n), None), None) for n in range(50)]
    (state,) = table.restore()
    state.add(given_rows(rows))
    table.commit([state])
    key = pa.table([["a"], [1]], schema=pa.schema([ROWS.field("k"), ROWS.field("n")]))
    for number in (1, 3, 5):
        (state,) = table.restore()
        there = state.lookup_all(key).take(TABLE.schema.names)
        (position,) = [at for at, x in enumerate(there["x"].to_pylist()) if x == float(number)]
        state.delete(there.slice(position, 1))
        left = sorted(state.lookup_all(key).take(["x"])["x"].to_pylist())
        assert left == [float(n) for n in range(number + 2, 50, 2)]
        table.commit([state])
    assert {run.kind.value for run in table.handles[0].runs} == {"base", "delta"}


def test_rows_at_given_positions_are_taken_from_several_layers(tmp_path: Path) -> None:
    table = Rows(tmp_path, cached=True)
    for epoch in range(3):
        (state,) = table.restore()
        state.add(given_rows([(("a", 0, float(epoch * 10 + n), ("t",) * n), None) for n in range(4)]))
        table.commit([state])
    (state,) = table.restore()
    there = state.lookup_all(pa.table([["a"], [0]], schema=pa.schema([ROWS.field("k"), ROWS.field("n")])))
    every = there.take(["x", "tags"])
    some = np.array([7, 0, 7, 11])
    assert there.take(["x", "tags"], some).to_pylist() == every.take(pa.array(some)).to_pylist()
    assert there.take(["x"], np.empty(0, dtype=np.int64)).num_rows == 0


@pytest.mark.deep
def test_a_hundred_thousand_rows_of_one_key_cost_no_more_per_row_than_a_thousand(tmp_path: Path) -> None:
    """Where hashes crowd, a lookup takes one range of each layer: it is not compared row by row with others."""
    spent = {}
    for count in (1_000, 100_000):
        table = Rows(tmp_path / str(count))
        for epoch in range(3):
            (state,) = table.restore()
            state.add(given_rows([(("a", 0, float(n * 3 + epoch), None), None) for n in range(count // 3)]))
            table.commit([state])
        (state,) = table.restore()
        key = pa.table([["a"], [0]], schema=pa.schema([ROWS.field("k"), ROWS.field("n")]))
        began = time.process_time()
        assert len(state.lookup_all(key).owners) == count // 3 * 3
        spent[count] = time.process_time() - began
    assert spent[100_000] < 1


@given(st.lists(some_rows, min_size=2, max_size=12))
def test_rows_have_one_identity_exactly_if_they_are_the_same(rows: list[Row]) -> None:
    """One NaN, two zeros, null equals nothing else, and lists differ by their elements."""
    plain = plain_columns(given_rows([(row, None) for row in rows]).select(ROWS.names))
    first, second = identity_of(plain, KEYED)
    for one in range(len(rows)):
        for other in range(len(rows)):
            same = shown(rows[one]) == shown(rows[other])
            assert (first[one] == first[other]) == (second[one] == second[other]) == same


def test_the_identity_of_a_row_is_pinned() -> None:
    """It is stored: another one needs another `ROW_IDENTITY`."""
    struct = pa.array([{"a": [1, None], "b": {"c": "x"}}, None, {"a": None, "b": None}])
    rows = pa.table({"i": pa.array([1, None, 3], pa.int32()), "s": struct, "f": [0.0, -0.0, nan]})
    first, second = identity_of(plain_columns(rows), KEYED)
    assert (first.tolist(), second.tolist()) == PINNED
    chunked = pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    assert identity_of(plain_columns(chunked), KEYED)[0].tolist() == PINNED[0]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([0, 1, None], pa.date32()),
        pa.array([0, 86_400_000, None], pa.date64()),
        pa.array([0, 1, None], pa.timestamp("ns", "UTC")),
        pa.array([0, 1, None], pa.time32("ms")),
        pa.array([0, 1, None], pa.duration("s")),
        pa.array([Decimal(0), Decimal(1), None], pa.decimal128(38)),
        pa.array([b"", b"\xff", None]),
        pa.array([False, True, None]),
    ],
    ids=lambda values: str(values.type),
)
def test_lists_and_maps_of_any_type_have_an_identity(values: pa.Array) -> None:
    first, second, null = values.take([0]), values.take([1]), values.take([2])
    elements = pa.concat_arrays([first, second, null, first])
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3, 4], pa.int32()), elements)
    maps = pa.MapArray.from_arrays([0, 1, 2, 3, 4], pa.array(["k"] * 4), elements)
    for column in (lists, maps):
        numbers, _ = identity_of(plain_columns(pa.table({"x": column})), KEYED)
        assert len(set(numbers[:3].tolist())) == 3 and numbers[3] == numbers[0]


PINNED = (
    [-4972173161145765884, 7750209799924254167, 2256434220587517369],
    [-3809996036135197713, 8188812866684706314, -1906139810606560655],
)


def test_two_rows_that_share_an_identity_and_differ_are_refused() -> None:
    keys = KeySpec(TABLE.key, TABLE.routing_key, KEYED)
    identity = RowIdentity.of(StateIdentity.of("joined", keys, TABLE.schema, range(GROUPS), GROUPS))
    plain = plain_columns(given_rows([(("a", 0, 0.0, None), None), (("a", 0, -0.0, None), None)]).select(ROWS.names))
    zero, one = np.array([0]), np.array([1])
    identity.check_same(plain, zero, plain, zero)
    with wording.raises(InvalidRequest):
        identity.check_same(plain, zero, plain, one)


def test_state_with_another_row_identity_is_refused() -> None:
    plain = pa.schema([pa.field(field.name, field.type) for field in TABLE.schema])
    wording.matches("problems", compare_schemas(plain, TABLE.schema, TABLE.key).problems)
    narrower = multi_row_table(("k", "n"), pa.schema([field for field in ROWS if field.name != "x"]), [EXPIRES_COLUMN])
    assert not compare_schemas(TABLE.schema, narrower.schema, TABLE.key).problems
    assert compare_schemas(narrower.schema, TABLE.schema, TABLE.key).problems
