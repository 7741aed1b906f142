"""Divide a stream of changes into batches of rows, and find the position after them. Pure.

Transactions are whole, in commit order. A batch is yielded once enough rows are committed. A transaction that is larger
than a batch has its own record, and is yielded while it is read. A change that cannot be landed ends the record before
its transaction. If the record has no rows then, an error is raised::

    B I I C(100)  B I C(200)  B T …        rows of both transactions, end 200; the next read begins with the TRUNCATE
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from milepost.language import ColumnType
from milepost.sources.landed.postgres.pgoutput import (
    BadMessage,
    Begin,
    Commit,
    Delete,
    Insert,
    Relation,
    Truncate,
    Update,
    decode,
    lsn_text,
)
from milepost.sources.landed.postgres.row_plan import COPY, Row, RowPlan, UnfitTable, plan_rows
from milepost.sources.landed.postgres.text_values import UnfitValue, column_of

BATCH_ROWS, BATCH_BYTES = 10_000, 16 << 20


@dataclass(frozen=True, slots=True)
class TableRows:
    """The columns of the rows of a source.

    Attributes:
        declared: columns of the table, by name. key: names of its key's columns.
        metadata: further columns: name -> op, lsn, number, commit_time or xid.
    """

    declared: Mapping[str, ColumnType]
    key: tuple[str, ...]
    metadata: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Limits:
    """A record ends at the first commit at which it has this many rows, or bytes of texts."""

    max_rows: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class End:
    """The end of the read part of a stream.

    Attributes:
        lsn: end of the last transaction that was yielded or had no rows; None: there was none.
        is_drained: whether all messages were read. messages: number of those that were read.
    """

    lsn: int | None
    is_drained: bool
    messages: int


class UnlandableChange(Exception):
    """A change cannot be landed. `reason` identifies it, `hint` is the next step. Both contain no values."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason, self.hint = reason, hint


@dataclass(slots=True)
class Transaction:
    """The rows of a transaction that are not yielded yet.

    Attributes:
        first: number of the first of them in the transaction, from 1. end: LSN of the end, once committed.
    """

    begin: Begin
    first: int = 1
    rows: list[Row] = field(default_factory=list)
    bytes: int = 0
    end: int = 0


def read_changes(
    messages: Iterable[bytes], oid: int, rows: TableRows, after: int, limits: Limits
) -> Iterator[pa.RecordBatch | End]:
    """Yield the rows of the changes of a table, and at last the end of the read part.

    Args:
        messages: of pgoutput, from the start of a transaction. oid: of the table; changes of others are skipped.
        after: transactions with a commit record before this LSN were landed, and are skipped.
    Raises:
        UnlandableChange: the first transaction with rows cannot be landed. BadMessage: not a protocol message.
    """
    return _Reader(oid, rows, after, limits).read(messages)


