"""How a table shows a savepoint, for the job that takes the table over."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from milepost.sinks.records.table_keys import table_key_fault


@dataclass(frozen=True, slots=True)
class ViewMark:
    """A mark with which a table shows the savepoint."""

    number: int
    write_id: str


@dataclass(frozen=True, slots=True)
class TableView:
    """A table that shows a savepoint.

    Attributes:
        table_id: the table's own identity. marks: the table carries one of these. keys: of its files, in commit order.
    """

    table_id: str
    marks: tuple[ViewMark, ...]
    keys: tuple[Annotated[str, table_key_fault], ...]
