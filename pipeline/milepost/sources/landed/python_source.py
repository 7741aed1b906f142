"""Format `python`: a class that implements PySpark's `DataSource` with a stream reader, without Spark.

Both kinds of readers are served. A `DataSourceStreamReader` plans an end and splits the range into partitions. A
`SimpleDataSourceStreamReader` reads from a start and says where it stopped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkNotImplementedError
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, SimpleDataSourceStreamReader
from pyspark.sql.pandas.types import from_arrow_schema

from milepost.errors import CheckpointError, InvalidRequest, PositionExpired, SourceUnreachable, SourceWentBack
from milepost.jobspec.job import EventTimeSpec
from milepost.language import ColumnType, arrow_schema
from milepost.operators.process import UserCodeFailed, UserFunction
from milepost.protocol.landed import Identity, Position
from milepost.sources.landed.contract import NOTHING_LANDED, LandedSource, Pull, Reached, Resumption, stored_position
from milepost.sources.landed.read_limits import ends_itself, read_limit, takes_limit
from milepost.sources.landed.row_batches import record_batches

_Batches = Callable[[Iterator[Any]], Iterator[pa.RecordBatch]]
"""Converts the items of a user's reader to batches of the declared columns."""

_MAX_PULLS = 1_000
"""A landing ends after this many records, so that a reader that never reaches its end does not keep it forever."""

_LOST = (PositionExpired, SourceWentBack)
"""Errors by which a reader says that it cannot continue from a position."""

_ACKNOWLEDGED_LATER = "What was read is landed, and the next landing acknowledges it again."


def open_python_source(
    name: str,
    identity: Identity,
    code: UserFunction,
    options: Mapping[str, str],
    types: Mapping[str, ColumnType],
    event_time: EventTimeSpec | None = None,
    *,
    max_rows: int | None = None,
    max_bytes: int | None = None,
) -> LandedSource:
    """Open the class of a source for one landing.

    Args:
        name: of the source, for messages. identity: as in the spec. options: given to the class.
        types: the declared columns. event_time: the column of the event time; None: rows have none.
        max_rows, max_bytes: at most one limit, in place of the reader's own default.
    Raises:
        InvalidRequest: the class is no `DataSource` with a stream reader, or takes no limit and is given one.
        SourceUnreachable: it raised an error.
    """
    calls = _UserCalls(name, code)
    with calls.guarded("the class of the source cannot be used", passed=(CheckpointError,)):
        loaded = code.load_object()
        if not (isinstance(loaded, type) and issubclass(loaded, DataSource)):
            what = "no such name" if loaded is None else "another class" if isinstance(loaded, type) else repr(loaded)
            raise InvalidRequest(
                f"source {name}: expected {code.name} in module {code.module} to be a subclass of "
                f"pyspark.sql.datasource.DataSource, got {what}. Nothing was landed.",
                source=name,
            )
        source = loaded(dict(options))
        declared = arrow_schema(types)
        spark_schema = from_arrow_schema(declared, prefer_timestamp_ntz=True)
        try:
            reader: Any = source.streamReader(spark_schema)
        except PySparkNotImplementedError:
            reader = _simple_reader(name, code, source, spark_schema)
    limit = read_limit(name, max_rows, max_bytes)
    if limit is not None and not takes_limit(reader):
        raise InvalidRequest(
            f"source {name}: `land` has a limit, and {code.name} takes none: its reader has no "
            "`latestOffset(start, limit)`. Nothing was landed.",
            hint="add the two arguments to `latestOffset`, or remove the limit: a landing is then one record",
            source=name,
        )
    batches = partial(record_batches, name, types=types, event_time=event_time)
    if isinstance(reader, SimpleDataSourceStreamReader):
        return _SimpleSource(identity, reader, batches, calls)
    if isinstance(reader, DataSourceStreamReader):
        return _StreamSource(identity, reader, batches, calls, limit)
    raise InvalidRequest(
        f"source {name}: expected {code.name} to return a DataSourceStreamReader or a SimpleDataSourceStreamReader, "
        f"got {type(reader).__name__}. Nothing was landed.",
        source=name,
    )