class _Reader:
    def __init__(self, oid: int, rows: TableRows, after: int, limits: Limits) -> None:
        self._oid, self._table, self._after, self._limits = oid, rows, after, limits
        self._relation: Relation | None = None
        self._plan: RowPlan | None = None
        self._open: Transaction | None = None
        self._is_skipped = False
        self._done: list[Transaction] = []
        self._reached: int | None = None
        self._passed_rows = self._passed_bytes = self._done_rows = self._done_bytes = 0
        self._messages = 0

    def read(self, messages: Iterable[bytes]) -> Iterator[pa.RecordBatch | End]:
        for data in messages:
            self._messages += 1
            try:
                self._take(data)
            except UnfitTable as unfit:
                if not self._has_rows or self._is_partly_passed:
                    raise self._unlandable(unfit.reason, unfit.hint) from unfit
                yield from self._end()
                return
            if self._open is None and self._is_full:
                yield from self._end()
                return
            if self._open is not None and _is_batch(len(self._open.rows), self._open.bytes):
                if self._has_rows and not self._is_partly_passed:
                    yield from self._end()  # the next record begins with this transaction
                    return
                yield self._part(self._open)
            elif self._open is None and _is_batch(self._done_rows, self._done_bytes):
                end = None
                for item in self._flush():
                    if isinstance(item, End):
                        end = item
                    yield item
                if end is not None:
                    return
        if self._open is not None:
            raise BadMessage(f"the stream ended within a transaction, after {self._messages} messages")
        yield from self._end(is_drained=True)

    def _take(self, data: bytes) -> None:
        message = decode(data)
        if isinstance(message, Begin):
            self._open, self._is_skipped = Transaction(message), message.lsn < self._after
        elif isinstance(message, Relation):
            if message.oid == self._oid:
                self._relation, self._plan = message, None
        elif isinstance(message, Commit):
            self._commit(message)
        elif self._is_skipped:
            return
        elif isinstance(message, Insert | Update | Delete):
            if message.relation == self._oid:
                self._add(message)
        elif isinstance(message, Truncate) and self._oid in message.relations:
            raise UnfitTable(
                "it was emptied by TRUNCATE, which does not say which rows were deleted",
                "give the source another name in the spec, which begins a log of its own",
            )

    def _add(self, change: Insert | Update | Delete) -> None:
        if self._open is None or self._relation is None:
            raise BadMessage("a change came without its transaction, or without its table")
        if self._plan is None:
            self._plan = plan_rows(self._relation, self._table.declared, self._table.key)
        for row in self._plan.rows(change):
            self._open.rows.append(row)
            self._open.bytes += sum(len(text) for text in row[1] if text is not None)

    def _commit(self, message: Commit) -> None:
        done, self._open = self._open, None
        if done is None or done.begin.lsn != message.lsn:
            raise BadMessage("a commit came without the begin of its transaction")
        if self._is_skipped:
            return
        done.end = message.end
        self._done.append(done)
        self._done_rows += len(done.rows)
        self._done_bytes += done.bytes

    @property
    def _is_partly_passed(self) -> bool:
        return self._open is not None and self._open.first > 1

    @property
    def _has_rows(self) -> bool:
        """Whether a transaction with rows was committed in this record."""
        return self._passed_rows + self._done_rows > 0

    @property
    def _is_full(self) -> bool:
        """Whether the record ends here: by its limits, or because a large transaction has one of its own."""
        rows, size = self._passed_rows + self._done_rows, self._passed_bytes + self._done_bytes
        is_large = bool(self._done) and self._done[-1].first > 1
        return is_large or rows >= self._limits.max_rows or size >= self._limits.max_bytes

    def _end(self, *, is_drained: bool = False) -> Iterator[pa.RecordBatch | End]:
        """Yield the committed rows, and the end of the record."""
        for item in self._flush():
            yield item
            if isinstance(item, End):
                return
        yield End(self._reached, is_drained, self._messages)

    def _flush(self) -> Iterator[pa.RecordBatch | End]:
        """Yield the committed rows, as a batch. If one of the transactions does not fit, yield those before and an End.

        Raises: UnlandableChange: there are none before.
        """
        done, self._done = self._done, []
        self._done_rows = self._done_bytes = 0
        try:
            batch = rows_batch(self._table, done)
        except UnfitValue:
            good = self._fitting(done)
            if good:
                yield rows_batch(self._table, done[:good])
                self._passed(done[:good])
            yield End(self._reached, False, self._messages)
            return
        if batch.num_rows:
            yield batch
        self._passed(done)

    def _fitting(self, done: Sequence[Transaction]) -> int:
        """Return the number of transactions before the first that does not fit. Raises UnlandableChange: no rows."""
        for at, transaction in enumerate(done):
            try:
                rows_batch(self._table, [transaction])
            except UnfitValue as unfit:
                is_partly_passed = transaction.first > 1
                if is_partly_passed or not (self._passed_rows or any(before.rows for before in done[:at])):
                    raise self._unfit(transaction.begin, unfit) from unfit
                return at
        raise AssertionError("each of the transactions fits, and all together do not")

    def _part(self, transaction: Transaction) -> pa.RecordBatch:
        """Return the rows so far of a transaction, which continues."""
        try:
            batch = rows_batch(self._table, [transaction])
        except UnfitValue as unfit:
            raise self._unfit(transaction.begin, unfit) from unfit
        transaction.first += len(transaction.rows)
        transaction.rows, transaction.bytes = [], 0
        self._passed_rows += batch.num_rows
        return batch

    def _passed(self, done: Sequence[Transaction]) -> None:
        self._passed_rows += sum(len(each.rows) for each in done)
        self._passed_bytes += sum(each.bytes for each in done)
        if done:
            self._reached = done[-1].end

    def _unfit(self, begin: Begin, unfit: UnfitValue) -> UnlandableChange:
        return UnlandableChange(
            f"{_at(begin)}: {unfit}",
            "correct the column's type in `schema`, then land again: it is read from the same position. `string` "
            "takes the text of every value",
        )

    def _unlandable(self, reason: str, hint: str) -> UnlandableChange:
        at = "" if self._open is None else f"{_at(self._open.begin)}: "
        return UnlandableChange(f"{at}{reason}", hint)


def _is_batch(rows: int, size: int) -> bool:
    return rows >= BATCH_ROWS or size >= BATCH_BYTES


def _at(begin: Begin) -> str:
    return f"in transaction {begin.xid}, committed at {lsn_text(begin.lsn)}"


def rows_batch(table: TableRows, transactions: Sequence[Transaction]) -> pa.RecordBatch:
    """Return the rows of transactions with the declared columns, then those of the metadata. Raises UnfitValue."""
    rows = [row for each in transactions for row in each.rows]
    columns: dict[str, pa.Array] = {}
    for at, (name, type_) in enumerate(table.declared.items()):
        texts = [values[at] for _, values in rows]
        if name in table.key and None in texts:
            raise UnfitValue(f"column {name} of the key is null")
        try:
            columns[name] = column_of(texts, type_)
        except UnfitValue as unfit:
            raise UnfitValue(f"column {name}: {unfit}") from unfit
    for name, item in table.metadata.items():
        columns[name] = _metadata(item, rows, transactions)
    return pa.RecordBatch.from_pydict(columns)


def _metadata(item: str, rows: Sequence[Row], transactions: Sequence[Transaction]) -> pa.Array:
    if item == "op":
        return pa.array([op for op, _ in rows], pa.string())
    numbered: list[Any]
    if item == "number":
        numbered = [
            0 if row[0] == COPY else each.first + at for each in transactions for at, row in enumerate(each.rows)
        ]
        return pa.array(numbered, pa.int64())
    of_begin = {"lsn": "lsn", "commit_time": "time_us", "xid": "xid"}[item]
    numbered = [
        None if item == "xid" and row[0] == COPY else getattr(each.begin, of_begin)
        for each in transactions
        for row in each.rows
    ]
    column = pa.array(numbered, pa.int64())
    return column.cast(pa.timestamp("us", "UTC")) if item == "commit_time" else column
