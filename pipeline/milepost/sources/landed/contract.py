"""What a landed source implements.

A source knows only its external system: no checkpoint, no Spark, no log. The lander requests the next pull after a
position, reads its splits, stores their rows, and only then calls `commit`, which acknowledges them. Names and
shapes follow PySpark's `DataSourceStreamReader`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from milepost.codec import dump
from milepost.errors import InvalidRequest
from milepost.protocol.landed import Identity, Position, SourceBacklog

NOTHING_LANDED = "Nothing from this read was landed. Rows that were landed earlier are unchanged."
"""What is true after an error of a source."""

INITIAL_COPY = "initial copy"
"""The partition that is behind until all rows of a table at the start of its log are landed.

They are not in the order of event times, so the watermark waits for all of them. No rows name it.
"""


@dataclass(frozen=True, slots=True)
class PartRows:
    """Rows of one of several parts of a split that are read concurrently, in the order of the part.

    Attributes:
        part: from 0. In the log, the rows of a part follow those of all parts with smaller numbers.
    """

    part: int
    rows: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class FileReference:
    """A data file of a table, whose rows are not copied: the record refers to it.

    Attributes:
        uri, size, etag, rows, values: as in `ReferencedFile`.
        columns: name of each declared column in the file. A column that is not named is null, or has a value.
    """

    uri: str
    size: int
    etag: str
    rows: int
    columns: Mapping[str, str]
    values: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class PassedFiles:
    """The data files of a table that a gap passes.

    Attributes:
        count: files that are known. lost: how many of them are deleted. unknown_commits: commits whose files are not
            known, because the commit itself is deleted.
    """

    count: int
    lost: int
    unknown_commits: int = 0


@dataclass(frozen=True, slots=True)
class Reached:
    """The last item of a split whose end is only known after reading: the position that it reached.

    Attributes:
        behind: as in `Pull`.
        backlog: what the external system has after that now; None: the source cannot say cheaply.
    """

    position: Position
    behind: tuple[str, ...] = ()
    backlog: SourceBacklog | None = None


@dataclass(frozen=True, slots=True)
class Resumption:
    """Where a log can continue after lost data, with a gap up to there.

    Attributes:
        position, behind, backlog: as in `Reached`.
        passed: the data files that the gap passes; None: the source does not count them.
        note: what a person should know before approving the gap; "": nothing.
    """

    position: Position
    behind: tuple[str, ...] = ()
    backlog: SourceBacklog | None = None
    passed: PassedFiles | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Pull:
    """The rows of one record, before they are read.

    Attributes:
        splits: in the order of their rows; each is an argument of `read`.
        end: position after all of them; None: the only split yields it as `Reached`.
        behind: partitions that are not read to the end of this landing by then, by the names that their rows have in
            the column `PARTITION`. They hold back the watermark. () if `end` is None.
        ahead: what the external system has after the position from which the pull reads, for `doctor`; None: the source
            cannot say cheaply.
        backlog: what it has after `end`, as in a record; None: the source cannot say cheaply, or `end` is None.
    """

    splits: Sequence[Any]
    end: Position | None
    behind: tuple[str, ...] = ()
    ahead: SourceBacklog | None = None
    backlog: SourceBacklog | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A fact about an external system that `doctor` shows."""

    text: str
    is_warning: bool = False


@runtime_checkable
class NotedSource(Protocol):
    """A source with facts for `doctor`, in addition to its position."""

    def notes(self, position: Position | None) -> tuple[Note, ...]:
        """Return the facts. Changes nothing; called after `identity`.

        Args:
            position: the end of the log; None: nothing was landed yet.
        """


@dataclass(frozen=True, slots=True)
class FileRetention:
    """How long a table keeps a data file after it no longer needs it.

    Attributes:
        property: name of the table property. ms: its value; None: it cannot be parsed.
    """

    property: str
    ms: int | None


@runtime_checkable
class ReferencedSource(Protocol):
    """A source whose records may refer to files of the external system, which may delete them."""

    def file_retention(self) -> FileRetention | None:
        """Return how long deleted files are retained; None: the rows are copied. Called after `identity`."""


class LandedSource(Protocol):
    """One external system, opened for one landing."""

    def identity(self) -> Identity:
        """Return what identifies this external system. It must not change during the life of the system (L9)."""

    def initial_position(self) -> Position:
        """Return where a new log begins. Called by the first landing, and by `doctor` before that."""

    def next_pull(self, position: Position) -> Pull | None:
        """Return what to read after a position; None: nothing, or this landing has reached its end.

        `doctor` also calls this, without reading the splits.

        Args:
            position: the `end` of the newest record, as it was stored.
        Raises:
            PositionExpired: the external system no longer has what follows. `read` may raise it as well.
            SourceWentBack: it has not reached that position, or its data before it has changed.
        """

    def read(self, split: Any) -> Iterator[pa.RecordBatch | PartRows | FileReference | Reached]:
        """Yield the rows of a split in order, with the declared columns.

        A split may instead yield the rows of several parts, each part in order, or references to files. One landing
        yields either rows or references.
        """

    def commit(self, end: Position) -> None:
        """Acknowledge everything before a position. May be called again with the same position."""


@runtime_checkable
class ResumableSource(LandedSource, Protocol):
    """A source that knows where a log can continue after lost data (L7)."""

    def resume_position(self, where: str | int, position: Position) -> Resumption:
        """Return where to continue after what was lost. Data that was not lost is not skipped.

        Args:
            where: earliest, latest, or a time in milliseconds since 1970-01-01T00:00Z. It applies to what was lost.
            position: the `end` of the newest record, as it was stored.
        Raises:
            InvalidRequest: the source cannot continue from there. SourceWentBack: as `next_pull`.
        """


@runtime_checkable
class RewindableSource(LandedSource, Protocol):
    """A source that can find which landed records are still true after the external system went back (L8)."""

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        """Return the index of the first position up to which the external system still has what was landed.

        Args:
            ends: the `end` of each record as it was stored, newest first. They are read from the log one by one.
        Returns: None if the external system has changed before all of them.
        Raises:
            InvalidRequest: the source cannot tell, and says why.
        """


def stored_position(source: str, position: Any) -> Position:
    """Return a position as it is read back from the log, so that it equals itself. Raises InvalidRequest.

    Args:
        source: for messages.
    """
    try:
        return json.loads(dump(position))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"source {source}: its position cannot be stored as JSON: {error}. Nothing was landed.",
            hint="a position is made of dicts with text keys, lists, texts, numbers, booleans and null",
            source=source,
        ) from error
