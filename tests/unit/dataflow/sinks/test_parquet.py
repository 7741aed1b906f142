"""What is particular to the Parquet sink: upsert, the chain's bounds, compaction, damage, stored text."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from milepost.dataflow.sinks.parquet import ParquetSink
from milepost.dataflow.sinks.sink_head import head_key, head_version

from milepost.dataflow.sinks import parquet, sink_chain
from milepost.dataflow.sinks.build import build_sink
from milepost.dataflow.sinks.committables import (
    Committable,
    RowsPiece,
    SinkMark,
    StagedFile,
    decode_schema,
    encode_schema,
)
from milepost.dataflow.sinks.contract import SinkMode
from milepost.protocol.codec.records import from_json, to_json
from milepost.protocol.records.errors import (
    CommitOutcomeUnknown,
    InvalidRequest,
    NotFound,
    ProtocolViolation,
    StateCorrupt,
    Superseded,
)
from milepost.protocol.records.ids import CheckpointId
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.spec.job.spec import SinkSpec
from milepost.storage.open import open_store
from tests.conformance.sink import SCHEMA, mark, publish, rows, stage
from tests.harness.stores.faulty_store import Effect, Fault, FaultyStore, at
from tests.harness.stores.hooked_store import HookedStore


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(file_url(tmp_path / "a lake")))


def open_sink(store: ObjectStore, mode: SinkMode = SinkMode.UPSERT, key: tuple[str, ...] = ("k",)) -> ParquetSink:
    return ParquetSink("table", job="job", mode=mode, key=key if mode is SinkMode.UPSERT else (), store=store)


def fill(sink: ParquetSink, heads: int) -> None:
    for n in range(1, heads + 1):
        publish(sink, n, n - 1 or None, rows((n % 7, str(n))))


def test_upsert_shows_the_latest_row_per_key_sorted(store: ObjectStore) -> None:
    """What `mode` says."""
    upsert = open_sink(store)
    publish(upsert, 1, None, rows((3, "a"), (1, "b")))
    publish(upsert, 2, 1, rows((1, "c"), (2, "d")))
    assert upsert.read().to_pylist() == [{"k": 1, "v": "c"}, {"k": 2, "v": "d"}, {"k": 3, "v": "a"}]


def test_append_shows_every_row_in_commit_and_subtask_order(store: ObjectStore) -> None:
    append = open_sink(store, SinkMode.APPEND)
    publish(append, 1, None, rows((3, "a"), (1, "b")), rows((0, "x")))
    publish(append, 2, 1, rows((1, "c")))
    assert append.read().column("v").to_pylist() == ["a", "b", "x", "c"]


def test_a_null_in_the_key_is_a_key_like_any_other(store: ObjectStore) -> None:
    """SQL grouping: nulls equal each other."""
    sink = open_sink(store)
    publish(sink, 1, None, pa.table({"k": pa.array([None, 1], pa.int64()), "v": ["old", "a"]}, schema=SCHEMA))
    publish(sink, 2, 1, pa.table({"k": pa.array([None], pa.int64()), "v": ["new"]}, schema=SCHEMA))
    assert sink.read().to_pylist() == [{"k": 1, "v": "a"}, {"k": None, "v": "new"}]


def test_a_key_twice_in_one_subtask_keeps_its_last_row(store: ObjectStore) -> None:
    sink = open_sink(store)
    committable = publish(sink, 1, None, rows((1, "first"), (2, "b"), (1, "last")))
    assert committable.rows == 2
    assert sink.staged_table(committable).column("v").to_pylist() == ["b", "last"]
    assert sink.read().to_pylist() == [{"k": 1, "v": "last"}, {"k": 2, "v": "b"}]


def test_types_come_back_as_they_were_written(store: ObjectStore) -> None:
    """The types of a table."""
    table = pa.table(
        {
            "k": pa.array([1], pa.int8()),
            "t": pa.array([1], pa.timestamp("us", "UTC")),
            "n": pa.array([1], pa.timestamp("ns")),
            "d": pa.array([1], pa.decimal128(12, 3)),
            "f": pa.array([0.1], pa.float32()),
            "b": pa.array([b"x"], pa.binary()),
            "l": pa.array([[1, None]], pa.list_(pa.int16())),
            "s": pa.array([{"a": 1}], pa.struct([("a", pa.int64())])),
            "day": pa.array([1], pa.date32()),
        }
    )
    sink = open_sink(store)
    publish_table = stage(sink, 1, table, schema=table.schema)
    sink.prepare(publish_table)
    assert sink.commit(publish_table, mark(1, None))
    assert sink.read().equals(table)


def test_a_reader_fetches_at_most_one_snapshot_and_nineteen_older_heads(store: ObjectStore) -> None:
    """The chain is bounded: 59 heads, the worst distance from a snapshot; and so is a late commit's lineage check."""
    sink = open_sink(store)
    fill(sink, 59)
    fetched: Counter[str] = Counter()

    def count(operation: str, key: str) -> None:
        fetched[f"{operation} {key.split('/')[0]}"] += 1

    counted = open_sink(HookedStore(store, before=count))
    assert counted.read().num_rows == 7
    assert fetched["get _snapshots"] == 1 and fetched["get _heads"] <= sink_chain.SNAPSHOT_EVERY
    fetched.clear()
    assert counted.is_committed(mark(1, None))
    assert fetched["get _snapshots"] == 1 and fetched["get _heads"] <= sink_chain.SNAPSHOT_EVERY


