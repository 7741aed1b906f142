"""The node-local cache is disposable: with, without, damaged or foreign, the state is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from milepost.errors import StateCorrupt
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.layout import token_prefix
from milepost.protocol.records.object_store import StoreConfig
from milepost.protocol.subtask.subtask_commands import Notification
from milepost.state.cache.cache import StateCache
from milepost.state.keyed.keyed_state import SubtaskState
from milepost.state.keyed.restore import restore_state
from milepost.state.layers.key_groups import key_group_range
from milepost.state.layers.layer import KeySpec, Layer, match, sort_rows
from milepost.state.runs.evolution import STORED_AS
from milepost.state.runs.handles import RunKind, StateHandle
from milepost.state.runs.identity import CheckpointObjects, StateIdentity
from milepost.state.runs.runs import encode_run
from milepost.storage.local.store import LocalStore
from milepost_testkit import wording
from milepost_testkit.rows.key_hashes import KEYED

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64())])
KEYS = KeySpec(("k",), ("k",), KEYED)


class Node:
    """Checkpoints of one operator, restored through one cache directory."""

    def __init__(self, folder: Path) -> None:
        self.store = LocalStore(StoreConfig(f"file://{folder}/store"))
        self.directory = folder / "of the node" / "cache"
        self.handles: list[StateHandle] = []
        self.epochs = self.completed = 0

    def restore(self, subtask: int = 0, parallelism: int = 1) -> SubtaskState:
        identity = StateIdentity.of("agg", KEYS, SCHEMA, key_group_range(8, parallelism, subtask), 8)
        objects = CheckpointObjects(self.store, self.completed, "j")
        return restore_state(identity, self.handles, objects, watermark_us=None, cache=self.cache)

    @property
    def cache(self) -> StateCache:
        return StateCache(self.directory)

    def notify(self, checkpoint_id: int, what: Notification, uid: str = "agg") -> None:
        self.cache.notify(uid, range(8), checkpoint_id, what)

    def epoch(self, first: int, last: int, acknowledged: bool = True) -> None:
        self.epochs += 1
        state = self.restore()
        state.upsert(pa.table([[f"k{i}" for i in range(first, last)], [self.epochs] * (last - first)], schema=SCHEMA))
        frozen = state.freeze(None)
        snapshot = frozen.encode(token_prefix(CheckpointId(self.epochs), FencingToken(1)))
        for upload in snapshot.uploads:
            self.store.put(upload.key, upload.body)
        frozen.stage_cache(snapshot)
        if acknowledged:
            self.handles, self.completed = [snapshot.handle], self.epochs

    def entries(self) -> list[Path]:
        return sorted(self.directory.glob("*/*.arrow"))

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.values()) for row in self.restore().rows().to_pylist())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    node.epoch(0, 100)
    node.epoch(90, 110)
    node.epoch(105, 120)
    return node


def expected() -> list[tuple[Any, ...]]:
    return sorted((f"k{i}", 3 if i >= 105 else 2 if i >= 90 else 1) for i in range(120))


def test_a_warm_restore_reads_no_stored_run(node: Node) -> None:
    """Every run of the checkpoint is in the cache once it was written or read on this node."""
    assert node.rows() == expected()
    assert len(node.entries()) == 3
    node.store.delete([run.key for run in node.handles[0].runs])
    assert node.rows() == expected()


def test_a_cold_restore_gives_the_same_state_and_fills_the_cache(node: Node) -> None:
    """Deleting the cache costs one read of the store, nothing else: also an epoch that fails leaves it filled."""
    warm = {path.name: path.read_bytes() for path in node.entries()}
    for path in node.entries():
        path.unlink()
    assert node.rows() == expected()
    assert {path.name: path.read_bytes() for path in node.entries()} == warm
    node.store.delete([run.key for run in node.handles[0].runs])
    assert node.rows() == expected()


def test_layers_that_a_cold_restore_decodes_are_mapped_from_the_cache(node: Node) -> None:
    """All runs of a state in the process's own memory, in addition to their entries, would take twice as much."""
    for path in node.entries():
        path.unlink()
    state = node.restore()
    mapped = Path("/proc/self/maps").read_text()
    assert [path.name for path in node.entries() if str(path) not in mapped] == []
    assert len(node.entries()) == 3
    assert state.rows().num_rows == 120


