"""Cutting a stream of changes into records: whole transactions, in order, none twice, whatever their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.language import parse_type
from milepost.sources.landed.postgres import change_rows
from milepost.sources.landed.postgres.change_rows import End, Limits, TableRows, UnlandableChange, read_changes
from milepost.sources.landed.postgres.pgoutput import (
    UNCHANGED,
    BadMessage,
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    Update,
)
from milepost_testkit import profiles
from milepost_testkit.models.data.pgoutput_messages import encode

OID = 16_400
TABLE = Relation(OID, "public", "t", "d", (Column("id", 20, True), Column("v", 25, False)))
OTHER = Relation(7, "public", "u", "d", (Column("id", 20, True),))
FULL = Relation(OID, "public", "t", "f", (Column("id", 20, True), Column("v", 25, True)))
ROWS = TableRows(
    {"id": parse_type("int64"), "v": parse_type("string")}, ("id",), {"op": "op", "lsn": "lsn", "n": "number"}
)
NO_LIMIT = Limits(10**9, 10**9)


@dataclass(frozen=True)
class Sent:
    """A transaction: the number of its rows, or what cannot be landed after so many rows."""

    rows: int
    then: str = ""


def stream(transactions: Sequence[Sent], relation: Relation = TABLE) -> tuple[list[bytes], list[int]]:
    """Return the messages of transactions, and where each ends. Transaction n is committed at 1000 n."""
    messages: list[Message] = [OTHER, relation]
    for number, sent in enumerate(transactions, 1):
        lsn = 1000 * number
        messages.append(Begin(lsn, lsn, number))
        messages.append(Insert(OTHER.oid, (b"1",)))
        messages += [Insert(OID, (b"%d" % (lsn + row), b"x" * (row % 7))) for row in range(sent.rows)]
        if sent.then == "truncate":
            messages.append(Truncate((OTHER.oid, OID)))
        elif sent.then == "value":
            messages.append(Insert(OID, (b"seven", b"")))
        elif sent.then == "toast":
            messages.append(Update(OID, "", None, (b"7", UNCHANGED)))
        messages.append(Commit(lsn, lsn + 50, lsn))
    return [encode(message) for message in messages], [1000 * n + 50 for n in range(1, len(transactions) + 1)]


def read(messages: Sequence[bytes], after: int = 0, limits: Limits = NO_LIMIT) -> tuple[list[dict[str, Any]], End, int]:
    """Return the rows of a record, its end, and the number of its batches."""
    *batches, end = read_changes(messages, OID, ROWS, after, limits)
    assert isinstance(end, End)
    tables = [batch for batch in batches if isinstance(batch, pa.RecordBatch)]
    assert len(tables) == len(batches)
    return [row for batch in tables for row in batch.to_pylist()], end, len(tables)


SENT = st.lists(st.builds(Sent, st.integers(0, 12)), max_size=10)


@profiles.examples()
@given(SENT, st.integers(1, 30), st.integers(1, 12), st.integers(1, 60))
def test_records_have_whole_transactions_in_order_and_each_row_once(
    transactions: list[Sent], max_rows: int, batch_rows: int, max_bytes: int
) -> None:
    messages, ends = stream(transactions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_rows, "BATCH_ROWS", batch_rows)
        after, rows = 0, []
        for _ in range(3 * len(transactions) + 2):
            record, end, _ = read(messages, after, Limits(max_rows, max_bytes))
            assert end.lsn is None or end.lsn in ends
            assert end.is_drained == (end.messages == len(messages)) or not end.is_drained
            in_record = [row["lsn"] for row in record]
            sizes = {lsn: in_record.count(lsn) for lsn in in_record}
            assert all(count == transactions[lsn // 1000 - 1].rows for lsn, count in sizes.items())
            before_last = sum(count for lsn, count in sizes.items() if lsn != in_record[-1])
            assert before_last < max_rows
            rows += record
            if end.is_drained:
                break
            assert record and end.lsn is not None and end.lsn > after
            after = end.lsn
        else:
            raise AssertionError("the stream is never drained")
    wanted = [(1000 * n, 1000 * n + row) for n, sent in enumerate(transactions, 1) for row in range(sent.rows)]
    assert [(row["lsn"], row["id"]) for row in rows] == wanted
    assert [row["n"] for row in rows] == [identity - lsn + 1 for lsn, identity in wanted]


@profiles.examples()
@given(SENT, st.integers(0, 5), st.sampled_from(["truncate", "value", "toast"]), SENT, st.integers(1, 8))
def test_what_cannot_be_landed_ends_the_record_before_its_transaction_and_is_never_passed(
    before: list[Sent], rows: int, then: str, behind: list[Sent], batch_rows: int
) -> None:
    messages, _ = stream([*before, Sent(rows, then), *behind])
    bad = 1000 * (len(before) + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(change_rows, "BATCH_ROWS", batch_rows)
        after, landed = 0, []
        with pytest.raises(UnlandableChange, match=f"in transaction {len(before) + 1}, committed at"):
            while True:
                record, end, _ = read(messages, after)
                assert record and end.lsn is not None and not end.is_drained
                landed += record
                after = end.lsn
    assert [row["lsn"] for row in landed] == [1000 * n for n, sent in enumerate(before, 1) for _ in range(sent.rows)]
    assert all(row["lsn"] < bad for row in landed)


def test_a_large_transaction_is_passed_on_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change_rows, "BATCH_ROWS", 10)
    messages, ends = stream([Sent(3), Sent(95), Sent(2)])
    assert [len(read(messages, after)[0]) for after in (0, *ends)] == [3, 95, 2, 0]
    rows, end, batches = read(messages, ends[0])
    assert (len(rows), end.lsn, batches) == (95, ends[1], 10)


def test_the_key_under_an_index_may_be_another_than_the_first_column() -> None:
    relation = Relation(OID, "public", "t", "i", (Column("v", 25, False), Column("id", 20, True)))
    change = Update(OID, "K", (None, b"1"), (b"x", b"2"))
    messages = [relation, Begin(5, 5, 1), change, Delete(OID, "K", (None, b"3")), Commit(5, 6, 5)]
    rows, *_ = read([encode(message) for message in messages])
    assert [(row["op"], row["id"], row["v"]) for row in rows] == [
        ("delete", 1, None), ("update", 2, "x"), ("delete", 3, None),
    ]  # fmt: skip


def test_an_unchanged_key_out_of_line_is_in_the_old_key() -> None:
    relation = Relation(OID, "public", "t", "d", (Column("id", 20, True), Column("v", 25, False)))
    change = Update(OID, "K", (b"1", None), (UNCHANGED, b"x"))
    rows, *_ = read([encode(m) for m in (relation, Begin(5, 5, 1), change, Commit(5, 6, 5))])
    assert [(row["op"], row["id"], row["v"]) for row in rows] == [("update", 1, "x")]


def test_a_null_of_an_old_key_is_never_taken_for_an_unchanged_value() -> None:
    change = Update(OID, "K", (b"1", None), (b"2", UNCHANGED))
    with pytest.raises(UnlandableChange, match="did not change column v"):
        read([encode(m) for m in (TABLE, Begin(5, 5, 1), change, Commit(5, 6, 5))])
    full = Update(OID, "O", (b"1", None), (b"2", UNCHANGED))
    rows, *_ = read([encode(m) for m in (FULL, Begin(5, 5, 1), full, Commit(5, 6, 5))])
    assert [(row["op"], row["id"], row["v"]) for row in rows] == [("delete", 1, None), ("update", 2, None)]


def test_a_null_key_is_refused() -> None:
    with pytest.raises(UnlandableChange, match="column id of the key is null"):
        read([encode(m) for m in (FULL, Begin(5, 5, 1), Insert(OID, (None, b"x")), Commit(5, 6, 5))])


@pytest.mark.parametrize(
    "messages",
    [
        [TABLE, Begin(5, 5, 1), Insert(OID, (b"1", b"x"))],
        [TABLE, Begin(5, 5, 1), Commit(6, 7, 5)],
        [TABLE, Commit(6, 7, 5)],
        [Begin(5, 5, 1), Insert(OID, (b"1", b"x")), Commit(5, 6, 5)],
    ],
    ids=["without a commit", "of another", "without a begin", "without a table"],
)
def test_a_stream_that_is_none_is_refused(messages: list[Message]) -> None:
    with pytest.raises(BadMessage):
        read([encode(message) for message in messages])


def test_a_transaction_that_begins_at_the_position_was_not_landed() -> None:
    messages, _ = stream([Sent(1), Sent(1), Sent(1)])
    assert [row["lsn"] for row in read(messages, after=2000)[0]] == [2000, 3000]
    assert [row["lsn"] for row in read(messages, after=2001)[0]] == [3000]
