"""Spec of the `history` operator: the versions of each key (SCD type 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from milepost.language import ColumnName, ColumnType, Many, Path, Problem, Text
from milepost.operators.base.change_rows import condition_problems, shown_column_problems
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.base.operator_spec import EventTimeRule, KeyColumns, KeyedOperator
from milepost.operators.base.origins import FILTERED, GROUPED, SORTED, Origins, RowsLineage, after_step, union
from milepost.operators.base.output_rows import UPDATES, OutputRows, append_problems, key_problems, scalar_problems
from milepost.operators.base.sql_lineage import condition_origins
from milepost.operators.base.state_bounds import StateBound, column_list

VALID_FROM, VALID_TO, IS_CURRENT = VERSION_COLUMNS = ("valid_from", "valid_to", "is_current")
"""Columns of a version: where it begins (inclusive), where it ends (exclusive, null: it has not), and whether it has
not ended."""


class HistoryOperator(KeyedOperator):
    """The versions of each key in the order of a sequence (slowly changing dimension, type 2).

    Each row begins a version, which ends where the next row of its key begins one or deletes the key. Rows may arrive
    in any order. The output is updates by `key` and `valid_from`, with the columns `valid_from`, `valid_to` and
    `is_current`. Each epoch emits the versions that changed. It has no event time. Among rows with equal key and
    sequence, a delete wins, then the greater row, comparing all columns of the table in the order of the input.

    Attributes:
        sequence_by: the column that orders the rows of a key and becomes `valid_from`. A null fails the epoch. NaN is
            the greatest number.
        delete_when: Spark SQL condition over one input row. A row for which it is true ends the version of its key.
            null: no deletes.
        columns: columns of the table, which must include `key`. null: all columns of the input.
        track: columns of the table. Consecutive rows that are equal in them are one version, which shows the other
            columns of its last row. null: each row begins a version.
    """

    kind: Literal["history"]
    sequence_by: Annotated[Many[ColumnName], Field(min_length=1, max_length=1)]
    delete_when: Text | None = None
    columns: KeyColumns | None = None
    track: KeyColumns | None = None

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule("none")
    lost_state: ClassVar[str] = "the versions of each key: those that arrive later will be the only ones"
    publishes_state: ClassVar[bool] = True

    @property
    def sequence(self) -> str:
        """The column that orders the rows of a key."""
        return self.sequence_by[0]

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the columns of the table and of a version: updates by key and `valid_from`, without event time."""
        (rows,), (name,) = inputs, self.inputs
        problems = append_problems(self.kind, name, rows, path) + key_problems(self.key, name, rows, path)
        problems += scalar_problems("a sequence", self.sequence_by, name, rows, (*path, "sequence_by"))
        problems += shown_column_problems(self.key, self.columns, name, rows, path)
        problems += condition_problems(self.delete_when, name, rows, path)
        problems += self._version_problems(name, rows, path)
        if problems:
            return problems
        columns = {}
        if rows.columns_known:
            time = rows.columns[self.sequence]
            columns = {column: rows.columns[column] for column in self.columns or tuple(rows.columns)}
            columns |= {VALID_FROM: time, VALID_TO: time, IS_CURRENT: ColumnType("bool")}
        return OutputRows(
            columns,
            None,
            UPDATES,
            (*self.key, VALID_FROM),
            columns_known=rows.columns_known,
            deletes=self.versions_can_end,
        )

    @property
    def versions_can_end(self) -> bool:
        """Whether a version can leave the table: a later arrival deletes its row, or joins it with a tracked one."""
        return self.delete_when is not None or self.track is not None

    def _version_problems(self, name: str, rows: OutputRows, path: Path) -> Iterator[Problem]:
        if self.sequence in self.key:
            yield Problem(
                (*path, "sequence_by"), f"{self.sequence} is part of the key, so each key would have one version"
            )
        if not rows.columns_known:
            return
        shown = self.columns or tuple(rows.columns)
        for column in shown:
            if column.casefold() in VERSION_COLUMNS:
                message = f"the table already has a column {column} from {name}; rename it in SQL, or omit it"
                yield Problem((*path, "inputs", 0) if self.columns is None else (*path, "columns"), message)
        for index, column in enumerate(self.track or ()):
            if column in self.key:
                message = f"{column} is part of the key, which never changes; track other columns"
                yield Problem((*path, "track", index), message)
            elif column not in shown:
                message = f"{column} is not a column of the table: {column_list(shown)}"
                yield Problem((*path, "track", index), message)

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        (rows,) = inputs
        deciding = [rows.by(GROUPED, self.key), rows.by(SORTED, self.sequence_by)]
        if self.delete_when is not None:
            deciding.append(after_step(FILTERED, condition_origins(self.delete_when, self.inputs[0], rows)))
        if self.track is not None:
            deciding.append(rows.by(FILTERED, self.track))
        columns: Mapping[str, Origins] = rows.columns
        if self.columns is not None:
            columns = {name: rows.of(name) for name in rows.columns if name in self.columns} or {
                name: rows.of(name) for name in self.columns
            }
        if columns:
            columns = {**columns, **dict.fromkeys(VERSION_COLUMNS, rows.of(self.sequence))}
        return RowsLineage(columns, union(rows.rows, *deciding), rows.any_column)

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        return () if self.delete_when is None else ((DELETED_COLUMN, self.delete_when),)

    def needed_columns(self, columns: Sequence[str], event_time: str | None) -> frozenset[str] | None:
        """Return the columns that it needs. Columns that only `delete_when` reads are not included."""
        return None if self.columns is None else frozenset({*self.key, self.sequence, *self.columns})

    def state_columns(self) -> list[tuple[str, list[str]]]:
        return [("", [*self.key, self.sequence, *(self.track or ())])]

    @property
    def named_columns(self) -> tuple[str, ...]:
        return (*self.key, *VERSION_COLUMNS)

    def holds_event_times(self, event_time: str | None) -> bool:
        return event_time == self.sequence

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        # Keys without new rows have published versions, which depend on `track`. State may have deletes.
        signature: dict[str, Any] = {"sequence_by": list(self.sequence_by)}
        if self.track is not None:
            signature["track"] = list(self.track)
        if self.delete_when is not None:
            signature["deletes"] = True
        return signature

    def state_bounds(self) -> tuple[StateBound, ...]:
        key, sequence = column_list(self.key), self.sequence
        deletes = ", including deletes" if self.delete_when is not None else ""
        holds = f"a row per {key} and {sequence}{deletes}"
        return (StateBound("", holds, grows_with=f"distinct {key}, {sequence}{deletes}"),)
