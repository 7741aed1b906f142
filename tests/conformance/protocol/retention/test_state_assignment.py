"""Assignment of restored state by operator uid and key group, for any parallelism that wrote it (DESIGN 5).

A subtask finds its keyed state and its in-flight buffers by the key groups it owns. There is no other kind of operator
state: a source's position belongs to no subtask, and its input is split again in each epoch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.codec.records import from_json, to_json
from milepost.errors import StateCorrupt
from milepost.jobmaster import Session
from milepost.jobspec.job import FileSourceSpec
from milepost.protocol.records.object_store import StoreConfig
from milepost.sources.contract import SourceObject
from milepost.sources.planning.splits import assign_splits
from milepost.state.buffers.buffers import Buffer, decode_rows, encode_rows
from milepost.state.buffers.channel_state import ChannelStateHandle, encode_channel_state, restore_channel_state
from milepost.state.layers.key_groups import key_group, key_group_range
from milepost.state.runs.handles import StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.jobs.sparkless.sparkless_job import SparklessJob
from milepost_testkit.rows.key_hashes import KEYED
from milepost_testkit.runners.sparkless_runner import SparklessRunner
from milepost_testkit.tasks.state_lineage import GROUPS, KEYS, SCHEMA, StateLineage, table

Handles = list[ChannelStateHandle | None]


def groups_of(rows: pa.Table, groups: int = GROUPS) -> set[int]:
    return {int(group) for group in key_group(KEYED(rows, ("k",)), groups)}


# -- keyed state ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3), (3, 2), (2, 2), (8, 5)])
def test_every_key_is_restored_by_the_one_owner_of_its_key_group(tmp_path: Path, before: int, after: int) -> None:
    """No row is lost, none is restored twice, and each subtask gets its own key groups only."""
    lineage = StateLineage.on(tmp_path)
    states = [lineage.restore(subtask, before) for subtask in range(before)]
    for subtask, state in enumerate(states):
        state.upsert(_owned(table(range(500), subtask), before, subtask))
    lineage.checkpoint(states)
    restored = [lineage.restore(subtask, after).rows() for subtask in range(after)]
    assert sorted(key for rows in restored for key in rows.column("k").to_pylist()) == list(range(500))
    for subtask, rows in enumerate(restored):
        assert groups_of(rows) <= set(key_group_range(GROUPS, after, subtask))


def test_an_operator_without_state_restores_empty_state(tmp_path: Path) -> None:
    """Empty, never absent: the operator reads and writes as any other.

    Case: StateAssignmentOperationTest.assigningStateHandlesCanNotBeNull
    """
    lineage = StateLineage.on(tmp_path)
    state = lineage.restore(1, 2)
    assert state.rows().num_rows == 0
    assert state.rows().schema == SCHEMA
    (handle,) = lineage.checkpoint([lineage.restore()])
    assert handle.runs == ()
    assert lineage.restore(0, 2).rows().num_rows == 0
    assert _channels(lineage.store, [None, None], 0, 2) == ()


def test_handles_that_leave_a_key_group_without_state_are_refused(tmp_path: Path) -> None:
    """A handle that is missing is damage, not an empty subtask."""
    lineage = StateLineage.on(tmp_path)
    lineage.checkpoint([lineage.restore(subtask, 2) for subtask in range(2)])
    lineage.handles = lineage.handles[:1]
    with wording.raises(StateCorrupt):
        lineage.restore()


def test_state_follows_the_uid_of_its_operator_not_its_place(tmp_path: Path) -> None:
    """A user names the operator; another that is put before it takes nothing of its state.

    Case: StateAssignmentOperationTest.assigningStatesShouldWorkWithUserDefinedOperatorIdsAsWell
    """
    job = SparklessJob.create(tmp_path)
    job.land("a.csv", "k,v\n1,a\n1,b\n")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    spec = job.folder / "config" / "small.yaml"
    text = spec.read_text()
    first = "operators:\n  - {uid: newcomer, kind: aggregate, inputs: [rows], key: [k], aggregates: {rows: count(*)}}"
    sink = "sinks:\n  - {name: other, input: newcomer, format: parquet, path: ../lake/other, mode: upsert}"
    spec.write_text(text.replace("operators:", first).replace("sinks:", sink))
    job.land("b.csv", "k,v\n1,c\n")
    job.master.epochs.run(Session.cli(), SparklessRunner())
    assert job.master.reports.read("table").to_pylist() == [{"k": 1, "rows": 3}]
    assert job.master.reports.read("other").to_pylist() == [{"k": 1, "rows": 1}]


def test_state_of_another_operator_is_refused(tmp_path: Path) -> None:
    """The uid is in the handle as well: what is restored was written by this operator."""
    lineage = StateLineage.on(tmp_path)
    (handle,) = lineage.epoch(range(10))
    document = to_json(handle) | {"uid": "other"}
    lineage.handles = (from_json(StateHandle, document, "state handle"),)
    with wording.raises(StateCorrupt):
        lineage.restore()


# -- what sources are to read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
def test_input_is_split_again_with_each_object_assigned_to_one_subtask(parallelism: int) -> None:
    """Splits are the only state that is dealt out: in order, each once, whatever the parallelism was before.

    Case: StateAssignmentOperationTest.testRepartitionSplitDistributeStates
    """
    objects = [SourceObject(f"{index}.csv", "v", 10 + index, index) for index in range(5)]
    source = FileSourceSpec.model_validate({"format": "csv", "path": "*.csv", "schema": {"k": "int64"}})
    splits = assign_splits(source, objects, parallelism)
    assert [part.object for split in splits for part in split] == objects
    assert len(splits) == min(parallelism, len(objects))
    assert all(splits)


# -- buffers in flight ----------------------------------------------------------------------------------------------


def in_flight(producer: str, keys: Sequence[int], operator: str = "latest") -> Buffer:
    return Buffer(operator, producer, 5, 7, encode_rows(table(keys, 0)))


def store_channels(store: LocalStore, buffers: Sequence[Buffer], parallelism: int) -> Handles:
    """The channel state of each subtask: every buffer is assigned with the rows it owns, as in the exchange."""
    handles: Handles = []
    for subtask in range(parallelism):
        own = [
            Buffer(one.operator, one.producer, one.lateness_us, one.oldest_us, encode_rows(part))
            for one in buffers
            if (part := _owned(one.rows(), parallelism, subtask)).num_rows
        ]
        file = encode_channel_state(
            {"latest": own},
            directory=f"chk-1/t{subtask}/channel/",
            key_groups=key_group_range(GROUPS, parallelism, subtask),
            signatures={"latest": "signature"},
        )
        if file is None:
            handles.append(None)
            continue
        store.put(file.key, file.body)
        handles.append(from_json(ChannelStateHandle, to_json(file.handles["latest"]), "channel state handle"))
    return handles


BUFFERS = (in_flight("rows", range(60)), in_flight("rows", range(60, 90)), in_flight("others", range(90, 120)))


def test_without_rescale_each_subtask_gets_its_own_buffers_as_they_came(tmp_path: Path) -> None:
    """Raw copies: byte for byte, in order, nothing decoded.

    Case: StateAssignmentOperationTest.testChannelStateAssignmentNoRescale
    """
    store = _store(tmp_path)
    handles = store_channels(store, BUFFERS, 2)
    for subtask in range(2):
        restored = _channels(store, handles, subtask, 2)
        sent = [_owned(one.rows(), 2, subtask) for one in BUFFERS]
        assert [bytes(memoryview(one.payload)) for one in restored] == [encode_rows(rows) for rows in sent if rows]
        assert [one.producer for one in restored] == ["rows", "rows", "others"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(2, 3, id="more"),
        pytest.param(3, 2, id="fewer"),
        pytest.param(1, 8, id="one-to-all"),
        pytest.param(8, 1, id="all-to-one"),
    ],
)
def test_after_a_rescale_each_row_in_flight_has_one_owner(tmp_path: Path, before: int, after: int) -> None:
    """Up and down: a new subtask takes from each former one what its key groups say, and nothing twice.

    Case: StateAssignmentOperationTest.testChannelStateAssignmentUpscaling
    Case: StateAssignmentOperationTest.testChannelStateAssignmentDownscaling
    """
    store = _store(tmp_path)
    handles = store_channels(store, BUFFERS, before)
    restored = [_channels(store, handles, subtask, after) for subtask in range(after)]
    keys = [key for part in restored for one in part for key in one.rows().column("k").to_pylist()]
    assert sorted(keys) == list(range(120))
    for subtask, part in enumerate(restored):
        for one in part:
            assert groups_of(one.rows()) <= set(key_group_range(GROUPS, after, subtask))


def test_rows_of_two_inputs_keep_their_input_and_both_times_through_a_rescale(tmp_path: Path) -> None:
    """Two gates: each buffer still has its producer, and the times that decide lateness and firing.

    Case: StateAssignmentOperationTest.testChannelStateAssignmentDownscalingTwoDifferentGates
    """
    store = _store(tmp_path)
    handles = store_channels(store, BUFFERS, 3)
    found: dict[str, set[int]] = {"rows": set(), "others": set()}
    for subtask in range(2):
        for one in _channels(store, handles, subtask, 2):
            found[one.producer].update(one.rows().column("k").to_pylist())
            assert (one.lateness_us, one.oldest_us) == (5, 7)
    assert found == {"rows": set(range(90)), "others": set(range(90, 120))}


def test_buffers_of_one_key_stay_in_order_through_a_rescale(tmp_path: Path) -> None:
    """The order per former subtask is preserved, and a key was always in one of them."""
    store = _store(tmp_path)
    buffers = [Buffer("latest", "rows", 5, 7, encode_rows(table(range(40), value))) for value in range(4)]
    handles = store_channels(store, buffers, 3)
    for subtask in range(2):
        seen: dict[int, list[int]] = {}
        for one in _channels(store, handles, subtask, 2):
            for row in one.rows().to_pylist():
                seen.setdefault(row["k"], []).append(row["v"])
        assert seen
        assert all(values == [0, 1, 2, 3] for values in seen.values())


def test_how_many_subtasks_had_sent_makes_no_difference(tmp_path: Path) -> None:
    """Channel state belongs to its consumer: splitting a source differently redistributes nothing.

    Case: StateAssignmentOperationTest.testOnlyUpstreamChannelRescaleStateAssignment
    """
    few, many = _store(tmp_path / "few"), _store(tmp_path / "many")
    one_sender = store_channels(few, [in_flight("rows", range(60))], 2)
    six_senders = store_channels(many, [in_flight("rows", range(at, at + 10)) for at in range(0, 60, 10)], 2)
    for subtask in range(3):
        rows = [row for one in _channels(few, one_sender, subtask, 3) for row in one.rows().to_pylist()]
        assert rows == [row for one in _channels(many, six_senders, subtask, 3) for row in one.rows().to_pylist()]
        assert rows


@pytest.mark.parametrize("after", [1, 3, 5])
def test_only_the_new_ranges_of_the_receivers_decide(tmp_path: Path, after: int) -> None:
    """The same files, other receivers: former subtasks whose whole range one receiver owns come raw, others filtered.

    Case: StateAssignmentOperationTest.testOnlyDownstreamChannelRescaleStateAssignment
    """
    store = _store(tmp_path)
    handles = store_channels(store, BUFFERS, 2)
    stored = [[bytes(memoryview(one.payload)) for one in _channels(store, handles, index, 2)] for index in range(2)]
    for subtask in range(after):
        own = set(key_group_range(GROUPS, after, subtask))
        expected = []
        for former, payloads in enumerate(stored):
            range_ = set(key_group_range(GROUPS, 2, former))
            if range_ <= own:
                expected += payloads
            elif range_ & own:
                parts = [_owned(decode_rows(payload), after, subtask) for payload in payloads]
                expected += [encode_rows(part) for part in parts if part.num_rows]
        assert [bytes(memoryview(one.payload)) for one in _channels(store, handles, subtask, after)] == expected


def test_subtasks_without_buffers_restore_none_next_to_one_that_has_some(tmp_path: Path) -> None:
    """Channel state of a single subtask: everybody restores, all but it nothing.

    Case: StateAssignmentOperationTest.testOnlyUpstreamChannelStateAssignment
    """
    store = _store(tmp_path)
    handles = store_channels(store, BUFFERS, 2)
    handles[1] = None
    restored = [_channels(store, handles, subtask, 2) for subtask in range(2)]
    assert len(restored[0]) == len(BUFFERS)
    assert restored[1] == ()


def test_buffers_in_flight_and_keyed_state_go_to_the_same_subtasks(tmp_path: Path) -> None:
    """One rule for both: many subtasks, unchanged or rescaled, each gets the two for the same key groups.

    Case: StateAssignmentOperationTest.testChannelStateAssignmentStability
    """
    lineage = StateLineage.on(tmp_path)
    lineage.epoch(range(200))
    handles = store_channels(lineage.store, [in_flight("rows", range(200))], GROUPS)
    for after in (GROUPS, 3):
        for subtask in range(after):
            keyed = set(lineage.restore(subtask, after).rows().column("k").to_pylist())
            channel = _channels(lineage.store, handles, subtask, after)
            assert {key for one in channel for key in one.rows().column("k").to_pylist()} == keyed


def _channels(store: LocalStore, handles: Handles, subtask: int, parallelism: int) -> tuple[Buffer, ...]:
    own = key_group_range(GROUPS, parallelism, subtask)
    identity = StateIdentity.of("latest", KEYS, SCHEMA, own, GROUPS)
    return restore_channel_state(
        identity, handles, CheckpointObjects(store, 7, "flights"), defaultdict(lambda: KEYS.routing_key)
    )


def _owned(rows: pa.Table, parallelism: int, subtask: int) -> pa.Table:
    own = key_group_range(GROUPS, parallelism, subtask)
    groups = key_group(KEYED(rows, ("k",)), GROUPS)
    return rows.filter(pa.array((groups >= own.start) & (groups < own.stop)))


def _store(folder: Path) -> LocalStore:
    return LocalStore(StoreConfig(f"file://{folder}"))
