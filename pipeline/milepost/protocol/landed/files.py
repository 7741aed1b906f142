"""The files that have the rows of a record: objects of the job, or data files of an external table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from milepost.codec import Count, Sha256, Text


@dataclass(frozen=True, slots=True)
class LandedObject:
    """One Parquet object of a record.

    Attributes:
        key: below `landed_objects_prefix` of the source.
    """

    stored_as_row: ClassVar[bool] = True

    key: Text
    size: Count
    sha256: Sha256
    rows: Count


@dataclass(frozen=True, slots=True)
class ReferencedFile:
    """One data file of an external table, which epochs read where it is. The table may delete it.

    Attributes:
        uri: where it is. size, etag: of the version that was landed.
        layout: index of its column names in the record's `layouts`.
        values: columns that have one value in all of its rows, which is null or a text.
    """

    stored_as_row: ClassVar[bool] = True

    uri: Text
    size: Count
    etag: Text
    rows: Count
    layout: Count
    values: Mapping[str, str | None]


def is_reference(key: str) -> bool:
    """Return whether the key of a planned object is the URI of a data file. Keys of landed objects have no scheme."""
    return "://" in key