def test_an_entry_stores_the_drifts_of_its_hashes_unless_they_are_crowded(tmp_path: Path) -> None:
    """Windows of one key share the upper half of their hash."""
    keys = KeySpec(("k", "v"), ("k",), KEYED)
    cache = StateCache(tmp_path / "cache")
    found = []
    for per_key in (1, 50):
        rows = pa.table([[f"k{i // per_key}" for i in range(2000)], list(range(2000))], schema=SCHEMA)
        layer = sort_rows(rows, keys, deleted=False)
        run, _ = encode_run(layer, RunKind.BASE, range(8), 8, "x/", keys)
        identity = StateIdentity.of("agg", keys, SCHEMA, range(8), 8)
        assert cache.stage(identity, run, layer)
        loaded = cache.load(identity, run)
        assert loaded is not None and loaded.rows.equals(layer.rows)
        wanted = rows.slice(500, 1000)
        asked, rows_found = match(loaded, keys.hashes(wanted), wanted, keys)
        assert loaded.take(rows_found).equals(wanted.take(pa.array(asked))) and len(asked) == 1000
        found.append(loaded.drifts is not None)
    assert found == [True, False]


@pytest.mark.parametrize(
    "damage",
    [
        lambda body: b"",
        lambda body: body[: len(body) // 2],
        lambda body: body[:400] + bytes([body[400] ^ 0xFF]) + body[401:],
        lambda body: bytes(len(body)),
        lambda body: body + b"\0",
    ],
)
def test_a_damaged_entry_is_ignored_and_replaced(node: Node, damage: Any) -> None:
    """Torn by a crash, or altered: the name says size and checksum, the store has the truth."""
    intact = {path: path.read_bytes() for path in node.entries()}
    for path, body in intact.items():
        path.write_bytes(damage(body))
    assert node.rows() == expected()
    assert {path: path.read_bytes() for path in node.entries()} == intact


def test_entries_of_an_aborted_checkpoint_are_removed_on_notification(node: Node) -> None:
    """Until then it may be another try's; nothing reads it, because entries are named after the run that they equal."""
    before = node.entries()
    node.epoch(0, 30, acknowledged=False)
    assert node.rows() == expected() and len(node.entries()) == 4, "a restore leaves what a newer checkpoint wrote"
    node.notify(3, Notification.ABORTED, uid="another operator")
    assert len(node.entries()) == 4
    node.notify(4, Notification.ABORTED)
    assert node.entries() == before
    node.notify(4, Notification.ABORTED)
    assert node.rows() == expected() and node.entries() == before, "told again, it does nothing"


def test_a_folder_is_removed_when_the_last_checkpoint_that_used_it_is_subsumed(node: Node) -> None:
    """An operator that the spec has dropped reads nothing, so nothing else would remove its entries."""
    node.notify(3, Notification.COMPLETE)
    assert [path.name for path in node.directory.glob("*/*.completed")] == ["3.completed"]
    for told in (2, 3):
        node.notify(told, Notification.SUBSUMED, uid="another operator")
        assert len(node.entries()) == 3, "checkpoint 3 used them"
    node.notify(9, Notification.COMPLETE)
    node.notify(9, Notification.SUBSUMED, uid="another operator")
    assert len(node.entries()) == 3, "so did checkpoint 9, which wrote nothing"
    node.notify(10, Notification.SUBSUMED, uid="another operator")
    assert not list(node.directory.iterdir())
    assert node.rows() == expected(), "whoever asks for them again reads the store"


def test_a_notification_to_a_node_without_a_cache_does_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for what in Notification:
        node.notify(1, what)
    assert not node.directory.exists()


def test_entries_of_replaced_runs_and_of_other_ranges_are_removed(node: Node) -> None:
    """The cache is bounded by what the checkpoint needs on this node."""
    node.epoch(0, 120)
    assert len(node.handles[0].runs) == 1, "a base replaced every run"
    node.restore()
    assert len(node.entries()) == 1
    halves = [node.restore(subtask, 2) for subtask in range(2)]
    assert sum(half.rows().num_rows for half in halves) == 120
    assert len(node.entries()) == 2, "one entry per half, the whole range is gone"
    assert {entry.parent for entry in node.entries()} == set(node.directory.iterdir()), "and its folder"


def test_a_removed_entry_does_not_stay_mapped(node: Node) -> None:
    """A process that runs epoch after epoch keeps entries mapped: those of replaced runs would fill the disk unseen."""
    assert len(node.rows()) == 120, "its entries are mapped"
    before = set(node.entries())
    node.epoch(0, 100)
    assert len(node.rows()) == 120
    node.epoch(0, 100)
    removed = before - set(node.entries())
    assert removed
    mapped = Path("/proc/self/maps").read_text()
    assert [path.name for path in removed if str(path) in mapped] == []


def test_a_cache_that_other_users_can_write_to_is_not_used(node: Node) -> None:
    """DESIGN 9: other users of the machine are not trusted; the damaged store then shows that no entry was read."""
    node.directory.chmod(0o777)
    assert node.rows() == expected()
    node.store.delete([run.key for run in node.handles[0].runs])
    with wording.raises(StateCorrupt):
        node.rows()


def test_a_cache_directory_that_cannot_be_made_costs_nothing_but_reads(tmp_path: Path) -> None:
    """A fault of the cache is logged, never raised."""
    (tmp_path / "cache").write_text("a file where the directory should be")
    node = Node(tmp_path)
    node.epoch(0, 10)
    node.epoch(5, 10)
    assert [value for _, value in node.rows()] == [1] * 5 + [2] * 5


def test_several_bases_are_read_without_being_merged(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a change of parallelism, or of a memory limit, each epoch would else merge all of the state."""
    handles = []
    for subtask in range(3):
        state = node.restore(subtask, 3)
        rows = pa.table([[f"k{i}" for i in range(300)], list(range(300))], schema=SCHEMA)
        groups = key_group_range(8, 3, subtask)
        placed = KEYED.key_groups(rows, ["k"], 8)
        state.upsert(rows.filter(pa.array((placed >= groups.start) & (placed < groups.stop))))
        snapshot = state.freeze(None).encode(f"chk-9/t1/{subtask}/")
        for upload in snapshot.uploads:
            node.store.put(upload.key, upload.body)
        handles.append(snapshot.handle)
    assert [len(handle.runs) for handle in handles] == [1, 1, 1]
    node.handles = handles

    def merge(layers: Sequence[Layer], *_: object) -> Layer:
        raise AssertionError(f"{len(layers)} layers were merged")

    monkeypatch.setattr("milepost.state.keyed.keyed_state.stack", merge)
    state = node.restore()
    found = state.lookup(pa.table([[f"k{i}" for i in range(250, 350)]], names=["k"]))
    assert sorted(found["v"].to_pylist()) == list(range(250, 300))
    monkeypatch.undo()
    assert node.rows() == sorted((f"k{i}", i) for i in range(300))
    node.epoch(0, 300)
    assert [run.kind for run in node.handles[0].runs] == [RunKind.BASE], "what replaces them is one run"


def test_an_entry_is_of_the_stored_column_and_not_of_its_name(node: Node) -> None:
    """A column that was dropped and added again has another stored name: its old values are not its own."""
    run = node.handles[0].runs[0]
    own = StateIdentity.of("agg", KEYS, SCHEMA, range(8), 8)
    anew = pa.schema([SCHEMA.field("k"), SCHEMA.field("v").with_metadata({STORED_AS: "v#7"})])
    assert node.cache.load(own, run) is not None
    assert node.cache.load(replace(own, stored=anew), run) is None


def test_each_table_of_an_operator_has_folders_of_its_own(node: Node) -> None:
    """What one restore tidies is its own table's: the runs of another table are no leftovers of it."""
    before = node.entries()
    identity = StateIdentity.of("agg", KEYS, SCHEMA, range(8), 8, table="other")
    objects = CheckpointObjects(node.store, node.completed, "j")
    other = restore_state(identity, node.handles, objects, watermark_us=None, cache=node.cache)
    assert sorted(tuple(row.values()) for row in other.rows().to_pylist()) == node.rows()
    added = [path for path in node.entries() if path not in before]
    assert {path.name for path in added} == {path.name for path in before} and len(added) == 3
    restore_state(identity, [], objects, watermark_us=None, cache=node.cache)
    assert node.entries() == before, "what the other table's checkpoint does not have any more is gone, no more"
    restore_state(identity, node.handles, objects, watermark_us=None, cache=node.cache)
    node.notify(node.epochs, Notification.ABORTED)
    assert len(node.entries()) == 4, "of an aborted checkpoint nothing stays, in whatever table"
