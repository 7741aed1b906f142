"""SQL rules derive the rows that a row-wise SELECT, or a UNION ALL of several, makes of others.

Over updates a SELECT that keeps the key gives updates by it. One that does not, has an explode, or is of a UNION ALL,
gives rows that come and are taken back, for operators that read updates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from milepost.spec.graph.rules.node import (
    APPEND,
    RETRACTIONS,
    Columns,
    OutputRows,
    nanosecond_problems,
)
from milepost.spec.job.spec import SqlOperator
from milepost.spec.sql.plan import SqlPlan
from milepost.spec.sql.semantics import check_semantics
from milepost.spec.sql.sql import check_row_wise
from milepost.spec.sql.sql_parse import SqlProblem, parse_select
from milepost.spec.sql.union import Branch, branches
from milepost.spec.values.problems import Path, Problem


def sql_rows(operator: SqlOperator, inputs: Mapping[str, OutputRows], path: Path) -> OutputRows | list[Problem]:
    """A row-wise SELECT keeps the event time only under its own name, and a key only when all of it stays.

    Over updates a row that WHERE drops is a delete of its key.
    """
    problems = []
    try:
        selects = branches(operator.sql, [*inputs])
        selected = [(one.input, _selected(one, inputs[one.input])) for one in selects]
        rows = selected[0][1] if len(selected) == 1 else _union(selected)
    except SqlProblem as problem:
        return [Problem((*path, "sql"), str(problem))]
    for index, (name, of_input) in enumerate(inputs.items()):
        problems += nanosecond_problems(name, of_input, (*path, "inputs", index)) if of_input.known else []
    return problems or rows


def _selected(select: Branch, rows: OutputRows) -> OutputRows:
    """Return the rows of one SELECT. Raises SqlProblem."""
    sql, name = select.sql, select.input
    if not rows.known:
        check_row_wise(sql, name)
        check_semantics(sql, name, {})
        drops = parse_select(sql).tree.args.get("where") is not None
        return replace(rows, deletes=rows.kind != APPEND and (rows.deletes or drops))
    plan = select.plan(list(rows.columns))
    check_semantics(sql, name, rows.columns)
    columns: Columns = {}
    for column, _ in plan.columns:
        origin = plan.passthrough.get(column)
        columns[column] = rows.columns[origin] if origin is not None else None
    kept = plan.passthrough.get(rows.event_time or "") == rows.event_time
    key = rows.key if all(plan.passthrough.get(column) == column for column in rows.key) else ()
    if plan.exploded is not None:
        key = ()  # several rows may have it
        type_ = rows.type_of(plan.exploded.column)
        if type_ is not None and type_.element is None:
            raise SqlProblem(f"explode takes a list, and {plan.exploded.column} is {type_}")
        columns[plan.exploded.name] = None if type_ is None else type_.element
    made = OutputRows(columns, rows.event_time if kept else None, rows.kind, key, shift_us=rows.shift_us)
    return made if rows.kind == APPEND else _updated(made, rows, plan)


def _updated(made: OutputRows, rows: OutputRows, plan: SqlPlan) -> OutputRows:
    """Return what a SELECT makes of updates: updates by their key, where it stays, else rows without one."""
    if rows.kind == RETRACTIONS:
        return replace(made, deletes=True)
    key = _traced_key(rows.key, plan.passthrough) if plan.exploded is None else None
    if key is None:
        return replace(made, kind=RETRACTIONS, key=(), deletes=True)
    return replace(made, key=key, deletes=rows.deletes or plan.filter_sql is not None)


def _traced_key(key: Sequence[str], passthrough: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return under which names the columns of a key stay; None: one of them does not."""
    found = []
    for column in key:
        names = [new for new, origin in passthrough.items() if origin == column]
        if not names:
            return None
        found.append(column if column in names else names[0])
    return tuple(found)


def _union(selected: Sequence[tuple[str, OutputRows]]) -> OutputRows:
    """Return the rows of a UNION ALL: no key; an event time where all of them have the same one in the same place.

    Of updates each row is taken back for itself. Raises SqlProblem: they have not the same number of columns.
    """
    (first_name, first), *others = selected
    known = all(rows.known for _, rows in selected)
    for name, rows in others:
        if known and len(rows.columns) != len(first.columns):
            message = f"each SELECT of a UNION ALL gives as many columns: that of {first_name} gives"
            raise SqlProblem(f"{message} {len(first.columns)}, one of {name} {len(rows.columns)}")
    times = {(rows.event_time, rows.shift_us, _place(rows)) for _, rows in selected}
    event_time = first.event_time if len(times) == 1 else None
    kind = APPEND if all(rows.kind == APPEND for _, rows in selected) else RETRACTIONS
    deletes = kind == RETRACTIONS
    if not known:
        return OutputRows({}, event_time, kind, (), known=False, shift_us=first.shift_us, deletes=deletes)
    types = zip(*(rows.columns.values() for _, rows in selected), strict=True)
    columns = {
        name: of_all[0] if len(set(of_all)) == 1 else None for name, of_all in zip(first.columns, types, strict=True)
    }
    return OutputRows(columns, event_time, kind, (), shift_us=first.shift_us, deletes=deletes)


def _place(rows: OutputRows) -> int | None:
    """Return where the event time stands among the columns, as far as they are known."""
    return list(rows.columns).index(rows.event_time) if rows.event_time in rows.columns else None
