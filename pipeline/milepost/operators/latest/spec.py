"""Spec of the `latest` operator: keep the newest row of each key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

from milepost.language import ColumnType, Path, PositiveDuration, Problem, Text
from milepost.language.times import format_duration
from milepost.operators.base.change_rows import condition_problems, shown_column_problems
from milepost.operators.base.edges import DELETED_COLUMN
from milepost.operators.base.operator_spec import (
    FOR_EVER,
    NOTHING,
    REMEMBERS,
    EventTimeRule,
    KeyColumns,
    KeyedOperator,
)
from milepost.operators.base.origins import FILTERED, GROUPED, SORTED, Origins, RowsLineage, after_step, union
from milepost.operators.base.output_rows import (
    UPDATES,
    OutputRows,
    append_problems,
    event_time_problems,
    key_problems,
    scalar_problems,
)
from milepost.operators.base.row_trace import RowTrace, same_names
from milepost.operators.base.sql_lineage import condition_origins
from milepost.operators.base.state_bounds import StateBound, bound_per_key, column_list, plus


class LatestOperator(KeyedOperator):
    """The newest row of each key, ordered by columns. Each epoch emits the keys that changed.

    The output is updates, for an upsert or changelog sink, with deletes if `delete_when` is given. It has no event
    time. Among rows with equal `sequence_by`, a delete wins, then the greater row, comparing all columns of the table
    in the order of the input.

    Attributes:
        sequence_by: columns, each once, that order the rows of a key; the greatest row is the newest. As in Spark, null
            is the smallest value and NaN the greatest number.
        delete_when: Spark SQL condition over one input row. A row for which it is true deletes its key. null: no
            deletes.
        columns: columns of the table, which must include `key`. null: all columns of the input.
        tombstone_ttl: how long a deleted key is remembered, in event time, above 0s, so that an older row cannot revive
            it. Rows older than that are late and go to `<uid>.late`. null: deleted keys are remembered permanently, and
            no row is late.
        ignore_nulls: whether a null in a column other than `key` and `sequence_by` leaves it as it is, so that rows
            update only some columns. Of rows with equal `sequence_by`, each column then has its greatest value.
        unchanged: text that leaves a string column as it is, for rows that update only some columns. null: none.
    """

    kind: Literal["latest"]
    sequence_by: KeyColumns
    delete_when: Text | None = None
    columns: KeyColumns | None = None
    tombstone_ttl: PositiveDuration | None = None
    ignore_nulls: bool = False
    unchanged: Text | None = None

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule(
        "none", NOTHING, "with a `tombstone_ttl`: event time < watermark − tombstone_ttl"
    )
    lifetime_key: ClassVar[str] = "tombstone_ttl"
    lost_state: ClassVar[str] = "the latest row of each key: an older row that arrives later will replace it"
    publishes_state: ClassVar[bool] = True

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the columns of the table: updates by key, without event time, with deletes if there is a condition."""
        (rows,), (name,) = inputs, self.inputs
        problems = append_problems(self.kind, name, rows, path) + key_problems(self.key, name, rows, path)
        problems += scalar_problems("a sequence", self.sequence_by, name, rows, (*path, "sequence_by"))
        problems += shown_column_problems(self.key, self.columns, name, rows, path)
        problems += self._ttl_problems(name, rows, path)
        if self.is_partial and self.tombstone_ttl is not None:
            message = "`tombstone_ttl` with `ignore_nulls` or `unchanged` is not available in this version"
            problems.append(Problem((*path, "tombstone_ttl"), message))
        problems += condition_problems(self.delete_when, name, rows, path)
        if problems:
            return problems
        shown = self.columns or tuple(rows.columns)
        return OutputRows(
            {column: rows.columns[column] for column in shown} if rows.columns_known else {},
            None,
            UPDATES,
            self.key,
            columns_known=rows.columns_known,
            deletes=self.delete_when is not None,
        )

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        (rows,), (time,) = inputs, times
        deciding = [rows.by(GROUPED, self.key), rows.by(SORTED, self.sequence_by)]
        if self.delete_when is not None:
            deciding.append(after_step(FILTERED, condition_origins(self.delete_when, self.inputs[0], rows)))
        if self.tombstone_ttl is not None:
            deciding.append(rows.by(FILTERED, (time,)))
        columns: Mapping[str, Origins] = rows.columns
        if self.columns is not None:
            columns = {name: rows.of(name) for name in rows.columns if name in self.columns} or {
                name: rows.of(name) for name in self.columns
            }
        return RowsLineage(columns, union(rows.rows, *deciding), rows.any_column)

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        picked = () if self.is_partial else [name for name in inputs[0] if name in (self.columns or inputs[0])]
        newest_by = () if self.is_partial else tuple(self.sequence_by)
        return (RowTrace(0, same_names(self.key), same_names(picked), newest_by=newest_by),)

    @property
    def is_partial(self) -> bool:
        """Whether rows may leave columns open."""
        return self.ignore_nulls or self.unchanged is not None

    @property
    def has_late_rows(self) -> bool:
        return self.tombstone_ttl is not None

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        return () if self.delete_when is None else ((DELETED_COLUMN, self.delete_when),)

    def needed_columns(self, columns: Sequence[str], event_time: str | None) -> frozenset[str] | None:
        """Return the columns that it needs. Columns that only `delete_when` reads are not included."""
        if self.columns is None:
            return None
        time = event_time if self.tombstone_ttl is not None else None
        return frozenset({*self.key, *self.sequence_by, *self.columns, *filter(None, [time])})

    def state_columns(self) -> list[tuple[str, list[str]]]:
        return [("", [*self.key, *self.sequence_by])]

    def holds_event_times(self, event_time: str | None) -> bool:
        return event_time in self.sequence_by or self.has_late_rows

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        # State does not hold the older rows.
        signature: dict[str, Any] = {"sequence_by": list(self.sequence_by)}
        if self.is_partial:
            signature["partial"] = {"ignore_nulls": self.ignore_nulls, "unchanged": self.unchanged}
        if self.delete_when is not None:
            signature[REMEMBERS] = FOR_EVER if self.tombstone_ttl is None else format_duration(self.tombstone_ttl)
        return signature

    def state_bounds(self) -> tuple[StateBound, ...]:
        key = column_list(self.key)
        if self.delete_when is None:
            return (bound_per_key("a row", self.key),)
        if self.tombstone_ttl is None:
            holds = f"a row per {key}, including deleted ones"
            return (StateBound("", holds, grows_with=f"distinct {key}, including deleted ones"),)
        holds = f"a row per {key}; a deleted one until the watermark passes event time{plus(self.tombstone_ttl)}"
        return (StateBound("", holds, grows_with=f"distinct {key} that are not deleted"),)

    def _ttl_problems(self, name: str, rows: OutputRows, path: Path) -> Iterator[Problem]:
        if self.tombstone_ttl is None:
            return
        if self.delete_when is None:
            message = "`tombstone_ttl` needs `delete_when`: without it no key is deleted"
            yield Problem((*path, "tombstone_ttl"), message)
        yield from event_time_problems("a tombstone_ttl", name, rows, path)
