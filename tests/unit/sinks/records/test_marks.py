"""A mark that this process has read counts only for a table that carries it."""

from __future__ import annotations

from milepost.codec.records import encode
from milepost.protocol.records.layout import mark_key
from milepost.tables.records.marks import Mark, MarkRecords
from milepost_testkit.stores.memory_store import MemoryStore


def mark(number: int) -> Mark:
    return Mark(number, number - 1, f"{number:032x}", "table", "t1", None)


def test_a_mark_that_another_process_made_is_read_although_an_older_one_is_known() -> None:
    store = MemoryStore("file:///memory")
    marks = MarkRecords(store, "table")
    first = marks.record(mark(1))
    store.create(mark_key("table", 2), encode(mark(2)))
    assert marks.matching(1, first.write_id, "table") == first
    assert marks.matching(2, mark(2).write_id, "table") == mark(2)
    assert marks.matching(2, first.write_id, "table") is None
