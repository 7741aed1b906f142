"""The contents of a table are folded from records: merged records equal the single ones, and there are few."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.codec.records import decode, encode
from milepost.errors import StateCorrupt
from milepost.protocol.records.checkpoints import ObjectHandle
from milepost.protocol.records.locations import file_url
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.layout import contents_prefix
from milepost.storage.open import open_store
from milepost.tables.records.committables import JoinedFile, StagedFile, encode_schema
from milepost.tables.records.contents import MAX_RECORDS, ContentsChange, ContentsRecords, TableContents
from milepost.tables.records.table_address import TableAddress
from milepost.tables.records.table_keys import staged_prefix
from milepost_testkit import profiles, wording
from milepost_testkit.stores.hooked_store import HookedStore

SCHEMA = encode_schema(pa.schema([("k", pa.int64())]))

FILE = {
    "key": "x.parquet",
    "rows": 1,
    "size": 1,
    "sha256": "0" * 64,
    "statistics": None,
    "groups": None,
    "rows_of": None,
    "partition": [],
}


def staged(number: int) -> StagedFile:
    """The only file of the checkpoint of this number."""
    sha256 = hashlib.sha256(str(number).encode()).hexdigest()
    return StagedFile(f"{staged_prefix(number, 1)}0-{sha256}.parquet", 1, 10, sha256)


@st.composite
def histories(draw: st.DrawFn) -> list[ContentsChange]:
    """Changes as epochs make them: new files each time, of those that are there some are removed, now and then all;
    some come back, and some adjacent ones are joined."""
    changes, live, gone, number = [], list[str](), dict[str, StagedFile](), 0
    for _ in range(draw(st.integers(1, 45))):
        added = []
        for _ in range(draw(st.integers(0, 3))):
            number += 1
            added.append(staged(number))
        whole = draw(st.integers(0, 9)) == 0
        removed = () if whole else tuple(draw(st.lists(st.sampled_from(live), unique=True))) if live else ()
        if gone and draw(st.booleans()):
            added.append(gone.pop(draw(st.sampled_from(sorted(gone)))))
        stay = [key for key in live if key not in removed]
        joined = []
        while not whole and len(stay) > 1 and draw(st.booleans()):
            start = draw(st.integers(0, len(stay) - 2))
            stop = draw(st.integers(start + 2, len(stay)))
            number += 1
            joined.append(JoinedFile(replace(staged(number), rows_of="0" * 64), tuple(stay[start:stop])))
            stay = stay[stop:]
        changes.append(ContentsChange(tuple(added), removed, whole, tuple(joined)))
        gone |= {file.key: file for change in changes for file in change.added if file.key in removed}
        live = [file.key for file in folded(changes)]
    return changes


def folded(changes: list[ContentsChange]) -> tuple[StagedFile, ...]:
    files: tuple[StagedFile, ...] = ()
    for change in changes:
        files = change.applied_to(files)
    return files


@pytest.mark.long
@given(histories(), st.data())
def test_changes_that_are_merged_do_what_they_do_one_after_another(
    changes: list[ContentsChange], data: st.DataObject
) -> None:
    """I14: wherever a history is cut and merged, the table is the same, and the merged change can be stored."""
    start = data.draw(st.integers(0, len(changes) - 1))
    stop = data.draw(st.integers(start + 1, len(changes)))
    merged = reduce(lambda earlier, change: change.after(earlier), changes[start:stop])
    assert folded([*changes[:start], merged, *changes[stop:]]) == folded(changes)
    assert merged.check() is None
    assert decode(ContentsChange, encode(merged), "record") == merged


@pytest.mark.deep
@given(histories())
@profiles.examples(share=0.4)
def test_any_history_is_folded_from_few_records_and_every_checkpoint_reads_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, changes: list[ContentsChange]
) -> None:
    """The records of older checkpoints are never written again, so what was once named stays what it says."""
    store = open_store(StoreConfig(file_url(tmp_path_factory.mktemp("job"))))
    writer, every = ContentsRecords(store), []
    records: tuple[ObjectHandle, ...] = ()
    for number, change in enumerate(changes, 1):
        records = writer.extend(records, change, contents_prefix(number, 1), "table")
        assert len(records) <= MAX_RECORDS
        every.append(records)
    reader = ContentsRecords(store)
    for count, known in enumerate(every, 1):
        expected = folded(changes[:count])
        assert reader.files(contents(known)) == writer.files(contents(known)) == expected


@pytest.mark.deep
def test_a_thousand_checkpoints_are_never_more_than_twenty_records_and_write_each_file_a_few_times(
    store: ObjectStore,
) -> None:
    """TABLES 1.3: at most 20 deep, and a record takes in only what is smaller than itself."""
    records: tuple[ObjectHandle, ...] = ()
    written = 0
    one_by_one = ContentsRecords(store)
    for number in range(1, 1001):
        records = one_by_one.extend(records, ContentsChange((staged(number),)), contents_prefix(number, 1), "table")
        written += records[-1].size
        assert len(records) <= MAX_RECORDS
    whole = len(encode(ContentsChange(tuple(staged(number) for number in range(1, 1001)))))
    assert written < 12 * whole
    assert [file.key for file in ContentsRecords(store).files(contents(records))] == [
        staged(number).key for number in range(1, 1001)
    ]


def test_records_that_shrink_without_end_are_still_few(store: ObjectStore) -> None:
    """Each is smaller than the one before, so none would be taken in for its size."""
    records: tuple[ObjectHandle, ...] = ()
    writer = ContentsRecords(store)
    number = 0
    for size in range(60, 0, -1):
        added = tuple(staged(number + offset) for offset in range(size))
        number += size
        records = writer.extend(records, ContentsChange(added), contents_prefix(size, 1), "table")
        assert len(records) <= MAX_RECORDS
    assert len(ContentsRecords(store).files(contents(records))) == number


def test_a_change_that_is_whole_begins_anew_and_reads_nothing(store: ObjectStore) -> None:
    """A compaction; also when the earlier contents can no longer be read."""
    first = ContentsRecords(store).extend((), ContentsChange((staged(1),)), contents_prefix(1, 1), "table")
    store.delete([first[0].key])
    second = ContentsRecords(store).extend(
        first, ContentsChange((staged(2),), whole=True), contents_prefix(2, 1), "table"
    )
    assert len(second) == 1
    assert ContentsRecords(store).files(contents(second)) == (staged(2),)


def test_each_record_is_read_once(store: ObjectStore) -> None:
    """None ever changes."""
    records: tuple[ObjectHandle, ...] = ()
    for number, size in enumerate((40, 9, 1), 1):
        change = ContentsChange(tuple(staged(100 * number + offset) for offset in range(size)))
        records = ContentsRecords(store).extend(records, change, contents_prefix(number, 1), "table")
    assert len(records) == 3
    gets: list[str] = []
    reader = ContentsRecords(HookedStore(store, before=lambda operation, key: gets.append(f"{operation} {key}")))
    for _ in range(2):
        assert len(reader.files(contents(records))) == 50
    assert sorted(gets) == sorted(f"get {record.key}" for record in records)
    assert reader.files(None) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"format": "milepost.table-contents/5"},
        {"added": [FILE | {"key": "../../secret"}]},
        {"added": [FILE | {"key": "_other/x"}]},
        {"added": [FILE | {"rows": -1}]},
        {"removed": ["/etc/passwd"]},
        {"removed": ["a", "a"]},
        {"removed": ["a"], "whole": True},
        {"joined": [{"file": FILE, "of": []}]},
        {"joined": [{"file": FILE, "of": ["a", "../b"]}]},
        {"joined": [{"file": FILE, "of": ["a"]}], "removed": ["a"]},
        {"joined": [{"file": FILE | {"rows_of": "a"}, "of": ["a"]}]},
        {"whole": 1},
        {"more": 1},
    ],
)
def test_a_record_that_is_not_well_formed_is_corrupt(change: dict[str, Any]) -> None:
    """DESIGN 9: what is read from the store is validated; no key leads out of the table."""
    body = json.dumps({**json.loads(encode(ContentsChange((staged(1),)))), **change}).encode()
    with wording.raises(StateCorrupt):
        decode(ContentsChange, body, "record")


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreConfig(file_url(tmp_path)))


def contents(records: tuple[ObjectHandle, ...]) -> TableContents:
    return TableContents(1, TableAddress("parquet", "here"), "here", None, SCHEMA, 0, 0, records)
