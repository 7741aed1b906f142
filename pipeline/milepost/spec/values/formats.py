"""What source formats take: options of their pyarrow readers, by their names there, and types of columns."""

from __future__ import annotations

from milepost.spec.values.names import did_you_mean
from milepost.spec.values.types import ColumnType

_TEXTS, _TEXT, _CHARACTER, _FLAG, _COUNT = "a list of texts", "a text", "one character", "true or false", "a count"
_CHARACTER_OR_FALSE = "one character, or false"

OPTIONS: dict[str, dict[str, str]] = {
    "csv": {
        "null_values": _TEXTS,
        "true_values": _TEXTS,
        "false_values": _TEXTS,
        "strings_can_be_null": _FLAG,
        "quoted_strings_can_be_null": _FLAG,
        "delimiter": _CHARACTER,
        "quote_char": _CHARACTER_OR_FALSE,
        "double_quote": _FLAG,
        "escape_char": _CHARACTER_OR_FALSE,
        "newlines_in_values": _FLAG,
        "decimal_point": _CHARACTER,
        "timestamp_parsers": _TEXTS,
        "column_names": _TEXTS,
        "skip_rows": _COUNT,
        "encoding": _TEXT,
    },
    "json": {},
    "parquet": {},
}
"""Format -> option name -> what its value must be."""


_CALLED_ELSEWHERE = {
    "sep": "delimiter",
    "separator": "delimiter",
    "quote": "quote_char",
    "quotechar": "quote_char",
    "escape": "escape_char",
    "escapechar": "escape_char",
    "na_values": "null_values",
    "nullvalue": "null_values",
    "decimal": "decimal_point",
    "names": "column_names",
    "header": "column_names",
    "skiprows": "skip_rows",
    "timestampformat": "timestamp_parsers",
    "charset": "encoding",
}
"""Name of an option in Spark, pandas or DuckDB, in lower case -> its name here."""


def option_called(name: str) -> str | None:
    """Return the option of a format that has this name, here or in another library."""
    here = _CALLED_ELSEWHERE.get(name.casefold(), name)
    return here if any(here in options for options in OPTIONS.values()) else None


def option_problem(format_: str, name: str, value: object) -> str | None:
    """Return why the format does not take this option with this value, or None."""
    known = OPTIONS[format_]
    if name not in known:
        return f"unknown option `{name}` of format {format_}; {did_you_mean(option_called(name) or name, known)}"
    return None if _fits(value, known[name]) else f"expected {known[name]}, got {value!r}"


def type_problem(format_: str, type_: ColumnType) -> str | None:
    """Return why no object of the format can have a column of this type, or None."""
    if format_ == "csv" and type_.is_nested:
        return f"format csv cannot hold a {type_}"
    inner = _time_inside(type_) if format_ == "json" and type_.is_nested else None
    if inner is None:
        return None
    return (
        f"{inner} inside a {type_.kind} is not available in this version in format json; declare it as string and "
        "convert it in SQL"
    )


def _time_inside(type_: ColumnType) -> ColumnType | None:
    if type_.kind in ("date", "timestamp"):
        return type_
    inner = [type_.element] if type_.element is not None else [field for _, field in type_.fields]
    return next((found for found in map(_time_inside, inner) if found is not None), None)


def _fits(value: object, expected: str) -> bool:
    if expected == _TEXTS:
        return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    if expected == _FLAG:
        return isinstance(value, bool)
    if expected == _COUNT:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if expected == _TEXT:
        return isinstance(value, str) and bool(value)
    return (isinstance(value, str) and len(value) == 1) or (expected == _CHARACTER_OR_FALSE and value is False)
