"""Spec of the `sql` operator: row-wise SELECTs.

Over updates, a SELECT that keeps the key emits updates by it. A SELECT that drops the key, has an explode or is part of
a UNION ALL emits a retract stream, which only operators can read.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from milepost.language import ColumnType, Many, Path, Problem, StepName, Text
from milepost.language.sql import Branch, SqlPlan, SqlProblem, branches, check_row_wise, check_semantics, parse_select
from milepost.operators.base.operator_spec import EventTimeRule, RowWiseSpec, distinct
from milepost.operators.base.origins import RowsLineage
from milepost.operators.base.output_rows import APPEND, RETRACTIONS, Columns, OutputRows, nanosecond_problems
from milepost.operators.base.row_trace import RowTrace
from milepost.operators.base.sql_lineage import sql_lineage


class SelectSpec(RowWiseSpec):
    """Row-wise operators whose rows are a query, evaluated with Spark's results."""

    inputs: Annotated[Many[StepName], Field(min_length=1), AfterValidator(distinct)]

    definition_text: ClassVar[str] = "its SQL"

    @property
    @abstractmethod
    def query(self) -> str:
        """Spark SQL: row-wise SELECTs from its inputs, combined by UNION ALL."""

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the selected columns, with the event time if it keeps its name, and the key if it is selected.

        Over updates, a row that WHERE filters out is a delete of its key.
        """
        by_name = dict(zip(self.inputs, inputs, strict=True))
        try:
            selects = branches(self.query, [*by_name])
            selected = [(select.input, _selected(select, by_name[select.input])) for select in selects]
            rows = selected[0][1] if len(selected) == 1 else _union(selected)
        except SqlProblem as problem:
            return [Problem((*path, "sql"), str(problem))]
        problems = []
        for index, (name, of_input) in enumerate(by_name.items()):
            problems += nanosecond_problems(name, of_input, (*path, "inputs", index)) if of_input.columns_known else []
        return problems or rows

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        return sql_lineage(self.query, dict(zip(self.inputs, inputs, strict=True)))

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        """Return a trace for each SELECT, by the columns that it passes unchanged."""
        traces, names = [], list[str]()
        for select in branches(self.query, self.inputs):
            position = self.inputs.index(select.input)
            plan = select.plan([*inputs[position]])
            own = [name for name, _ in plan.columns]
            names = names or own  # those of the first SELECT name the columns
            equal = {
                plan.passthrough[name]: shown
                for name, shown in zip(own, names, strict=True)
                if name in plan.passthrough
            }
            traces.append(RowTrace(position, equal))
        return tuple(traces)

    def columns_read(
        self, input_name: str, columns: Sequence[str], read_of_output: Callable[[], frozenset[str]]
    ) -> frozenset[str]:
        selects = [select for select in branches(self.query, self.inputs) if select.input == input_name]
        return frozenset().union(*(select.plan([*columns]).read for select in selects))

    @property
    def definition(self) -> dict[str, Any]:
        return {"sql": self.query}


class SqlOperator(SelectSpec):
    """A row-wise SELECT over one input, or several SELECTs combined by UNION ALL.

    Attributes:
        uid: name of the operator: `[a-z][a-z0-9_]{0,62}` without `__`, unique among sources and operators.
        inputs: names of sources and operators, each once. At least one SELECT must read each.
        sql: Spark SQL, `SELECT … FROM input WHERE …`, where FROM names an input. Several SELECTs are combined by
            `UNION ALL`, whose result has no key. `explode(x) AS name` in a SELECT makes one row per value of a list.
    """

    kind: Literal["sql"]
    sql: Text

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule(
        "that of its input, if the column keeps its name; otherwise none"
    )

    @property
    def query(self) -> str:
        return self.sql


def _selected(select: Branch, rows: OutputRows) -> OutputRows:
    """Return the rows of one SELECT. Raises SqlProblem."""
    sql, name = select.sql, select.input
    if not rows.columns_known:
        check_row_wise(sql, name)
        check_semantics(sql, name, {})
        has_filter = parse_select(sql).tree.args.get("where") is not None
        return replace(rows, deletes=rows.kind != APPEND and (rows.deletes or has_filter))
    plan = select.plan(list(rows.columns))
    check_semantics(sql, name, rows.columns)
    columns: Columns = {}
    for column, _ in plan.columns:
        origin = plan.passthrough.get(column)
        columns[column] = rows.columns[origin] if origin is not None else None
    keeps_time = plan.passthrough.get(rows.event_time or "") == rows.event_time
    key = rows.key if all(plan.passthrough.get(column) == column for column in rows.key) else ()
    if plan.exploded is not None:
        key = ()  # several rows may have the same key
        type_ = rows.type_of(plan.exploded.column)
        if type_ is not None and type_.element is None:
            raise SqlProblem(f"explode takes a list, but {plan.exploded.column} is {type_}")
        columns[plan.exploded.name] = None if type_ is None else type_.element
    event_time = rows.event_time if keeps_time else None
    output = OutputRows(columns, event_time, rows.kind, key, shift_us=rows.shift_us, repeats_keys=rows.repeats_keys)
    return output if rows.kind == APPEND else _updated(output, rows, plan)


def _updated(output: OutputRows, rows: OutputRows, plan: SqlPlan) -> OutputRows:
    """Return the output of a SELECT over updates: updates if it keeps the key, otherwise retractions."""
    # Over updates by `city`:
    #   SELECT city AS town, n FROM totals           updates by `town`
    #   SELECT city, n FROM totals WHERE n > 9       updates by `city`, with deletes
    #   SELECT n FROM totals                         retract
    if rows.kind == RETRACTIONS:
        return replace(output, deletes=True)
    key = _selected_key(rows.key, plan.passthrough) if plan.exploded is None else None
    if key is None:
        return replace(output, kind=RETRACTIONS, key=(), deletes=True)
    return replace(output, key=key, deletes=rows.deletes or plan.filter_sql is not None)


def _selected_key(key: Sequence[str], passthrough: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the output names of the key columns; None if one of them is not selected."""
    output_key = []
    for column in key:
        names = [new for new, origin in passthrough.items() if origin == column]
        if not names:
            return None
        output_key.append(column if column in names else names[0])
    return tuple(output_key)


