"""Read the permanent rows of past epochs, and follow a lineage through them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from milepost.errors import NotFound, StateCorrupt, StoreUnavailable
from milepost.jobmaster.figures.days import MAX_LISTINGS, FiguresObject, by_day, list_objects, read_objects, read_table
from milepost.jobmaster.figures.epoch_rows import (
    COLUMNS,
    PHASES,
    ROW_BYTES,
    EpochRow,
)
from milepost.jobmaster.figures.row import day_of
from milepost.protocol.records import CheckpointStatus, ObjectStore
from milepost.storage import OBJECT_CACHE
from milepost.storage.concurrency import parallel_map

if TYPE_CHECKING:
    import pyarrow as pa


NODES = ("sources", "operators", "sinks")
"""Columns with figures by the name of a node."""


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """The figures of an epoch by name of a source, operator and sink. task_ms: time of all tasks; None: unknown."""

    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    operators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    sinks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    task_ms: int | None = None

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> NodeFigures:
        """Return the figures in a row that has its maps as dictionaries or pairs."""
        maps = {kind: {name: one for name, one in dict(row.get(kind) or ()).items() if one} for kind in NODES}
        return cls(**maps, task_ms=row.get("task_ms"))


_LEAST_STORED_BYTES = 200
"""Approximate size of a row in an object of a day."""


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The row of a completed epoch, as far as a series shows it. Times are in ms since the epoch; None: unknown."""

    checkpoint_id: int
    epoch: int | None
    timeline: str
    parent: int
    version: int
    trigger_time: int | None
    end_time: int | None
    duration_ms: int | None
    phases: dict[str, int] | None
    rows_in: int | None
    rows_out: int | None
    late_rows: int | None
    dropped_rows: int | None
    bad_records: int | None
    checkpointed_bytes: int | None
    state_bytes: int | None
    in_flight_bytes: int | None
    lag_ms: int | None
    quality: str | None
    requests: dict[str, int] | None
    task_ms: int | None


class ChainedRow(Protocol):
    """A row that names the checkpoint before its own."""

    @property
    def checkpoint_id(self) -> int: ...
    @property
    def timeline(self) -> str: ...
    @property
    def parent(self) -> int: ...
    @property
    def version(self) -> int: ...


class DatedRow(Protocol):
    """A row of a checkpoint, with its end in ms since the epoch."""

    @property
    def checkpoint_id(self) -> int: ...
    @property
    def timeline(self) -> str: ...
    @property
    def end_time(self) -> int | None: ...


R = TypeVar("R", bound=ChainedRow)


