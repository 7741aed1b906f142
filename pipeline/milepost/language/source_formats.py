"""What the spec of a source may declare, by format: reader options, column types, readers per object."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from milepost.language.names import did_you_mean
from milepost.language.types import ColumnType

_TEXTS, _TEXT, _CHARACTER, _FLAG, _COUNT = "a list of strings", "a string", "one character", "true or false", "a count"
_CHARACTER_OR_FALSE = "one character, or false"

_CSV_OPTIONS = {
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
}
"""pyarrow option -> description of its values."""

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


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """What the spec of a source of one format may declare.

    Attributes:
        name: the format's name in a spec.
        options: option -> description of its values.
        type_problem: returns why no column can have a type, or None.
        indivisible_option: returns the option because of which each object has a single reader, or None.
        has_lines: whether its records are lines of text, so that people find a record by its line. Its reader is a
            `LineReader`.
    """

    name: str
    options: Mapping[str, str]
    type_problem: Callable[[ColumnType], str | None]
    indivisible_option: Callable[[Mapping[str, Any]], str | None]
    has_lines: bool

    def option_problem(self, option: str, value: object) -> str | None:
        """Return why the format does not accept this option with this value, or None."""
        if option not in self.options:
            suggestion = did_you_mean(find_option(option) or option, self.options)
            return f"unknown option `{option}` of format {self.name}; {suggestion}"
        expected = self.options[option]
        return None if _is_valid(value, expected) else f"expected {expected}, got {value!r}"


def find_option(name: str) -> str | None:
    """Return the pyarrow option with this name, or with this name in another library; None if there is none."""
    option = _ALIASES.get(name.casefold(), name)
    return option if any(option in format_.options for format_ in SOURCE_FORMATS.values()) else None


def records_are_lines(options: Mapping[str, Any]) -> bool:
    """Return whether no CSV value can contain a newline.

    If values may be quoted, `newlines_in_values` must be false.
    """
    may_quote = bool(options.get("quote_char", '"')) and bool(options.get("newlines_in_values", True))
    return not may_quote and not options.get("escape_char")


def _indivisible_csv_option(options: Mapping[str, Any]) -> str | None:
    """Return the option that prevents finding record boundaries from the middle of a CSV object, or None."""
    if options.get("escape_char"):
        return "escape_char"
    if not records_are_lines(options):
        return "newlines_in_values"
    with suppress(LookupError):
        if codecs.lookup(str(options.get("encoding", "utf-8"))).name == "utf-8":
            return None
    return "encoding"


def _csv_type_problem(type_: ColumnType) -> str | None:
    return f"format csv cannot hold a {type_}" if type_.is_nested else None


def _json_type_problem(type_: ColumnType) -> str | None:
    inner = _first_time_type(type_) if type_.is_nested else None
    if inner is None:
        return None
    return (
        f"{inner} inside a {type_.kind} is not available in this version for format json; declare it as string and "
        "convert it in SQL"
    )


def _no_problem(_: object) -> None:
    return None


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


SOURCE_FORMATS = {
    format_.name: format_
    for format_ in (
        SourceFormat("csv", _CSV_OPTIONS, _csv_type_problem, _indivisible_csv_option, has_lines=True),
        SourceFormat("json", {}, _json_type_problem, _no_problem, has_lines=True),
        SourceFormat("parquet", {}, _no_problem, _no_problem, has_lines=False),
    )
}
"""Format of a source -> what its spec may declare. `milepost.sources.formats` has the readers."""
