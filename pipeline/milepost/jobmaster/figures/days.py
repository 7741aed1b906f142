"""List and read the stored objects of figures, one folder per day."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from milepost.errors import StateCorrupt
from milepost.protocol.records import FIGURES_PREFIX, ObjectStat, ObjectStore, figures_place
from milepost.storage.concurrency import parallel_map

if TYPE_CHECKING:
    import pyarrow as pa

MAX_LISTINGS = 5
"""Maximum number of listings of a reader. It lists again if another writer has merged an object meanwhile."""


@dataclass(frozen=True, slots=True)
class FiguresObject:
    """A stored object with the rows of epochs of one day.

    Attributes:
        version: manifest version up to which every completed checkpoint had its row when it was written.
    """

    stat: ObjectStat
    day: str
    version: int


def list_objects(store: ObjectStore, first_day: str = "") -> list[FiguresObject]:
    """Return the objects of all days from `first_day` on, in that order. Objects with other names are left out."""
    stats = store.list(FIGURES_PREFIX, start_after=f"{FIGURES_PREFIX}{first_day}" if first_day else "")
    return [FiguresObject(stat, *place) for stat in stats if (place := figures_place(stat.key)) is not None]


def by_day(objects: Iterable[FiguresObject]) -> dict[str, list[FiguresObject]]:
    """Return listed objects by day, ascending."""
    return {day: list(those) for day, those in groupby(objects, lambda item: item.day)}


def read_objects(
    store: ObjectStore, objects: Iterable[FiguresObject], columns: Sequence[str] | None = None
) -> Iterator[tuple[FiguresObject, pa.Table | StateCorrupt]]:
    """Yield the rows of each object, or why they cannot be read. Raises NotFound: it was merged since the listing."""

    def read(item: FiguresObject) -> tuple[FiguresObject, pa.Table | StateCorrupt]:
        try:
            return item, read_table(store, item, columns)
        except StateCorrupt as error:
            return item, error

    return iter(parallel_map(store, read, objects))


def read_table(store: ObjectStore, item: FiguresObject, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of an object. Raises: StateCorrupt: it is unreadable. NotFound.

    Args:
        columns: as in `decode_rows`.
    """
    from milepost.jobmaster.figures.row_file import MAX_OBJECT_BYTES, decode_rows

    if item.stat.size > MAX_OBJECT_BYTES:
        raise StateCorrupt(
            f"object {item.stat.key} with figures of past epochs has {item.stat.size} bytes, expected at most "
            f"{MAX_OBJECT_BYTES}. It was not read.",
            key=item.stat.key,
        )
    return decode_rows(store.get(item.stat.key), item.stat.key, columns)