def _union(selected: Sequence[tuple[str, OutputRows]]) -> OutputRows:
    """Return the rows of a UNION ALL, which have no key: append, or retract if one of the SELECTs is over updates.

    They have an event time if all SELECTs have the same one at the same position.

    Raises:
        SqlProblem: the SELECTs have different numbers of columns.
    """
    (first_name, first), *others = selected
    known = all(rows.columns_known for _, rows in selected)
    for name, rows in others:
        if known and len(rows.columns) != len(first.columns):
            message = "all SELECTs of a UNION ALL must have the same number of columns: that of"
            raise SqlProblem(f"{message} {first_name} has {len(first.columns)}, that of {name} has {len(rows.columns)}")
    times = {(rows.event_time, rows.shift_us, _time_position(rows)) for _, rows in selected}
    event_time = first.event_time if len(times) == 1 else None
    kind = APPEND if all(rows.kind == APPEND for _, rows in selected) else RETRACTIONS
    deletes = kind == RETRACTIONS
    if not known:
        return OutputRows({}, event_time, kind, (), columns_known=False, shift_us=first.shift_us, deletes=deletes)
    types = zip(*(rows.columns.values() for _, rows in selected), strict=True)
    columns = {
        name: of_all[0] if len(set(of_all)) == 1 else None for name, of_all in zip(first.columns, types, strict=True)
    }
    return OutputRows(columns, event_time, kind, (), shift_us=first.shift_us, deletes=deletes)


def _time_position(rows: OutputRows) -> int | None:
    """Return the position of the event time among the columns, or None if there is none or it is not known."""
    return list(rows.columns).index(rows.event_time) if rows.event_time in rows.columns else None
