"""Distributed quality gate: each task judges the rows that one subtask staged.

The driver judges a small epoch as one table, without shares. For more rows, each task reads the files of one subtask
piece by piece and emits a small partial result. Expectations about duplicate values also send their rows, partitioned
by value, to the tasks of a second stage. The rows of this exchange are the same in every attempt (I12).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa

from milepost.codec import from_json, to_json
from milepost.errors import CheckpointError
from milepost.jobspec.job import QualitySpec
from milepost.language import Combination
from milepost.protocol.exchange import SubtaskIdentity, encode_answer
from milepost.protocol.records import ObjectStore, StoreConfig
from milepost.quality import (
    PartialResult,
    Tally,
    columns_of,
    combination_for,
    decode_rows,
    encode_rows,
    partition_rows,
    required_columns,
    sample_rows,
)
from milepost.sinks.parquet_files import ReadOptions, TableFiles, without_deletes
from milepost.tables.records import Committable, SchemaText, StagedFile, decode_schema

DRIVER_ROWS = 1_000_000
DRIVER_BYTES = 64 << 20
"""Maximum rows, and bytes of staged files, that the driver judges as one table."""

_ASKED_ROWS, _ASKED_BYTES = 131_072, 32 << 20
"""Maximum rows, and bytes in memory, of one call of the expectation library."""

_PARTITION_ROWS = 500_000
"""Approximate number of rows per task of the second stage, which holds them in memory."""
_BY_VALUE = (Combination.KEYS, Combination.DISTINCT)

Opener = Callable[[StoreConfig], ObjectStore]


@dataclass(frozen=True, slots=True)
class GateShare:
    """Files that one subtask staged for one sink that has expectations.

    Attributes:
        key: columns of the sink's key.
        store: store rooted at the table.
        schema: schema of the rows.
        files: staged files.
        begin: number of rows in the sink's earlier shares, deletes included.
        rows: number of rows in all shares of the sink, deletes included.
    """

    suite: QualitySpec
    key: tuple[str, ...]
    store: StoreConfig
    schema: SchemaText
    files: tuple[StagedFile, ...]
    begin: int
    rows: int


class GateRowKind(StrEnum):
    """Kind of a row's payload: rows of one expectation as an Arrow stream, a partial result, or a decline."""

    ROWS = "rows"
    RESULT = "result"
    DECLINE = "decline"


@dataclass(frozen=True, slots=True)
class GateRow:
    """One row that a task of the gate emits.

    Attributes:
        subtask: second-stage subtask that receives the row.
        share: index of the share that the row comes from.
        expectation: for ``rows``, index of the expectation in the suite. 0 for other kinds.
    """

    kind: GateRowKind
    subtask: int
    share: int
    sink: str
    expectation: int
    payload: bytes


def is_large(committable: Committable) -> bool:
    """Return whether an epoch publishes more rows to a sink than the driver judges as one table."""
    return committable.rows > DRIVER_ROWS or sum(file.size for file in committable.files) > DRIVER_BYTES


def gate_shares_of(
    suite: QualitySpec, committable: Committable, key: tuple[str, ...], store: StoreConfig
) -> tuple[GateShare, ...]:
    """Return the shares of one sink, in the order of the subtasks that staged them."""
    shares, begin = [], 0
    for staged in committable.staged:
        if staged.files:
            rows = committable.rows
            shares.append(GateShare(suite, key, store, committable.schema, staged.files, begin, rows))
            begin += sum(file.rows for file in staged.files)
    return tuple(shares)


