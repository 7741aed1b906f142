"""Source formats take the options of their pyarrow readers, by their names."""

from __future__ import annotations

from milepost.spec.values.names import did_you_mean

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


def option_problem(format_: str, name: str, value: object) -> str | None:
    """Return why the format does not take this option with this value, or None."""
    known = OPTIONS[format_]
    if name not in known:
        return f"unknown option `{name}` of format {format_}; {did_you_mean(name, known)}"
    return None if _fits(value, known[name]) else f"expected {known[name]}, got {value!r}"


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
