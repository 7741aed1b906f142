"""State with a schema that changes between epochs equals a dictionary that is converted at each change."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import BEGINS_NULL, SCALE
from milepost.state.cache.cache import StateCache
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.key_groups import key_group, key_group_range, subtask_of_key_group
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.evolution import (
    compare_schemas,
    convert_rows,
    evolve_schema,
    stored_name,
    stored_names,
    widens,
)
from milepost.state.runs.handles import RunKind, StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles, wording
from milepost_testkit.rows.key_hashes import KEYED

GROUPS = 4
CHAINS: dict[str, tuple[pa.DataType, ...]] = {
    "whole": (pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    "exact": (pa.int16(), pa.int32(), pa.decimal128(10, 0), pa.decimal128(14, 2)),
    "float": (pa.int8(), pa.float32(), pa.float64()),
    "time": (pa.timestamp("s", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    "list": (pa.list_(pa.int8()), pa.list_(pa.int64())),
    "times": (pa.list_(pa.timestamp("s")), pa.list_(pa.timestamp("us"))),
    "pair": (
        pa.struct([("x", pa.int8()), ("y", pa.timestamp("s"))]),
        pa.struct([("x", pa.int32()), ("y", pa.timestamp("s"))]),
    ),
    "text": (pa.string(),),
}
KEY_TYPES = CHAINS["whole"]
_NAIVE = datetime.fromisoformat("2026-01-01T00:00:00")


def value_of(kind: str, number: int | None) -> Any:
    """A value that every type of the chain can have."""
    if number is None:
        return None
    return {
        "whole": number,
        "exact": number,
        "float": number,
        "time": datetime.fromtimestamp(number, UTC),
        "list": [number, None],
        "times": [_NAIVE.replace(second=abs(number) % 60)],
        "pair": {"x": number, "y": _NAIVE},
        "text": f"text {number}",
    }[kind]


class Lineage:
    """One operator's state over epochs, each under a schema of its own, and what it must hold."""

    def __init__(self, folder: Path, cached: bool) -> None:
        self.store = LocalStore(StoreConfig(f"file://{folder / 'store'}"))
        self.cache = StateCache(folder / "cache") if cached else None
        self.handles: tuple[StateHandle, ...] = ()
        self.recorded: pa.Schema | None = None
        self.columns: dict[str, tuple[str, int]] = {}
        self.key_type = 0
        self.model: dict[int, dict[str, Any]] = {}
        self.checkpoint_id = 0

    def declare(self) -> pa.Schema:
        """The operator's schema for the columns as they are now: name -> (chain, place in it)."""
        fields = [pa.field("k", KEY_TYPES[self.key_type])]
        for name, (kind, place) in self.columns.items():
            fields.append(pa.field(name, CHAINS[kind][place], metadata={BEGINS_NULL: "1"}))
        return pa.schema(fields)

    def epoch(
        self, columns: Mapping[str, tuple[str, int]], key_type: int, changed: Mapping[int, Any], removed: set[int],
        parallelism: int,
    ) -> None:  # fmt: skip
        self.model = {
            key: {name: row[name] if name in self.columns else None for name in columns}
            for key, row in self.model.items()
        }
        self.columns, self.key_type = dict(columns), key_type
        self.checkpoint_id += 1
        schema = evolve_schema("op", self.recorded, self.declare(), ("k",), str(self.checkpoint_id))
        handles = []
        for subtask in range(parallelism):
            groups = key_group_range(GROUPS, parallelism, subtask)
            state = self.restore(schema, groups)
            held = {row["k"]: row for row in state.rows().to_pylist()}
            for key, row in held.items():
                self.same({name: row[name] for name in self.columns}, self.model[key])
            own = [key for key in {*changed, *removed} if self.owner(key, parallelism) == subtask]
            rows = [
                {"k": key, **{name: value_of(kind, changed[key]) for name, (kind, _) in columns.items()}}
                for key in own
                if key in changed
            ]
            state.upsert(pa.Table.from_pylist(rows, schema=state.schema))
            state.delete(pa.Table.from_pylist([{"k": key} for key in own if key in removed], schema=state.schema))
            frozen = state.freeze(None)
            snapshot = frozen.encode(f"chk-{self.checkpoint_id}/t1/state/")
            for upload in snapshot.uploads:
                self.store.put(upload.key, upload.body)
            frozen.stage_cache(snapshot)
            handles.append(snapshot.handle)
        self.handles, self.recorded = tuple(handles), schema
        for key, number in changed.items():
            self.model[key] = {name: value_of(kind, number) for name, (kind, _) in columns.items()}
        self.model = {key: row for key, row in self.model.items() if key not in removed}
        self.check()

    def restore(self, schema: pa.Schema, key_groups: range) -> SubtaskState:
        identity = StateIdentity.of("op", KeySpec(("k",), ("k",), KEYED), schema, key_groups, GROUPS)
        objects = CheckpointObjects(self.store, self.checkpoint_id, "j")
        return restore_state(identity, self.handles, objects, watermark_us=None, cache=self.cache)

    def check(self) -> None:
        assert self.recorded is not None
        rows = self.restore(self.recorded, range(GROUPS)).rows()
        assert rows.schema.equals(self.declare())
        held = {row["k"]: {name: row[name] for name in self.columns} for row in rows.to_pylist()}
        assert held.keys() == self.model.keys()
        for key, row in held.items():
            self.same(row, self.model[key])

    def same(self, found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
        assert dict(found) == dict(expected)

    def owner(self, key: int, parallelism: int) -> int:
        hashes = KEYED(pa.table({"k": pa.array([key], KEY_TYPES[self.key_type])}), ["k"])
        return int(subtask_of_key_group(key_group(hashes, GROUPS), GROUPS, parallelism)[0])


numbers = st.none() | st.integers(-99, 99)
keys = st.integers(-3, 9)
changes = st.dictionaries(keys, numbers, max_size=5)
steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["drop", "widen", *CHAINS])), max_size=2),
        st.booleans(), changes, st.sets(keys, max_size=2), st.integers(1, 2),
    ),
    min_size=2, max_size=9,
)  # fmt: skip


