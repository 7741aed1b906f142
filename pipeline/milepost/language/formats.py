"""Reader options and column types that each source format supports."""

from __future__ import annotations

from milepost.language.names import did_you_mean
from milepost.language.types import ColumnType

_TEXTS, _TEXT, _CHARACTER, _FLAG, _COUNT = "a list of strings", "a string", "one character", "true or false", "a count"
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
"""Format -> pyarrow option -> description of its values."""


_ALIASES = {
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
"""Option name in Spark, pandas or DuckDB, in lower case -> pyarrow option."""


def find_option(name: str) -> str | None:
    """Return the pyarrow option with this name, or with this name in another library; None if there is none."""
    option = _ALIASES.get(name.casefold(), name)
    return option if any(option in options for options in OPTIONS.values()) else None


def option_problem(format_: str, name: str, value: object) -> str | None:
    """Return why the format does not accept this option with this value, or None."""
    options = OPTIONS[format_]
    if name not in options:
        return f"unknown option `{name}` of format {format_}; {did_you_mean(find_option(name) or name, options)}"
    return None if _is_valid(value, options[name]) else f"expected {options[name]}, got {value!r}"


def format_type_problem(format_: str, type_: ColumnType) -> str | None:
    """Return why the format cannot have a column of this type, or None."""
    if format_ == "csv" and type_.is_nested:
        return f"format csv cannot hold a {type_}"
    inner = _first_time_type(type_) if format_ == "json" and type_.is_nested else None
    if inner is None:
        return None
    return (
        f"{inner} inside a {type_.kind} is not available in this version for format json; declare it as string and "
        "convert it in SQL"
    )


def _first_time_type(type_: ColumnType) -> ColumnType | None:
    if type_.kind in ("date", "timestamp"):
        return type_
    inner = [type_.element] if type_.element is not None else [field for _, field in type_.fields]
    return next((time for time in map(_first_time_type, inner) if time is not None), None)


def _is_valid(value: object, expected: str) -> bool:
    if expected == _TEXTS:
        return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)
    if expected == _FLAG:
        return isinstance(value, bool)
    if expected == _COUNT:
        return isinstance(value, int) and not isinstance(value, bool) and value >= 0
    if expected == _TEXT:
        return isinstance(value, str) and bool(value)
    return (isinstance(value, str) and len(value) == 1) or (expected == _CHARACTER_OR_FALSE and value is False)
