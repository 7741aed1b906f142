"""A shown table is what a job that takes it over, where it is, finds of a savepoint in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from milepost.sinks.records.table_keys import table_key_fault


@dataclass(frozen=True, slots=True)
class ShownMark:
    """A mark under which a table shows what a savepoint has."""

    number: int
    write_id: str


@dataclass(frozen=True, slots=True)
class ShownTable:
    """A table that shows what a savepoint has, for the job that takes it over where it is.

    Attributes:
        table_id: the table's own identity. marks: under any of these it does. keys: of its files, in commit order.
    """

    table_id: str
    marks: tuple[ShownMark, ...]
    keys: tuple[Annotated[str, table_key_fault], ...]