@pytest.mark.long
@profiles.examples(share=0.25)
@given(steps, st.booleans())
@example([([("b", "time")], False, {0: 5}, {1}, 1), ([], False, {}, set(), 2)], False)  # Parquet has no seconds
def test_state_through_any_changes_of_its_schema_equals_a_converted_dictionary(
    tmp_path_factory: pytest.TempPathFactory, plan: Any, cached: bool
) -> None:
    """DESIGN 5: base and deltas of several schemas, tombstones, rescale and cache: each run is converted on its own."""
    lineage = Lineage(tmp_path_factory.mktemp("state"), cached)
    columns: dict[str, tuple[str, int]] = {"a": ("whole", 0)}
    lineage.epoch(columns, 0, {key: key for key in range(10)}, set(), 1)  # large enough for deltas to stay deltas
    for schema_changes, wider_key, changed, removed, parallelism in plan:
        columns, touched = dict(lineage.columns), set()
        for name, what in schema_changes:
            if name in touched:
                continue
            touched.add(name)
            if what == "drop":
                columns.pop(name, None)
            elif name not in columns and what in CHAINS:
                columns[name] = (what, 0)
            elif name in columns and what == "widen":
                kind, place = columns[name]
                columns[name] = (kind, min(place + 1, len(CHAINS[kind]) - 1))
        key_type = min(lineage.key_type + wider_key, len(KEY_TYPES) - 1)
        lineage.epoch(columns, key_type, changed, removed, parallelism)


def test_old_runs_stay_in_use_and_a_column_added_again_is_a_new_column(tmp_path: Path) -> None:
    lineage = Lineage(tmp_path, cached=True)
    both = {"a": ("whole", 0), "b": ("text", 0)}
    lineage.epoch(both, 0, {key: key for key in range(10)}, set(), 1)
    base = lineage.handles[0].runs[0]
    lineage.epoch({"a": ("whole", 2)}, 0, {1: 50}, {2}, 1)
    lineage.epoch({"a": ("whole", 2), "b": ("whole", 3)}, 0, {3: 7}, set(), 1)
    runs = lineage.handles[0].runs
    assert runs[0] == base and [run.kind for run in runs] == [RunKind.BASE, RunKind.DELTA, RunKind.DELTA]
    assert lineage.recorded is not None and stored_names(lineage.recorded) == ("k", "a", "__b#3")
    assert (lineage.model[0], lineage.model[3]) == ({"a": 0, "b": None}, {"a": 7, "b": 7})
    lineage.epoch({"a": ("whole", 2), "b": ("whole", 3)}, 0, {}, set(), 2)
    assert stored_names(lineage.recorded) == ("k", "a", "__b#3"), "what did not change keeps its stored name"


