"""What is particular to our own Parquet table: upsert, compaction, its heads, damage, and what it refuses."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from milepost.codec.records import from_json, to_json
from milepost.errors import (
    CommitOutcomeUnknown,
    InvalidRequest,
    ProtocolViolation,
    StateCorrupt,
    Superseded,
)
from milepost.protocol.records.object_store import ObjectStore
from milepost.sinks.contract import SinkMode
from milepost.sinks.staging import compaction
from milepost.tables.records.committables import (
    Committable,
    RowsPiece,
    StagedFile,
    StagedRows,
    StagingContext,
    decode_schema,
    encode_schema,
)
from milepost.tables.records.table_heads import HEADS, head_key, head_version
from milepost.tables.records.table_keys import DATA
from milepost_testkit import wording
from milepost_testkit.stores.faulty_store import Effect, Fault, FaultyStore, at
from milepost_testkit.stores.hooked_store import HookedStore
from tests.conformance.sinks.contract.case import LIFE, SCHEMA, Story, rows
from tests.conformance.sinks.formats.local_cases import LocalParquet


class Case(LocalParquet):
    """A table of one mode in a folder of the test."""

    def __init__(self, mode: SinkMode = SinkMode.UPSERT) -> None:
        self.mode = mode


@pytest.fixture
def upsert(tmp_path: Path) -> Story:
    return Case().begin(tmp_path)


@pytest.fixture
def append(tmp_path: Path) -> Story:
    return Case(SinkMode.APPEND).begin(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """The table's, in a handle of its own."""
    return Case().table_store(tmp_path)


def shown(job: Story) -> list[dict[str, object]]:
    contents = job.sink.position().contents
    assert contents is not None
    found: list[dict[str, object]] = job.sink.read(contents).to_pylist()
    return found


def test_upsert_shows_the_latest_row_per_key_sorted(upsert: Story) -> None:
    """What `mode` says."""
    upsert.publish(rows((3, "a"), (1, "b")))
    upsert.publish(rows((1, "c"), (2, "d")))
    assert shown(upsert) == [{"k": 1, "v": "c"}, {"k": 2, "v": "d"}, {"k": 3, "v": "a"}]
    change = upsert.sink.compare(None)
    assert (change.rows_now, change.files_now) == (3, 2)


def test_append_shows_every_row_in_commit_and_subtask_order(append: Story) -> None:
    append.publish(rows((3, "a"), (1, "b")), rows((0, "x")))
    append.publish(rows((1, "c")))
    assert [row["v"] for row in shown(append)] == ["a", "b", "x", "c"]


def test_a_null_in_the_key_is_a_key_like_any_other(upsert: Story) -> None:
    """SQL grouping: nulls equal each other."""
    upsert.publish(rows((None, "old"), (1, "a")))
    upsert.publish(rows((None, "new")))
    assert shown(upsert) == [{"k": 1, "v": "a"}, {"k": None, "v": "new"}]


def test_a_key_twice_in_one_subtask_keeps_its_last_row(upsert: Story) -> None:
    committable = upsert.staged(rows((1, "first"), (2, "b"), (1, "last")))
    assert committable.rows == 2
    assert upsert.sink.staged_table(committable).column("v").to_pylist() == ["b", "last"]
    upsert.sink.move(upsert.manifest.completed(upsert.sink, committable).target)
    assert shown(upsert) == [{"k": 1, "v": "last"}, {"k": 2, "v": "b"}]


def test_pieces_of_one_part_are_joined_before_the_last_row_of_each_key_is_taken(upsert: Story) -> None:
    """Two pieces of a part may have the same key; two parts above 0 never have."""
    pieces = [RowsPiece(rows((1, "old"), (2, "b")), part=1), RowsPiece(rows((1, "new")), distinct=True, part=1)]
    pieces += [RowsPiece(rows((3, "old")), part=2), RowsPiece(rows((3, "new"), (4, "d")), part=2)]
    file = upsert.sink.stage_pieces(pieces, StagingContext(1, 1, 0, 1 << 20))
    staged = upsert.sink.staged_table(upsert.sink.committable([file], SCHEMA))
    assert [(row["k"], row["v"]) for row in staged.to_pylist()] == [(2, "b"), (1, "new"), (3, "new"), (4, "d")]


def test_types_come_back_as_they_were_written(append: Story) -> None:
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
    done = append.publish(table, schema=table.schema)
    assert append.sink.read(done.contents).equals(table)