def partition_count(shares: Sequence[GateShare]) -> int:
    """Return the number of second-stage tasks. 0 if no expectation needs a second stage.

    The sink with the most rows decides: sinks of 1,200,000 and 400,000 rows share 3 tasks.
    """
    rows_by_sink = {share.suite.sink: share.rows for share in shares if _numbers(share, _BY_VALUE)}
    return max((-(-rows // _PARTITION_ROWS) for rows in rows_by_sink.values()), default=0)


def judge_share(share: GateShare, index: int, partitions: int, opener: Opener) -> Iterator[GateRow]:
    """Yield the share's rows for the second stage, then its partial result.

    Args:
        index: index of the share.
        partitions: number of second-stage tasks.
    Raises: CheckpointError: the share cannot be read, or the expectation library cannot be loaded.
    """
    suite, schema = share.suite, decode_schema(share.schema)
    by_value, in_one_place = _numbers(share, _BY_VALUE), _numbers(share, (Combination.ALL,))
    numbers = [number for number in range(len(suite.expectations)) if number not in (*by_value, *in_one_place)]
    needed = {
        number: required_columns(suite.expectations[number], share.key, schema)
        for number in range(len(suite.expectations))
    }
    of_sample = list(dict.fromkeys(name for number in in_one_place for name in needed[number]))
    tally, part, begin = Tally(suite, share.key, schema, numbers), PartialResult(), share.begin
    files = TableFiles(suite.sink, opener(share.store))
    for rows in (piece for file in share.files for piece in _pieces(files, file, schema)):
        staying = without_deletes(rows)
        if staying.num_rows:
            part = part.with_next(tally.part(staying), suite.rows)
        if in_one_place and suite.sample is not None:
            sampled = without_deletes(sample_rows(rows, begin, suite.sample, share.rows)).select(of_sample)
            part = part.with_next(PartialResult(sample=sampled), suite.rows)
        begin += rows.num_rows
        for number in by_value:
            of_number = staying.select(needed[number])
            parted = partition_rows(of_number, columns_of(suite.expectations[number]), partitions)
            for subtask, some in enumerate(parted):
                if some.num_rows:
                    yield GateRow(GateRowKind.ROWS, subtask, index, suite.sink, number, encode_rows(some))
    yield GateRow(GateRowKind.RESULT, index % max(1, partitions), index, suite.sink, 0, _encode(part))


def judge_partition(shares: Sequence[GateShare], rows: Iterable[GateRow]) -> Iterator[GateRow]:
    """Pass on results and declines, then yield the results of one second-stage task.

    Args:
        rows: input rows of the task. Rows of one share are in the share's order.
    """
    waiting: dict[tuple[str, int], dict[int, list[bytes]]] = {}
    for row in rows:
        if row.kind != GateRowKind.ROWS:
            yield row
        else:
            waiting.setdefault((row.sink, row.expectation), {}).setdefault(row.share, []).append(row.payload)
    by_sink = {share.suite.sink: share for share in shares}
    for sink, number in sorted(waiting):
        share = by_sink[sink]
        bodies = waiting.pop((sink, number))
        table = pa.concat_tables(decode_rows(body) for index in sorted(bodies) for body in bodies[index])
        metrics = Tally(share.suite, share.key, table.schema, [number]).part(table).metrics
        yield GateRow(GateRowKind.RESULT, 0, len(shares), sink, 0, _encode(PartialResult(metrics=metrics)))


def joined(shares: Sequence[GateShare], rows: Iterable[GateRow]) -> dict[str, PartialResult]:
    """Merge the partial results of all tasks, by sink."""
    shown = {share.suite.sink: share.suite.rows for share in shares}
    parts = dict.fromkeys(shown, PartialResult())
    results = (row for row in rows if row.kind == GateRowKind.RESULT)
    for row in sorted(results, key=lambda row: (row.sink, row.share, row.payload)):
        parts[row.sink] = parts[row.sink].with_next(_decode(row.payload), shown[row.sink])
    return parts


def judged_here(shares: Sequence[GateShare], opener: Opener) -> dict[str, PartialResult]:
    """Judge all shares in this process, in the same two stages. Rows of the second stage are held in memory."""
    partitions = partition_count(shares)
    sent = [row for index, share in enumerate(shares) for row in judge_share(share, index, partitions, opener)]
    by_partition = [[row for row in sent if row.subtask == subtask] for subtask in range(max(1, partitions))]
    return joined(shares, [row for rows in by_partition for row in judge_partition(shares, rows)])


def refusal_row(identity: SubtaskIdentity, share: GateShare, error: CheckpointError) -> GateRow:
    """Return the decline of a task that could not judge its share."""
    decline = identity.decline_for_stored(error, f"quality gate of sink {share.suite.sink}")
    payload = encode_answer(decline).encode()
    return GateRow(GateRowKind.DECLINE, 0, identity.subtask, share.suite.sink, 0, payload)


def _pieces(files: TableFiles, file: StagedFile, schema: pa.Schema) -> Iterator[pa.Table]:
    """Yield a staged file in pieces, deletes included, and verify its checksum. Raises as `TableFiles.pieces`."""
    for group in files.pieces(file, ReadOptions(schema, verify=True, deletes=True)):
        size = max(1, min(_ASKED_ROWS, _ASKED_BYTES * group.num_rows // max(1, group.nbytes)))
        yield from (group.slice(begin, size) for begin in range(0, group.num_rows, size))


def _numbers(share: GateShare, kinds: Sequence[Combination]) -> list[int]:
    """Return the indexes of the expectations of these kinds."""
    schema = decode_schema(share.schema)
    return [number for number, one in enumerate(share.suite.expectations) if combination_for(one, schema) in kinds]


def _encode(part: PartialResult) -> bytes:
    return json.dumps(to_json(part), sort_keys=True).encode()  # a sum may be NaN, which canonical JSON lacks


def _decode(body: bytes) -> PartialResult:
    return from_json(PartialResult, json.loads(body), "partial result of the quality gate")
