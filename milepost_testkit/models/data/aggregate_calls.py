"""Aggregate calls as DuckDB SQL with Spark's results. `differences.py` lists where the engines differ."""

from __future__ import annotations

from collections.abc import Mapping

from milepost.language.aggregates import AggregateCall

INTEGERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
FLOATS = ("FLOAT", "DOUBLE")
_ROUNDED = ("var", "stddev")
"""Each engine rounds them in its own way: digits that all of them get right are compared."""


def said(call: AggregateCall, types: Mapping[str, str]) -> str:
    """Return the SQL expression of one call. First and last are ordered by event time.

    Args:
        types: DuckDB types of the input columns.
    """
    where = "true" if call.where is None else f'"{call.where}"' if call.condition is None else f"({call.condition})"
    if call.distinct:
        return f'count(DISTINCT "{call.column}") FILTER ({where})'
    if call.column is None:
        return f"count(*) FILTER ({where})"
    column, only = f'"{call.column}"', f"FILTER ({where})"
    if call.by is not None:
        order = "ASC NULLS FIRST" if call.function == "arg_min" else "DESC NULLS LAST"
        return (
            f'first({column} ORDER BY "{call.by}" {order}, {column} {order}) FILTER ({where} AND "{call.by}" NOTNULL)'
        )
    if call.function in _ROUNDED:
        return digits(f"{call.function}_samp({column}) {only}")
    if _rounds(call, types):
        return digits(f"avg({column}) {only}")
    if call.function in ("any", "every"):
        return f"bool_{'or' if call.function == 'any' else 'and'}({column}) {only}"
    if call.function == "sum":
        if types[call.column] in INTEGERS:
            return f"CAST(sum({column}) {only} AS BIGINT)"
        return f"{'fsum' if types[call.column] in FLOATS else 'sum'}({column}) {only}"
    return f"{call.function}({column}) {only}"


def shown(aggregates: Mapping[str, AggregateCall], types: Mapping[str, str]) -> str:
    """Return the columns of an operator's output as `said` computes them. types: as in `said`."""
    return ", ".join(
        f'{digits(_name(name))} AS "{name}"' if _rounds(call, types) else _name(name)
        for name, call in aggregates.items()
    )


def _rounds(call: AggregateCall, types: Mapping[str, str]) -> bool:
    """Whether the result is a quotient of floats, as the mean of decimals is, which engines round differently."""
    return call.function in _ROUNDED or (call.function == "avg" and types[str(call.column)] == "DECIMAL")


def _name(column: str) -> str:
    return f'"{column}"'


def digits(value: str) -> str:
    """Return the SQL of the first 12 digits of a float, which do not depend on the order of additions."""
    return f"printf('%.11e', {value})"