every_type = [type_ for chain in CHAINS.values() for type_ in chain] + [
    pa.float32(), pa.bool_(), pa.binary(), pa.date32(), pa.timestamp("us"), pa.timestamp("ns", "UTC"),
    pa.decimal128(38, 0), pa.decimal128(19, 0), pa.decimal128(5, 4),
]  # fmt: skip


def test_widening_is_an_order() -> None:
    """A run may be converted over several steps in one: what two steps allow, one does; and no step goes back."""
    for one in every_type:
        assert widens(one, one)
        for other in every_type:
            assert one == other or not (widens(one, other) and widens(other, one))
            for third in every_type:
                assert not (widens(one, other) and widens(other, third)) or widens(one, third)


EXTREMES: dict[pa.DataType, list[Any]] = {
    pa.int8(): [-(2**7), 2**7 - 1],
    pa.int16(): [-(2**15), 2**15 - 1],
    pa.int32(): [-(2**31), 2**31 - 1],
    pa.int64(): [-(2**63), 2**63 - 1],
    pa.float32(): [1.401298464324817e-45, 3.4028234663852886e38],
    pa.decimal128(10, 0): [Decimal("-9999999999"), Decimal("9999999999")],
    pa.decimal128(5, 4): [Decimal("-9.9999"), Decimal("9.9999")],
    pa.timestamp("ms", "UTC"): [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)],
}


@pytest.mark.parametrize("before", list(EXTREMES), ids=str)
def test_the_least_and_largest_values_survive_every_widening(before: pa.DataType) -> None:
    values = pa.array(EXTREMES[before], before)
    for now in every_type:
        if widens(before, now):
            rows = convert_rows("run", pa.table({"v": values}), pa.schema([("v", now)]))
            back = [value if value == value else None for value in rows["v"].to_pylist()]
            assert back == values.to_pylist(), f"{before} as {now}"


WAS = pa.schema([("k", pa.int32()), ("v", pa.int32()), pa.field("s.low", pa.int64(), metadata={SCALE: "2"})])


@pytest.mark.parametrize(
    ("now", "problem"),
    [
        ([("k", pa.string()), ("v", pa.int32())], "key column k is int32, which cannot become string exactly"),
        ([("k", pa.decimal128(12, 0)), ("v", pa.int32())], "key column k is int32, which cannot become decimal128"),
        ([("k", pa.float64()), ("v", pa.int32())], "key column k is int32, which cannot become double exactly"),
        ([("k", pa.int32()), ("v", pa.int16())], "v is int32, which cannot become int16 exactly"),
        ([("k", pa.int32()), ("n", pa.int64())], "n is unknown for the rows that were already consumed"),
        ([("k", pa.int32()), ("__expires", pa.int64())], "the expiry of its keys was not recorded"),
        ([("k", pa.int32()), ("z", pa.int32()), ("v", pa.int32())], "key column z is new"),
        ([("k", pa.int32()), pa.field("s.low", pa.int64(), metadata={SCALE: "4"})], "stored with 2 decimal places"),
    ],
)  # fmt: skip
def test_a_change_that_recorded_state_cannot_follow_is_refused(now: list[Any], problem: str) -> None:
    schema = pa.schema(now)
    key = [name for name in ("k", "z") if name in schema.names]
    change = compare_schemas(WAS, schema, key)
    assert any(problem in text for text in change.problems), change.problems
    with wording.raises(InvalidRequest):
        evolve_schema("op", WAS, schema, key, "7")


def test_a_run_without_a_column_that_was_always_there_is_refused() -> None:
    """Only what was added later may be missing: a run of another operator is not state with nulls."""
    with wording.raises(InvalidRequest):
        convert_rows("run", pa.table({"k": pa.array([1], pa.int32())}), WAS)


def test_a_float_key_is_not_widened() -> None:
    """The text 0.1 is another float64 than the float32 that state has: its key would begin anew."""
    change = compare_schemas(pa.schema([("k", pa.float32())]), pa.schema([("k", pa.float64())]), ["k"])
    wording.matches("problems", change.problems)
    assert stored_name(WAS.field("v")) == "v"