def test_an_append_table_is_never_compacted(append: Story, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows have no key."""
    monkeypatch.setattr(compaction, "COMPACT_FILES", 1)
    assert append.complete(rows((1, "a")), rows((2, "b"))).contents.files == 2


@pytest.mark.parametrize(
    ("mode", "key", "form"),
    [
        (SinkMode.APPEND, (), "parquet"),
        (SinkMode.UPSERT, ("k", "v"), "parquet"),
        (SinkMode.UPSERT, ("k",), "delta"),
    ],
)
def test_another_mode_key_or_format_on_the_same_table_is_refused(
    upsert: Story, tmp_path: Path, mode: SinkMode, key: tuple[str, ...], form: str
) -> None:
    """The same files mean another table under another mode or key."""
    case = Case(mode)
    case.format_name = form
    changed = case.open_sink(tmp_path)
    changed.key = key
    with wording.raises(InvalidRequest):
        changed.reserve(LIFE)
    upsert.sink.reserve(LIFE)


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("v", pa.string())]),
        pa.schema([("k", pa.list_(pa.int64()))]),
        pa.schema([("k", pa.int64()), ("k", pa.int64())]),
        pa.schema([]),
    ],
)
def test_rows_that_cannot_be_the_table_are_refused_before_the_commit_point(upsert: Story, schema: pa.Schema) -> None:
    with wording.raises(InvalidRequest):
        upsert.manifest.completed(upsert.sink, Committable("table", encode_schema(schema), ()))


def test_verify_and_read_find_a_missing_a_cut_and_a_changed_file(append: Story, store: ObjectStore) -> None:
    """I7: what is recorded is compared with what is there."""
    done = [append.publish(rows((n, "x"))) for n in (1, 2, 3)][-1]
    files = append.sink.files(done.contents)
    store.delete([files[0].key])
    store.put(files[1].key, store.get(files[1].key)[:-1])
    body = bytearray(store.get(files[2].key))
    body[len(body) // 2] ^= 1
    store.put(files[2].key, bytes(body))
    shallow, deep = append.sink.verify(done.contents), append.sink.verify(done.contents, deep=True)
    assert [file.key in problem for file, problem in zip(files[:2], shallow, strict=True)] == [True, True]
    assert [file.key in problem for file, problem in zip(files, deep, strict=True)] == [True, True, True]
    with pytest.raises(StateCorrupt):
        append.sink.read(done.contents)


def test_a_committable_never_names_files_outside_the_staged_ones(append: Story, store: ObjectStore) -> None:
    """DESIGN 9: an imported document cannot publish another object of the bucket."""
    store.put("elsewhere.parquet", b"x")
    foreign = Committable(
        "table", encode_schema(SCHEMA), (StagedRows(1, (StagedFile("elsewhere.parquet", 1, 1, "0" * 64),)),)
    )
    with wording.raises(StateCorrupt):
        append.manifest.completed(append.sink, foreign)
    with wording.raises(StateCorrupt):
        append.sink.prepare_fork(foreign, None)
    with pytest.raises(ProtocolViolation):
        append.sink.staged_table(Committable("another", encode_schema(SCHEMA), ()))


@pytest.mark.parametrize(
    "change",
    [
        {"sink": 1},
        {"files": None},
        {"files": [{"key": "k", "rows": 1, "size": 1}]},
        {"files": [{"key": "k", "rows": -1, "size": 1, "sha256": "", "statistics": None}]},
        {"files": [{"key": "k", "rows": True, "size": 1, "sha256": "", "statistics": None}]},
        {"schema": "not base64!"},
        {"schema": ""},
        {"more": 1},
    ],
)
def test_a_committable_that_is_not_well_formed_is_corrupt(append: Story, change: dict[str, object]) -> None:
    with pytest.raises(StateCorrupt):
        from_json(Committable, {**to_json(append.staged(rows((1, "a")))), **change}, "committable")


def test_metadata_of_a_schema_does_not_make_it_another_schema() -> None:
    assert encode_schema(SCHEMA.with_metadata({"pandas": "x"})) == encode_schema(SCHEMA)
    assert decode_schema(encode_schema(SCHEMA)).equals(SCHEMA)


def test_the_newest_head_is_listed_first() -> None:
    """One LIST with limit 1 finds it."""
    assert sorted([head_key(9), head_key(10), head_key(2)]) == [head_key(10), head_key(9), head_key(2)]
    assert head_version(head_key(12345)) == 12345
    for name in (f"{HEADS}1.json", f"{HEADS}99999999999999999999.json", f"{HEADS}x", head_key(0)):
        with pytest.raises(StateCorrupt):
            head_version(name)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"version": 0},
        {"number": 0},
        {"write_id": None},
        {"table_id": 1},
        {"format": "milepost.table-head/9"},
        {"extra": 1},
    ],
)
def test_a_head_that_is_not_well_formed_or_not_where_it_should_be_is_corrupt(
    append: Story, store: ObjectStore, change: dict[str, object]
) -> None:
    """DESIGN 9: nothing is moved, and nothing deleted."""
    append.go_on(2)
    store.put(head_key(2), json.dumps({**json.loads(store.get(head_key(2))), **change}).encode())
    late = append.staged(rows((3, "late")))
    for attempt in (append.sink.position, lambda: append.sink.abort(checkpoint_id=3, token=1)):
        with wording.raises(StateCorrupt):
            attempt()
    assert len(append.sink.stored_sizes([file.key for file in late.files])) == 1


def test_a_move_reads_one_head_and_one_mark_however_long_the_history(append: Story, tmp_path: Path) -> None:
    """What a table shows is found by name."""
    append.go_on(40)
    target = append.complete(append.row()).target
    asked: Counter[str] = Counter()

    def count(operation: str, key: str) -> None:
        asked[f"{operation} {'heads' if key.startswith(HEADS) else 'marks' if '/marks/' in key else 'other'}"] += 1

    assert Case(SinkMode.APPEND).open_sink(tmp_path, before=count).move(target) is True
    assert (asked["table.get heads"], asked["job.get marks"]) == (1, 1)
    assert asked["job.get other"] <= 20


def test_a_head_does_not_grow_with_the_table(append: Story, store: ObjectStore) -> None:
    append.go_on(30)
    sizes = {store.stat(head_key(version)).size for version in range(1, 31)}
    assert max(sizes) - min(sizes) < 10


def test_a_table_put_back_to_an_older_head_is_found_before_anything_is_decided(
    append: Story, store: ObjectStore, tmp_path: Path
) -> None:
    """A restore of the bucket; the mark is known, and not the one that this job left."""
    append.go_on(3)
    store.delete([head_key(3)])
    again = Case(SinkMode.APPEND).open_sink(tmp_path)
    committable = append.staged(append.row())
    with wording.raises(InvalidRequest):
        append.manifest.completed(again, committable)
    assert again.move(append.manifest.realigned()) is True
    assert [row["k"] for row in shown(append)] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the late put's own conflict
@pytest.mark.parametrize("meanwhile", ["nothing", "done again", "gone on", "gone back"])
def test_a_head_that_arrives_late_lands_once_or_not_at_all(append: Story, tmp_path: Path, meanwhile: str) -> None:
    """I1: the put is on its way when its writer gives up; it arrives before, or after, the commit is tried again."""
    main = append.go_on(1)
    target = append.complete(append.row()).target
    fault = Fault(at("create", HEADS), Effect.LATE)
    case = Case(SinkMode.APPEND)
    faulty = FaultyStore(case.table_store(tmp_path), [fault])
    case.table_store = lambda root: faulty  # type: ignore[method-assign]
    with pytest.raises(CommitOutcomeUnknown):
        case.open_sink(tmp_path).move(target)
    expected = [1, 2]
    if meanwhile in ("done again", "gone on"):
        assert append.sink.move(target) is True
    if meanwhile == "gone on":
        append.go_on(1)
        expected = [1, 2, 3]
    if meanwhile == "gone back":
        append.back_to(main[0])
        expected = [1]
    fault.release.set()
    faulty.late[0].join(240)
    assert [row["k"] for row in shown(append)] == expected
    append.go_on(1)
    assert [row["k"] for row in shown(append)] == [*expected, append.manifest.next_id - 1]


def test_a_head_that_lands_just_before_ours_is_never_overwritten(append: Story, tmp_path: Path) -> None:
    """I14: heads are created, not put: the first writer keeps the version."""
    main = append.go_on(1)
    stalled = append.complete(append.row()).target
    decided = append.manifest.switched(main[0])
    landed: list[bool] = []

    def faster(operation: str, key: str) -> None:
        if not landed and operation in ("put", "create") and key.startswith(HEADS):
            landed.append(append.sink.move(decided))

    case = Case(SinkMode.APPEND)
    hooked = HookedStore(case.table_store(tmp_path), before=faster)
    case.table_store = lambda root: hooked  # type: ignore[method-assign]
    with pytest.raises(Superseded):
        case.open_sink(tmp_path).move(stalled)
    assert landed == [True]
    assert [row["k"] for row in shown(append)] == [1]
    assert append.sink.position().number == decided.number


def test_unstaged_files_are_neither_permanent_nor_staged(append: Story, store: ObjectStore) -> None:
    """What others put below a table is theirs."""
    store.put(f"{DATA}mine.parquet", b"?")
    store.put("notes.txt", b"?")
    append.go_on(1)
    theirs = {item.stat.key: item for item in append.sink.objects() if not item.permanent and not item.staged_by}
    assert sorted(theirs) == [f"{DATA}mine.parquet", "notes.txt"]