def _simple_reader(name: str, code: UserFunction, source: DataSource, schema: Any) -> SimpleDataSourceStreamReader:
    try:
        return source.simpleStreamReader(schema)
    except PySparkNotImplementedError as error:
        raise InvalidRequest(
            f"source {name}: expected {code.name} to have `streamReader` or `simpleStreamReader`, got neither. Nothing "
            "was landed.",
            source=name,
        ) from error


@dataclass(frozen=True, slots=True)
class _UserCalls:
    """Turns the exceptions of a user's class into errors that name the source and the user's line."""

    source: str
    code: UserFunction

    @contextmanager
    def guarded(
        self, what: str, consequence: str = NOTHING_LANDED, passed: tuple[type[CheckpointError], ...] = _LOST
    ) -> Iterator[None]:
        """Raise SourceUnreachable for any exception of the user's code in the block, except those in `passed`."""
        try:
            yield
        except passed:
            raise
        except UserCodeFailed as error:
            raise self._failed(what, str(error.args[0]), consequence) from error
        except (Exception, SystemExit) as error:
            raise self._failed(what, self.code.describe(error), consequence) from error

    def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method of the reader. Raises SourceUnreachable."""
        with self.guarded(f"`{method.__name__}` failed"):
            return method(*args)

    def commit(self, method: Callable[..., Any], end: Position) -> None:
        """Call the reader's `commit`. Raises SourceUnreachable."""
        with self.guarded("`commit` failed", _ACKNOWLEDGED_LATER):
            method(end)

    def position(self, method: Callable[..., Any], *args: Any) -> Position:
        """Return the position that a method of the reader returns. Raises: SourceUnreachable, InvalidRequest."""
        return self.stored(f"`{method.__name__}`", self.call(method, *args))

    def resumed(self, reader: DataSourceStreamReader | SimpleDataSourceStreamReader, where: str | int) -> Resumption:
        """Return the initial position of the reader, which is `earliest`. Raises: InvalidRequest, SourceUnreachable."""
        if where != "earliest":
            raise InvalidRequest(
                f"source {self.source}: format python continues after lost data only from earliest, which is what "
                "`initialOffset` of the reader returns. Nothing was changed.",
                hint="give earliest",
                source=self.source,
            )
        return Resumption(self.position(reader.initialOffset))

    def newest_true(self, starts_at: Callable[[Position], object], ends: Iterable[Position]) -> int | None:
        """Return the index of the first position from which the reader does not report that its source went back.

        Args:
            starts_at: begins to read what follows a position.
        """
        for number, end in enumerate(ends):
            with suppress(SourceWentBack):
                with suppress(PositionExpired):  # what was landed up to there may be true all the same
                    starts_at(copy.deepcopy(end))
                return number
        return None

    def stored(self, what: str, position: Any) -> Position:
        """Return a position as the log stores it, independent of the user's object. Raises InvalidRequest."""
        if position is None:
            raise InvalidRequest(
                f"source {self.source}: expected {what} to return a position, got None. Nothing was landed.",
                hint="return the position that was given if there is nothing new",
                source=self.source,
            )
        return stored_position(self.source, position)

    def iterate(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items of what the user's `read` returned. Raises SourceUnreachable."""
        with self.guarded("`read` did not return rows"):
            iterator = iter(items)
        while True:
            with self.guarded("`read` failed"):
                try:
                    item = next(iterator)
                except StopIteration:
                    return
            yield item

    def _failed(self, what: str, why: str, consequence: str) -> SourceUnreachable:
        return SourceUnreachable(
            f"source {self.source}: {what}: {why}. {consequence}",
            hint="check that the external system answers and that the class is correct, then land again",
            source=self.source,
        )


class _StreamSource:
    """A `DataSourceStreamReader`.

    A landing ends where `prepareForTriggerAvailableNow` fixed its end, if the reader has that. Otherwise it reads once:
    to the newest offset, or as far as its limit allows: that of the spec, or the reader's own default.
    """

    def __init__(
        self,
        identity: Identity,
        reader: DataSourceStreamReader,
        batches: _Batches,
        calls: _UserCalls,
        limit: Any,
    ) -> None:
        self._identity, self._reader, self._batches, self._calls = identity, reader, batches, calls
        self._limit = limit
        self._pulls = _Pulls(reader, calls)

    def identity(self) -> Identity:
        return self._identity

    def initial_position(self) -> Position:
        return self._calls.position(self._reader.initialOffset)

    def next_pull(self, position: Position) -> Pull | None:
        return self._pull(position) if self._pulls.begin() else None

    def _pull(self, position: Position) -> Pull | None:
        arguments = []
        if takes_limit(self._reader):
            arguments = [copy.deepcopy(position), self._limit or self._calls.call(self._reader.getDefaultReadLimit)]
        end = self._calls.position(self._reader.latestOffset, *arguments)
        if end == position:
            return None
        splits = self._calls.call(self._reader.partitions, copy.deepcopy(position), copy.deepcopy(end))
        with self._calls.guarded("`partitions` did not return partitions"):
            return Pull(list(splits), end)

    def read(self, split: Any) -> Iterator[pa.RecordBatch | Reached]:
        rows = self._calls.iterate(self._calls.call(self._reader.read, split))
        return self._batches(rows)

    def commit(self, end: Position) -> None:
        self._calls.commit(self._reader.commit, copy.deepcopy(end))

    def resume_position(self, where: str | int, position: Position) -> Resumption:
        return self._calls.resumed(self._reader, where)

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        self._pulls.begin()
        return self._calls.newest_true(self._first_rows, ends)

    def _first_rows(self, position: Position) -> None:
        """Plan and begin to read what follows a position."""
        pull = self._pull(position)
        for split in pull.splits[:1] if pull is not None else ():
            next(self._calls.iterate(self._calls.call(self._reader.read, split)), None)


class _SimpleSource:
    """A `SimpleDataSourceStreamReader`. A landing ends as that of a `_StreamSource` does."""

    def __init__(
        self,
        identity: Identity,
        reader: SimpleDataSourceStreamReader,
        batches: _Batches,
        calls: _UserCalls,
    ) -> None:
        self._identity, self._reader, self._batches, self._calls = identity, reader, batches, calls
        self._pulls = _Pulls(reader, calls)

    def identity(self) -> Identity:
        return self._identity

    def initial_position(self) -> Position:
        return self._calls.position(self._reader.initialOffset)

    def next_pull(self, position: Position) -> Pull | None:
        return Pull([position], None) if self._pulls.begin() else None

    def read(self, split: Any) -> Iterator[pa.RecordBatch | Reached]:
        found = self._calls.call(self._reader.read, copy.deepcopy(split))
        with self._calls.guarded("`read` did not return rows and a position"):
            rows, end = found
        yield from self._batches(self._calls.iterate(rows))
        yield Reached(self._calls.stored("`read`", end))  # the iterator of the rows may have moved it

    def commit(self, end: Position) -> None:
        self._calls.commit(self._reader.commit, copy.deepcopy(end))

    def resume_position(self, where: str | int, position: Position) -> Resumption:
        return self._calls.resumed(self._reader, where)

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        return self._calls.newest_true(partial(self._calls.call, self._reader.read), ends)


class _Pulls:
    """Counts the pulls of one landing."""

    def __init__(self, reader: DataSourceStreamReader | SimpleDataSourceStreamReader, calls: _UserCalls) -> None:
        self._reader, self._calls = reader, calls
        self._ends_itself = ends_itself(reader)
        self._count = 0

    def begin(self) -> bool:
        """Return whether the landing may read once more. The first call fixes where a reader that ends itself ends."""
        if not self._count and self._ends_itself:
            reader: Any = self._reader
            self._calls.call(reader.prepareForTriggerAvailableNow)
        self._count += 1
        return self._count <= (_MAX_PULLS if self._ends_itself else 1)
