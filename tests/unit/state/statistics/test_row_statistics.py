"""Row statistics of a checkpoint, updated from changed and due rows, equal a count of all rows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.records.state_columns import TIMER_EVERY
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.key_groups import key_group, key_group_range
from milepost.state.layers.layer import KeySpec
from milepost.state.runs.handles import RunKind, StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.state.statistics import row_statistics
from milepost.state.statistics.row_statistics import RowStatistics
from milepost.storage.local.store import LocalStore
from milepost_testkit import profiles
from milepost_testkit.rows.key_hashes import KEYED

GROUPS = 8
TIMER, EXPIRES = "__timer", "__expires"


class Lineage:
    """One operator's state and a dictionary, over epochs that each change little of it."""

    def __init__(self, folder: Path, names: tuple[str, ...], every: int = 0) -> None:
        self.store = LocalStore(StoreConfig(f"file://{folder}"))
        self.every = every
        rings = {TIMER: {TIMER_EVERY: str(every)}} if every else {}
        fields = [pa.field(name, pa.int64(), metadata=rings.get(name)) for name in names]
        self.schema = pa.schema([pa.field("k", pa.int64()), *fields])
        self.handles: list[StateHandle] = []
        self.model: dict[int, dict[str, Any]] = {}
        self.watermark: int | None = None
        self.epochs = 0

    def restore(self, key_groups: range = range(GROUPS)) -> SubtaskState:
        identity = StateIdentity.of("op", KeySpec(("k",), ("k",), KEYED), self.schema, key_groups, GROUPS)
        objects = CheckpointObjects(self.store, 1, "flights")
        return restore_state(identity, self.handles, objects, watermark_us=self.watermark)

    def put(self, state: SubtaskState, rows: list[dict[str, Any]], looked_up: bool) -> None:
        """As operators do: with the state of the keys looked up before, or without."""
        table = pa.Table.from_pylist(rows, schema=self.schema)
        if looked_up and rows:
            keys = state.group(table.select(["k"]))
            keys.find()
            keys.put(table.take(pa.array(keys.first)))
        else:
            state.upsert(table)
        self.model.update({row["k"]: row for row in rows})

    def delete(self, state: SubtaskState, keys: list[int]) -> None:
        state.delete(pa.table({"k": pa.array(keys, pa.int64())}))
        self.model = {k: row for k, row in self.model.items() if k not in keys}

    def commit(self, states: list[SubtaskState], watermark: int | None) -> None:
        self.epochs += 1
        handles = []
        for state in states:
            snapshot = state.freeze(watermark).encode(f"chk-{self.epochs}/t1/")
            for upload in snapshot.uploads:
                self.store.put(upload.key, upload.body)
            handles.append(snapshot.handle)
        self.handles, self.watermark = handles, watermark
        dead = [k for k, row in self.model.items() if watermark is not None and row.get(EXPIRES) is not None
                and row[EXPIRES] <= watermark]  # fmt: skip
        self.model = {k: row for k, row in self.model.items() if k not in dead}

    def expected(self) -> RowStatistics:
        timers: dict[int, int] = {}
        for k, row in self.model.items():
            timer = row.get(TIMER)
            while self.every and self.watermark is not None and timer <= self.watermark:
                timer += self.every
            if timer is not None and (self.watermark is None or timer > self.watermark):
                group = int(key_group(KEYED(pa.table({"k": [k]}), ["k"]), GROUPS)[0])
                timers[group] = min(timer, timers.get(group, timer))
        return RowStatistics(len(self.model), tuple(sorted(timers.items())))

    def recorded(self) -> RowStatistics:
        timers = sorted(timer for handle in self.handles for timer in handle.timers)
        return RowStatistics(sum(handle.live_rows for handle in self.handles), tuple(timers))


@dataclass(frozen=True)
class Way:
    """How rows get their times, as one kind of operator does."""

    names: tuple[str, ...]
    looked_up: bool
    deletes: bool
    every: int = 0

    def times(self, k: int, now: int, random: np.random.Generator) -> dict[str, Any]:
        if self.names == (TIMER,):  # set anew by each row, often unset
            return {TIMER: None if random.random() < 0.2 else now + int(random.integers(0, 30))}
        if self.names == (EXPIRES,):
            return {EXPIRES: now + int(random.integers(1, 40))}
        if self.deletes:  # a row may expire before its timer
            return {TIMER: now + int(random.integers(0, 30)), EXPIRES: now + int(random.integers(1, 40))}
        end = 10 * (k % 7) + 10 * (now // 10) + 10  # a window's end goes with its key
        return {TIMER: end, EXPIRES: end + (5 if k % 2 else 0)}


WAYS = {
    "window": Way((TIMER, EXPIRES), looked_up=True, deletes=False),
    "process": Way((TIMER,), looked_up=False, deletes=True),
    "deduplicate": Way((EXPIRES,), looked_up=True, deletes=False),
    "sliding window": Way((TIMER, EXPIRES), looked_up=True, deletes=False, every=4),
    "all": Way((TIMER, EXPIRES), looked_up=False, deletes=True),
}


@pytest.mark.deep
@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@profiles.examples(share=0.06)
@given(seed=st.integers(0, 2**32 - 1), rescale_at=st.integers(0, 9))
def test_a_statistic_by_what_changed_is_that_of_all_rows(
    tmp_path_factory: pytest.TempPathFactory, way: Way, seed: int, rescale_at: int
) -> None:
    """DESIGN 5: a group is opened if its earliest timer is due, so a timer too late would lose what it fires."""
    random = np.random.default_rng(seed)
    lineage = Lineage(tmp_path_factory.mktemp("statistics"), way.names, way.every)
    now, keys = 0, 150
    for epoch in range(10):
        parallelism = 2 if epoch == rescale_at else 1
        ranges = [key_group_range(GROUPS, parallelism, subtask) for subtask in range(parallelism)]
        states = [lineage.restore(own) for own in ranges]
        for _ in range(int(random.integers(1, 3))):
            touched = range(keys) if epoch == 0 else random.choice(keys, 8, replace=False).tolist()
            groups = key_group(KEYED(pa.table({"k": pa.array(touched, pa.int64())}), ["k"]), GROUPS)
            for state, own in zip(states, ranges, strict=True):
                mine = [k for k, group in zip(touched, groups.tolist(), strict=True) if group in own]
                rows = [{"k": k, **way.times(k, now, random)} for k in mine]
                lineage.put(state, rows, way.looked_up)
                if way.deletes:
                    lineage.delete(state, mine[:2])
        now += int(random.choice([0, 1, 12]))
        lineage.commit(states, now if epoch or seed % 2 else None)
        assert lineage.recorded() == lineage.expected()


def test_timers_that_move_on_with_every_row_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What newer rows hide has earlier timers here: first passed over one by one, then all rows are counted."""
    counts: list[int] = []
    count = row_statistics.counted
    monkeypatch.setattr(
        row_statistics, "counted", lambda layers, *rest: counts.append(len(layers)) or count(layers, *rest)
    )
    lineage = Lineage(tmp_path, (TIMER,))
    for epoch, changed in enumerate([range(400), *(range(moved) for moved in (2, 40, 300))]):
        state = lineage.restore()
        rows = [{"k": k, TIMER: (1_000 if epoch else 100) * (epoch + 1) + k} for k in changed]
        lineage.put(state, rows, looked_up=False)
        lineage.commit([state], 0)
        assert lineage.recorded() == lineage.expected()
        assert len(counts) == (1 if epoch == 3 else 0)
    assert [run.kind for run in lineage.handles[0].runs] == [RunKind.BASE, *[RunKind.DELTA] * 3]