def test_a_head_does_not_grow_with_the_table(store: ObjectStore) -> None:
    sink = open_sink(store, SinkMode.APPEND)
    fill(sink, 41)
    sizes = {n: store.stat(head_key(n)).size for n in range(1, 42)}
    assert max(sizes.values()) - min(sizes.values()) < 400
    assert sink.read().num_rows == 41
    assert [sink.read(n).num_rows for n in (1, 19, 20, 21, 40, 41)] == [1, 19, 20, 21, 40, 41]


def test_the_newest_head_is_listed_first(store: ObjectStore) -> None:
    """One LIST with limit 1 finds it."""
    assert sorted([head_key(9), head_key(10), head_key(2)]) == [head_key(10), head_key(9), head_key(2)]
    assert head_version(head_key(12345)) == 12345
    for name in ("_heads/1.json", "_heads/99999999999999999999.json", "_heads/x", head_key(0)):
        with pytest.raises(StateCorrupt):
            head_version(name)


def test_compaction_leaves_one_file_and_the_same_table(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An upsert table does not grow for ever; older checkpoints stay readable."""
    monkeypatch.setattr(parquet, "COMPACT_FILES", 5)
    sink = open_sink(store)
    fill(sink, 4)
    before = sink.read().to_pylist()
    committable = stage(sink, 5, rows((1, "new"), (9, "nine")))
    compacted = sink.compact(committable, predecessor=4, checkpoint_id=5, token=1)
    assert compacted.files == committable.files and compacted.compaction is not None
    assert sink.read().to_pylist() == before
    sink.prepare(compacted, mark=mark(5, 4))
    assert sink.commit(from_json(Committable, to_json(compacted), "committable"), mark(5, 4)) is True
    fetched: Counter[str] = Counter()
    counting = HookedStore(store, before=lambda operation, key: fetched.update([f"{operation} {key.split('/')[0]}"]))
    assert open_sink(counting).read().to_pylist() == [
        {"k": 1, "v": "new"},
        {"k": 2, "v": "2"},
        {"k": 3, "v": "3"},
        {"k": 4, "v": "4"},
        {"k": 9, "v": "nine"},
    ]
    assert fetched["get data"] == 1
    assert sink.read(4).to_pylist() == before
    sink.abort(checkpoint_id=5, token=1)
    assert sink.verify(deep=True) == []


def test_compaction_waits_while_an_earlier_commit_is_still_to_come(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would drop the rows of the commit in between."""
    monkeypatch.setattr(parquet, "COMPACT_FILES", 2)
    sink = open_sink(store)
    fill(sink, 3)
    uncommitted = stage(sink, 4, rows((4, "4")))
    committable = stage(sink, 5, rows((5, "5")))
    assert sink.compact(committable, predecessor=4, checkpoint_id=5, token=1) is committable
    compacted = sink.compact(committable, predecessor=3, checkpoint_id=5, token=1)
    assert compacted.compaction is not None
    assert sink.commit(uncommitted, mark(4, 3))
    with pytest.raises(ProtocolViolation, match="compacted on top of checkpoint 3"):
        sink.commit(compacted, mark(5, 4))


def test_a_follow_builds_on_compacted_tables_and_takes_the_plain_files_of_what_it_adds(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compaction in the middle was computed on top of one predecessor; its epoch's own files say the same."""
    monkeypatch.setattr(parquet, "COMPACT_FILES", 3)
    sink = open_sink(store)
    fill(sink, 2)
    third = sink.compact(stage(sink, 3, rows((3, "3"))), predecessor=2, checkpoint_id=3, token=1)
    assert third.compaction is not None and sink.commit(third, mark(3, 2))
    publish(sink, 4, 3, rows((4, "4")))
    publish(sink, 5, 4, rows((5, "left behind")))
    monkeypatch.setattr(parquet, "COMPACT_FILES", 1)
    sixth = sink.compact(stage(sink, 6, rows((1, "6"))), predecessor=5, checkpoint_id=6, token=1)
    seventh = stage(sink, 7, rows((2, "7")))
    assert sixth.compaction is not None
    added = [(CheckpointId(6), sixth), (CheckpointId(7), seventh)]
    change = sink.compare(sink.find(4), added)
    assert (change.rows_now, change.rows_then, change.files_then) == (5, 4, 4)
    assert sink.follow(base=sink.find(4), committables=added, mark=mark(7, None, "t9"), decision=9)
    assert sink.read().column("v").to_pylist() == ["6", "7", "3", "4"]
    assert sink.read(6).column("v").to_pylist() == ["6", "2", "3", "4"]
    assert sink.commit(sixth, mark(6, 5)) is False
    eighth = sink.compact(stage(sink, 8, rows((8, "8"))), predecessor=7, checkpoint_id=8, token=1)
    assert eighth.compaction is not None and sink.commit(eighth, mark(8, 7, "t9"))
    assert sink.read().column("v").to_pylist() == ["6", "7", "3", "4", "8"]
    assert all(sink.verify(n, deep=True) == [] for n in range(1, 9))


def test_a_reader_after_a_follow_fetches_one_snapshot_and_the_heads_since(store: ObjectStore) -> None:
    """However long the lineages are that it was built from."""
    sink = open_sink(store)
    fill(sink, 30)
    sink.follow(base=sink.find(25), committables=[], mark=mark(25, None, "t9"), decision=9)
    committable = stage(sink, 31, rows((31, "31")))
    assert sink.commit(committable, mark(31, 25, "t9"))
    fetched: Counter[str] = Counter()
    counting = HookedStore(store, before=lambda operation, key: fetched.update([f"{operation} {key.split('/')[0]}"]))
    assert open_sink(counting).read().num_rows == 8
    assert (fetched["get _snapshots"], fetched["get _heads"]) == (1, 1)


def test_looking_for_a_new_checkpoint_reads_no_lineage_and_one_head_for_each_that_was_left(store: ObjectStore) -> None:
    """The answer is known from where the lineages end."""
    sink = open_sink(store)
    fill(sink, 30)
    for decision in (40, 50):
        sink.follow(base=sink.find(25), committables=[], mark=mark(25, None, f"t{decision}"), decision=decision)
    fetched: Counter[str] = Counter()
    counting = HookedStore(store, before=lambda operation, key: fetched.update([f"{operation} {key.split('/')[0]}"]))
    assert open_sink(counting).find(31) is None
    assert fetched == {"list _heads": 1, "get _heads": 3}


def test_a_checkpoint_never_follows_a_later_one(store: ObjectStore) -> None:
    """I5: what is looked for relies on it."""
    sink = open_sink(store)
    publish(sink, 5, None, rows((1, "a")))
    for late in (mark(5, 5), mark(4, 5), mark(0, None)):
        with pytest.raises(ProtocolViolation, match="cannot follow"):
            sink.commit(stage(sink, 4, rows((4, "d"))), late)


def test_a_damaged_table_can_go_back_to_where_it_was_whole(store: ObjectStore) -> None:
    """The plan says what it can: the damage may be the reason to go back."""
    sink = open_sink(store)
    fill(sink, 3)
    to = sink.find(2)
    store.delete([stat.key for stat in store.list("data/chk-00000000000000000003/")])
    change = sink.compare(to, [])
    assert (change.rows_now, change.rows_then, change.files_now, change.files_then) == (None, 2, 3, 2)
    assert sink.follow(base=to, committables=[], mark=mark(2, None, "t9"), decision=9)
    assert sink.verify(deep=True) == [] and sink.read().num_rows == 2


@pytest.mark.parametrize(("damaged", "lost"), [("the newest snapshot", 28), ("head 22", 24)])
def test_a_table_whose_chain_is_damaged_can_go_back_to_before_the_damage(
    store: ObjectStore, damaged: str, lost: int
) -> None:
    """Every head says its own marks; what is not found in a chain with a gap is not said to be absent."""
    sink = open_sink(store)
    fill(sink, 25)
    sink.follow(base=sink.find(21), committables=[], mark=mark(21, None, "t9"), decision=9)
    brought = [(CheckpointId(n), stage(sink, n, rows((n, "brought")))) for n in (26, 27)]
    sink.follow(base=sink.find(19), committables=brought, mark=mark(27, None, "t10"), decision=10)
    assert sink.commit(stage(sink, 28, rows((28, "last"))), mark(28, 27, "t10"))
    *_, newest = store.list("_snapshots/")
    broken = head_key(22) if damaged == "head 22" else newest.key
    store.put(broken, store.get(broken)[:-1])
    with pytest.raises(StateCorrupt):
        sink.read(lost)
    with pytest.raises(StateCorrupt):
        sink.abort(checkpoint_id=29, token=1)
    assert sink.find(12) is not None
    to = sink.find(21)
    assert to == mark(21, None, "t9")
    assert sink.compare(to, []).rows_then == 7
    assert sink.follow(base=to, committables=[], mark=mark(21, None, "t11"), decision=11)
    assert sink.verify(deep=True) == [] and sink.read().num_rows == 7


def test_an_append_table_is_never_compacted(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "COMPACT_FILES", 1)
    sink = open_sink(store, SinkMode.APPEND)
    fill(sink, 2)
    committable = stage(sink, 3, rows((3, "3")))
    assert sink.compact(committable, predecessor=2, checkpoint_id=3, token=1) is committable


def test_abort_also_removes_a_compaction_that_was_only_staged(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "COMPACT_FILES", 1)
    sink = open_sink(store)
    fill(sink, 2)
    sink.compact(stage(sink, 3, rows((3, "3"))), predecessor=2, checkpoint_id=3, token=1)
    assert len(list(store.list("data/chk-00000000000000000003/"))) == 2
    sink.abort(checkpoint_id=3, token=1)
    assert list(store.list("data/chk-00000000000000000003/")) == []


@pytest.mark.parametrize(("mode", "key"), [(SinkMode.APPEND, ()), (SinkMode.UPSERT, ("k", "v"))])
def test_another_mode_or_key_on_the_same_table_is_refused(
    store: ObjectStore, mode: SinkMode, key: tuple[str, ...]
) -> None:
    """The same files mean another table under another mode or key."""
    publish(open_sink(store), 1, None, rows((1, "a")))
    changed = open_sink(store, mode, key)
    with pytest.raises(InvalidRequest, match="was written with mode upsert and key"):
        changed.prepare(stage(changed, 2, rows((2, "b"))))


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (pa.schema([("v", pa.string())]), "key column 'k' is not a column"),
        (pa.schema([("k", pa.list_(pa.int64()))]), "key column 'k' has the type list"),
        (pa.schema([("k", pa.int64()), ("k", pa.int64())]), "'k' occurs more than once"),
        (pa.schema([]), "no columns"),
    ],
)
def test_rows_that_cannot_be_the_table_are_refused_before_the_commit_point(
    store: ObjectStore, schema: pa.Schema, named: str
) -> None:
    sink = open_sink(store)
    with pytest.raises(InvalidRequest, match=named):
        sink.prepare(Committable("table", (), encode_schema(schema)))


