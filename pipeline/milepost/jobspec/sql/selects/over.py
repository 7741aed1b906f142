"""Compile functions with OVER into an `over` operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from milepost.jobspec.sql.emit import Column, Emitter
from milepost.jobspec.sql.joins import Frame
from milepost.jobspec.sql.names import Output, Reference, Scope
from milepost.jobspec.sql.selects.ranking import Ranking
from milepost.jobspec.sql.text import (
    SPLIT_QUERY,
    Fragment,
    Over,
    Select,
    Tokens,
    aggregate_calls,
    digest,
    read_over,
    window_calls,
)
from milepost.language.sql import quote
from milepost.operators.base import APPEND
from milepost.operators.over import RANKS, OverCall

_NO_KEY = (
    "these rows have no key by which their values could be replaced: read the newest row per key (QUALIFY row_number() "
    "OVER (PARTITION BY key ORDER BY time DESC) = 1), the rows of a GROUP BY, or SELECT DISTINCT"
)
_KEY_RETURNS = (
    "these rows may return, because a SELECT DISTINCT with a ttl forgets rows; remove `milepost.ttl` (of an operator "
    "of the spec, `ttl`), or read the newest row per key (QUALIFY row_number() OVER (PARTITION BY key ORDER BY time "
    "DESC) = 1)"
)


_ELSEWHERE = {
    "ON": "join on it in",
    "WHERE": "filter by it in",
    "GROUP BY": "group by it in",
    "HAVING": "filter by it in the WHERE of",
    "ORDER BY": "order by it in",
    "LATERAL VIEW": "explode it in",
}
"""Clause without functions with OVER -> what to do with their values there."""


def check_over_clauses(select: Select) -> None:
    """Raise SqlProblem for a function with OVER in a clause that is evaluated before such functions, as in Spark."""
    runs = [("WHERE", run) for run in select.where] + [("GROUP BY", run) for run in select.group]
    runs += [("HAVING", select.having)] if select.having is not None else []
    runs += [("ORDER BY", select.order)] if select.order is not None and select.limit is not None else []
    for item in select.relations:
        runs += [("WHERE", run) for run in item.conditions] + ([] if item.on is None else [("ON", item.on)])
        runs += [("LATERAL VIEW", item.tokens)] if item.join == "explode" else []
    for clause, run in runs:
        for name_at, _, _ in window_calls(run):
            name = run.word(name_at).lower()
            first = "put the GROUP BY into a common table expression, " if clause == "HAVING" else ""
            table = "another one" if first else "a common table expression"
            message = f"{name} with OVER is not available in {clause}; {first}select it AS a column of {table}, and "
            raise run.problem(f"{message}{_ELSEWHERE[clause]} a query that reads it", name_at)


def check_over(outputs: Sequence[Output], ranking: Ranking | None, *, is_grouped: bool) -> None:
    """Raise SqlProblem if a SELECT has functions with OVER next to GROUP BY, QUALIFY or LIMIT."""
    for output in outputs:
        if not output.has_over or (ranking is not None and output.is_rank):
            continue
        if ranking is not None:
            raise output.run.problem("QUALIFY or LIMIT in a SELECT with functions with OVER: put one of them into a "
                                     "common table expression")  # fmt: skip
        aggregates = aggregate_calls(output.run)
        if is_grouped or aggregates:
            at = aggregates[0].tokens if aggregates else output.run
            raise at.problem(SPLIT_QUERY.format("GROUP BY"))


@dataclass
class OverCompiler:
    """Compiles the functions with OVER of one SELECT.

    The step before the operator has the columns that the SELECT list reads, and the expressions that the functions
    read. So state does not depend on other expressions of the SELECT list.

    Attributes:
        warnings: (tokens, text), for `lint`. columns: of the step before the operator.
        names: tokens of a call -> the column with its values.
    """

    # SELECT id, price * 2 AS twice, price - lag(price) OVER (PARTITION BY lower(seller) ORDER BY at) AS more FROM sales
    # __rows   id, price, at, lower(seller) AS key_…
    # __over   over_… = lag(price)
    # then     id, price * 2 AS twice, price - over_… AS more
    emitter: Emitter
    scope: Scope
    frame: Frame
    at: Tokens
    warnings: list[tuple[Tokens, str]]
    columns: dict[str, Column] = field(default_factory=dict)
    names: dict[tuple[str, ...], str] = field(default_factory=dict)

    def compile(
        self, uid: str, step: str, outputs: Sequence[Output], where: Sequence[Fragment]
    ) -> tuple[str, list[Column]]:
        """Add the step that computes expressions, and the operator; return its uid and the output columns."""
        calls = {call.tokens.normalized: call for output in outputs for call in _calls(output)}
        first, *others = calls.values()
        for call in others:
            if call.partition_and_order != first.partition_and_order:
                message = "functions with OVER of one SELECT must have the same PARTITION BY and ORDER BY; put "
                raise call.tokens.problem(f"{message}the others into a common table expression")
        unique, rows = self.emitter.unique_of(self.frame.node), self.emitter.read(self.frame.node)
        if unique is None:
            no_key = _KEY_RETURNS if rows.key and rows.repeats_keys else _NO_KEY
            is_rank = first.function in RANKS
            raise first.tokens.problem(f"write QUALIFY … <= n for the first rows; {no_key}" if is_rank else no_key)
        for name in (*unique, *(rows.key if rows.kind != APPEND else ())):
            self._add(Column.plain(name, self.at.start))
        if not first.partition:
            self.warnings.append((first.tokens, "OVER without PARTITION BY runs in one task"))
        functions: dict[str, str] = {}
        key = sorted({self._column(run, "key") for run in first.partition})
        order: dict[str, bool] = {}
        for run, descends in first.order:
            order.setdefault(self._column(run, "order"), descends)
        for text, call in calls.items():
            column = None if call.argument is None else self._column(call.argument, "arg")
            function = str(OverCall(call.function, column, call.distance, call.frame))
            self.names[text] = self.emitter.label(f"over_{digest([function])}", call.tokens)
            functions[self.names[text]] = function
        columns = [self._output(output) for output in outputs]
        self.emitter.sql(step, self.frame.node, [self.columns[name] for name in sorted(self.columns)], where, self.at)
        operator: dict[str, object] = {"uid": uid, "kind": "over", "inputs": [step], "key": key}
        if order:
            operator["order_by"] = [{name: "desc"} if descends else name for name, descends in order.items()]
        operator |= {"row_key": sorted(unique), "functions": {name: functions[name] for name in sorted(functions)}}
        self.emitter.add(operator, first.tokens)
        self.emitter.unique[uid] = unique
        return uid, columns

    def _add(self, column: Column) -> str:
        self.columns.setdefault(column.name, column)
        return column.name

    def _read(self, reference: Reference) -> str:
        """Return the column of a reference, which the step before the operator passes on."""
        return self._add(Column.plain(self.frame.name(reference), self.at.start))

    def _column(self, run: Tokens, prefix: str) -> str:
        """Return the column with the value of an expression."""
        reference = self.scope.column(run)
        if reference is not None:
            return self._read(reference)
        text = self.scope.rewritten(run, self.frame.name)
        return self._add(Column(self.emitter.label(f"{prefix}_{text.digest}", run), text))

    def _output(self, output: Output) -> Column:
        """Return an output column, with the columns of the operator in place of its functions."""
        if output.reference is not None:
            return Column.plain(output.name, output.run.start, self._read(output.reference))
        if not output.has_over:  # lower(seller) AS seller next to PARTITION BY lower(seller) is the key of the rows
            value = self.scope.rewritten(output.run, self.frame.name).digest
            computed = next((column.name for column in self.columns.values() if column.text.digest == value), None)
            if computed is not None:
                return Column.plain(output.name, output.run.start, computed)
        edits = [
            (call.tokens.start, int(call.tokens.items[-1].end), quote(self.names[call.tokens.normalized]))
            for call in _calls(output)
        ]
        return Column(output.name, self.scope.rewritten(output.run, self._read, edits))


def _calls(output: Output) -> list[Over]:
    return read_over(output.run) if output.has_over else []
