"""Records of a proposed source: columns with reasons, event times, a key, and the sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from milepost.errors import InvalidRequest
from milepost.language import ColumnType

_SHOWN_CHARS = 24


@dataclass(frozen=True, slots=True)
class ProposedColumn:
    """A column of the sample.

    Attributes:
        name: as the files have it.
        type: None: it is not declared, and the source ignores it.
        note: why, as one line.
        is_optional: some file, or some JSON line, of the sample lacks it.
        time_format: pattern that reads its texts as times; None: there is none.
    """

    name: str
    type: ColumnType | None
    note: str
    is_optional: bool = False
    time_format: str | None = None


@dataclass(frozen=True, slots=True)
class EventTimeCandidate:
    """A column without nulls in the sample that can be the event time.

    Attributes:
        value: the value of `event_time` in a spec.
        note: how it is read, as one line.
    """

    column: str
    value: str | Mapping[str, Any]
    note: str


@dataclass(frozen=True, slots=True)
class SampleSize:
    """The size of the sample, and of all files. `is_complete`: every row of every file was read."""

    files: int
    all_files: int
    rows: int
    bytes: int
    all_bytes: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class ProposedSource:
    """A source that reads the sample.

    Attributes:
        pattern: of the files, relative to the folder or bucket of the request.
        columns: in file order, also those that are not declared.
        partitions: columns that are taken from `name=value` parts of the keys.
        bad_records: why unreadable records become dead letters, as one line; None: there are none in the sample.
        notes: other decisions, one line each. option_notes: option -> why it is set.
        event_times: the best one first. keys: columns without nulls and duplicates in the sample, the best one first.
    """

    format: str
    pattern: str
    options: Mapping[str, Any]
    columns: tuple[ProposedColumn, ...]
    partitions: tuple[ProposedColumn, ...]
    bad_records: str | None
    notes: tuple[str, ...]
    option_notes: Mapping[str, str]
    event_times: tuple[EventTimeCandidate, ...]
    keys: tuple[str, ...]
    sample: SampleSize

    @property
    def declared(self) -> tuple[ProposedColumn, ...]:
        """The columns of `schema`."""
        return tuple(column for column in self.columns if column.type is not None)


def shown(text: str) -> str:
    """Return a text from outside in quotes, cut and on one line, for a comment or a message."""
    cut = text if len(text) <= _SHOWN_CHARS else f"{text[: _SHOWN_CHARS - 1]}…"
    return "'" + "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in cut) + "'"


def refused(problem: str, hint: str) -> InvalidRequest:
    """Return the error of files from which no source can be proposed."""
    return InvalidRequest(f"{problem} Nothing was written.", hint=hint)