def test_build_refuses_what_is_not_there(store: ObjectStore) -> None:
    """Refused by name, never accepted and ignored."""
    spec = SinkSpec(name="t", input="rows", format="parquet", path="p", mode="upsert")
    with pytest.raises(InvalidRequest, match="needs an input with key columns"):
        build_sink(spec, job="job", key=(), store=store)
    with pytest.raises(InvalidRequest, match="`format: delta` is not available"):
        build_sink(spec.model_copy(update={"format": "delta"}), job="job", key=("k",), store=store)
    with pytest.raises(InvalidRequest, match="`mode: merge` is not available"):
        build_sink(spec.model_copy(update={"mode": "merge"}), job="job", key=("k",), store=store)


def test_verify_and_read_find_a_missing_a_cut_and_a_changed_file(store: ObjectStore) -> None:
    """I7: what is recorded is compared with what is there."""
    sink = open_sink(store)
    files = [publish(sink, n, n - 1 or None, rows((n, "x"))).files[0] for n in (1, 2, 3)]
    store.delete([files[0].key])
    store.put(files[1].key, store.get(files[1].key)[:-1])
    body = bytearray(store.get(files[2].key))
    body[len(body) // 2] ^= 1
    store.put(files[2].key, bytes(body))
    shallow, deep = sink.verify(), sink.verify(deep=True)
    assert [file.key in problem for file, problem in zip(files[:2], shallow, strict=True)] == [True, True]
    assert [file.key in problem for file, problem in zip(files, deep, strict=True)] == [True, True, True]
    with pytest.raises(StateCorrupt):
        sink.read()


def test_a_damaged_snapshot_or_a_gap_in_the_chain_is_found_and_nothing_is_deleted(store: ObjectStore) -> None:
    """Unknown → keep: an abort that cannot read the chain deletes nothing."""
    sink = open_sink(store)
    fill(sink, 22)
    staged = stage(sink, 23, rows((1, "x")))
    saved = store.get(head_key(21))
    store.delete([head_key(21)])
    assert "missing from the chain" in sink.verify()[0]
    with pytest.raises(StateCorrupt):
        sink.abort(checkpoint_id=23, token=1)
    store.create(head_key(21), saved)
    (snapshot,) = store.list("_snapshots/")
    store.put(snapshot.key, store.get(snapshot.key).replace(b'"rows":1', b'"rows":2'))
    assert "does not match its checksum" in sink.verify()[0]
    with pytest.raises(StateCorrupt):
        sink.abort(checkpoint_id=23, token=1)
    assert store.stat(staged.files[0].key).size == staged.files[0].size


@pytest.mark.parametrize(
    "change",
    [
        {"added": [{"key": "../../secret", "rows": 1, "size": 1, "sha256": "0" * 64}]},
        {"added": [{"key": "data/x", "rows": True, "size": 1, "sha256": "0" * 64}]},
        {"version": 2},
        {"format": "milepost-sink-head/9"},
        {"extra": 1},
        {"mark": {"timeline": "main", "checkpoint_id": "1", "predecessor": None}},
        {"schema": "AAAA"},
        {"snapshot": {"version": 1, "key": "_heads/x", "size": 1, "sha256": "0" * 64}},
        {"replaced_by": {}},
    ],
)
def test_a_head_that_is_not_well_formed_is_corrupt(store: ObjectStore, change: dict[str, object]) -> None:
    """DESIGN 9: what is read from the store is validated; no key leads out of the sink's own files."""
    sink = open_sink(store)
    publish(sink, 1, None, rows((1, "a")))
    store.put(head_key(1), json.dumps({**json.loads(store.get(head_key(1))), **change}).encode())
    with pytest.raises(StateCorrupt):
        sink.read()


def test_a_torn_head_is_corrupt(store: ObjectStore) -> None:
    sink = open_sink(store)
    publish(sink, 1, None, rows((1, "a")))
    store.put(head_key(1), store.get(head_key(1))[:-5])
    with pytest.raises(StateCorrupt, match="expected JSON"):
        sink.head()


@pytest.mark.parametrize(
    "change",
    [
        {"sink": 1},
        {"files": None},
        {"files": [{"key": "k", "rows": 1, "size": 1}]},
        {"files": [{"key": "k", "rows": -1, "size": 1, "sha256": ""}]},
        {"files": [{"key": "k", "rows": True, "size": 1, "sha256": ""}]},
        {"schema": "not base64!"},
        {"schema": ""},
        {"compaction": {"file": {}, "predecessor": 1}},
        {"more": 1},
    ],
)
def test_a_committable_that_is_not_well_formed_is_corrupt(store: ObjectStore, change: dict[str, object]) -> None:
    document = to_json(stage(open_sink(store), 1, rows((1, "a"))))
    with pytest.raises(StateCorrupt):
        from_json(Committable, {**document, **change}, "committable")


def test_a_committable_never_names_files_outside_the_staged_ones(store: ObjectStore) -> None:
    """DESIGN 9: an imported document cannot publish another object of the bucket."""
    sink = open_sink(store)
    store.put("elsewhere.parquet", b"x")
    foreign = Committable("table", (StagedFile("elsewhere.parquet", 1, 1, "0" * 64),), encode_schema(SCHEMA))
    for attempt in (lambda: sink.prepare(foreign), lambda: sink.commit(foreign, SinkMark("main", 1, None))):
        with pytest.raises(StateCorrupt, match="not the key of a staged file"):
            attempt()
    with pytest.raises(ProtocolViolation):
        sink.prepare(Committable("another", (), encode_schema(SCHEMA)))


def test_metadata_of_a_schema_does_not_make_it_another_schema() -> None:
    assert encode_schema(SCHEMA.with_metadata({"pandas": "x"})) == encode_schema(SCHEMA)
    assert decode_schema(encode_schema(SCHEMA)).equals(SCHEMA)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the late put's own conflict
@pytest.mark.parametrize("tried_again", [False, True])
def test_a_head_that_arrives_late_lands_once_or_not_at_all(store: ObjectStore, tried_again: bool) -> None:
    """I1: the put is on its way when its writer gives up; it arrives before, or after, the commit is tried again."""
    fault = Fault(at("create", "_heads/"), Effect.LATE)
    faulty = FaultyStore(store, [fault])
    sink = open_sink(store, SinkMode.APPEND)
    publish(sink, 1, None, rows((1, "a")))
    committable = stage(sink, 2, rows((2, "b")))
    with pytest.raises(CommitOutcomeUnknown):
        open_sink(faulty, SinkMode.APPEND).commit(committable, mark(2, 1))
    if tried_again:
        assert sink.commit(committable, mark(2, 1)) is True
        publish(sink, 3, 2, rows((3, "c")))
    fault.release.set()
    faulty.late[0].join(240)
    assert sink.commit(committable, mark(2, 1)) is False
    assert sink.read().column("v").to_pylist() == (["a", "b", "c"] if tried_again else ["a", "b"])
    assert len(list(store.list("_heads/"))) == (3 if tried_again else 2)


def test_a_head_that_lands_just_before_ours_is_never_overwritten(store: ObjectStore) -> None:
    """I14: heads are created, not put: whoever was faster keeps the version, and the other one is superseded."""
    sink = open_sink(store, SinkMode.APPEND)
    publish(sink, 1, None, rows((1, "a")))
    stalled = stage(sink, 2, rows((2, "b")))
    rival = stage(sink, 3, rows((3, "c")))
    landed: list[bool] = []

    def faster(operation: str, key: str) -> None:
        if not landed and operation in ("put", "create") and key.startswith("_heads/"):
            landed.append(sink.commit(rival, mark(3, 1)))

    with pytest.raises(Superseded):
        open_sink(HookedStore(store, before=faster), SinkMode.APPEND).commit(stalled, mark(2, 1))
    assert landed == [True]
    assert sink.head() == mark(3, 1)
    assert sink.read().column("v").to_pylist() == ["a", "c"]


def test_reading_before_the_first_commit_says_that_nothing_was_published(store: ObjectStore) -> None:
    with pytest.raises(NotFound, match="nothing has been published"):
        open_sink(store).read()
    assert open_sink(store).is_committed(mark(1, None)) is False
    open_sink(store).abort(checkpoint_id=1, token=1)


def test_pieces_of_one_part_are_joined_before_the_last_row_of_each_key_is_taken(store: ObjectStore) -> None:
    """Two pieces of a part may have the same key; two parts above 0 never have."""
    pieces = [RowsPiece(rows((1, "old"), (2, "b")), part=1), RowsPiece(rows((1, "new")), distinct=True, part=1)]
    pieces += [RowsPiece(rows((3, "old")), part=2), RowsPiece(rows((3, "new"), (4, "d")), part=2)]
    sink = open_sink(store)
    file = sink.stage_pieces(pieces, checkpoint_id=1, token=1, subtask=0, held_bytes=1 << 20)
    staged = sink.staged_table(sink.committable([file], SCHEMA))
    assert [(row["k"], row["v"]) for row in staged.to_pylist()] == [(2, "b"), (1, "new"), (3, "new"), (4, "d")]