class StoredRows:
    """The rows of a job, read day by day from the newest one on.

    Attributes:
        unreadable: why objects could not be read; one line each.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self.unreadable: list[str] = []

    def days(self, first_day: str = "") -> Iterator[list[StoredRow]]:
        """Yield the completed epochs of each day, newest first. Reads each day lazily."""
        return self._days(first_day, self._rows)

    def epochs(self, first_day: str = "") -> Iterator[list[EpochRow]]:
        """Yield the completed and aborted epochs of each day, newest first, without their phases. Reads lazily."""
        return self._days(first_day, partial(self._epochs, COLUMNS))

    def epochs_by_phase(self, first_day: str = "") -> Iterator[list[EpochRow]]:
        """Yield the same as `epochs`, with their phases, which take as long to read as all other columns."""
        return self._days(first_day, partial(self._epochs, (*COLUMNS, PHASES)))

    def check(self) -> list[str]:
        """Read every object. Returns why objects are unreadable, one line each."""
        for _ in self.days():
            pass
        return self.unreadable

    def nodes(self, rows: Iterable[DatedRow]) -> dict[tuple[int, str], NodeFigures]:
        """Return the figures of nodes for these rows, by checkpoint and timeline. Unreadable objects are skipped.

        Raises: NotFound: an epoch merged an object since the listing.
        """
        import pyarrow.compute as pc

        from milepost.arrow import int64_array

        wanted = {(row.checkpoint_id, row.timeline): day_of(row.end_time) for row in rows if row.end_time is not None}
        ids = int64_array(sorted({checkpoint_id for checkpoint_id, _ in wanted}))
        objects = [item for item in list_objects(self._store, min(wanted.values(), default="")) if wanted]
        columns = ("checkpoint_id", "timeline", "parent", "token", "version", "status", "task_ms", *NODES)
        read = read_objects(self._store, [item for item in objects if item.day in wanted.values()], columns)
        found: dict[tuple[int, str], NodeFigures] = {}
        for _, table in read:
            if isinstance(table, StateCorrupt):  # `days` has named it
                continue
            chosen = table.filter(pc.is_in(table.column("checkpoint_id"), ids))
            for row in chosen.to_pylist(maps_as_pydicts="lossy"):
                key = (row["checkpoint_id"], row["timeline"])
                if key in wanted and row["status"] == CheckpointStatus.COMPLETED.value:
                    found[key] = NodeFigures.of(row)
        return found

    def _days(self, first_day: str, read_rows: Callable[[FiguresObject], list[R] | StateCorrupt]) -> Iterator[list[R]]:
        objects = by_day(list_objects(self._store, first_day))
        for day in sorted(objects, reverse=True):
            yield self._day(day, objects[day], read_rows)

    def _day(
        self,
        day: str,
        objects: Sequence[FiguresObject],
        read_rows: Callable[[FiguresObject], list[R] | StateCorrupt],
    ) -> list[R]:
        for _ in range(MAX_LISTINGS):
            try:
                read = parallel_map(self._store, read_rows, objects)
            except NotFound:  # an epoch has merged it
                objects = [item for item in list_objects(self._store, day) if item.day == day]
                continue
            self.unreadable += [rows.message for rows in read if isinstance(rows, StateCorrupt)]
            found = {
                (row.checkpoint_id, row.timeline, row.version): row
                for rows in read
                if not isinstance(rows, StateCorrupt)
                for row in rows
            }
            return sorted(found.values(), key=lambda row: row.version, reverse=True)
        raise StoreUnavailable(
            f"the figures of {day} were merged by an epoch during each of {MAX_LISTINGS} readings. Try again."
        )

    def _epochs(self, columns: Sequence[str], item: FiguresObject) -> list[EpochRow] | StateCorrupt:
        """Return the compact rows of an object, which are cached; or why it is unreadable."""
        from milepost.jobmaster.figures.decoding import decode_epochs

        try:
            return OBJECT_CACHE.read(
                self._store,
                ("epochs by phase" if PHASES in columns else "epochs", item.stat.key, item.stat.etag),
                item.stat.size // _LEAST_STORED_BYTES * ROW_BYTES,
                lambda: decode_epochs(read_table(self._store, item, columns), item.stat.key),
            )
        except StateCorrupt as error:
            return error

    def _rows(self, item: FiguresObject) -> list[StoredRow] | StateCorrupt:
        """Return the rows of an object, which is never changed and therefore cached; or why it is unreadable."""
        try:
            return OBJECT_CACHE.read(
                self._store,
                ("figures", item.stat.key, item.stat.etag),
                item.stat.size,
                lambda: _completed(read_table(self._store, item), item.stat.key),
            )
        except StateCorrupt as error:
            return error


def _completed(table: pa.Table, key: str) -> list[StoredRow]:
    """Return the completed epochs of a table. Raises StateCorrupt: a value cannot be represented."""
    from milepost.arrow import int64_array
    from milepost.jobmaster.figures.decoding import with_times_ms

    names = [field.name for field in fields(StoredRow)]
    table = with_times_ms(table, key)
    statuses = table.column("status").to_pylist()
    done = int64_array(at for at, status in enumerate(statuses) if status == CheckpointStatus.COMPLETED.value)
    try:
        rows = table.select(names).take(done).to_pylist(maps_as_pydicts="strict")
    except (KeyError, ValueError) as error:
        raise StateCorrupt(f"object {key} with figures of past epochs: {error!r}", key=key) from error
    for row in rows:
        requests = row["requests"]
        row["requests"] = None if requests is None or None in requests.values() else requests
    return [StoredRow(**row) for row in rows]


def lineage(days: Iterable[Sequence[R]], checkpoint_id: int, timeline: str) -> Iterator[R]:
    """Yield the rows of a checkpoint and its ancestors, newest first. Rows that are missing are skipped.

    The rows of one timeline are a chain. So below a missing row the next one of its child's timeline continues it:

        1 main, 2 main, 3 main; a rollback to 2; 4 t9, 5 t9      from 5: 5, 4, 2, 1
        the same without the row of 4                            from 5: 5, and no other: 4 has no row

    Args:
        days: completed epochs, newest day first, each in descending order of version.
    """
    for rows in days:
        for row in rows:
            is_next = row.checkpoint_id == checkpoint_id
            if is_next or (row.timeline == timeline and row.checkpoint_id < checkpoint_id):
                yield row
                checkpoint_id, timeline = row.parent, row.timeline
                if not checkpoint_id:
                    return


def completed_lineage(days: Iterable[Sequence[EpochRow]], checkpoint_id: int, timeline: str) -> Iterator[EpochRow]:
    """Yield the compact rows of a checkpoint and its ancestors, as `lineage`."""
    return lineage(([row for row in rows if row.is_completed] for rows in days), checkpoint_id, timeline)
