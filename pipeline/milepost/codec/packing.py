"""Pack lists of similar records into columns, so that shared values are stored once.

Works on JSON values, before the strict reader sees them. A column is one of

* ``{"all": value}``: every record has this value,
* ``{"of": {field: column}}``, ``{"of": [columns]}``: every record is an object with these fields, or a list of these,
* ``{"steps": [integers]}``: the first record's integer, then the difference of each record to the one before it,
* ``{"each": [values]}``: one value per record; with ``"text": [prefix, suffix]``, the text between the two.

For example, these three records::

    {"id": 7,  "at": 100, "sinks": ["a"], "file": "chk-7/x"}
    {"id": 8,  "at": 130, "sinks": ["a"], "file": "chk-8/x"}
    {"id": 10, "at": 190, "sinks": ["a"], "file": "chk-10/x"}

become::

    {"of": {"id": {"steps": [7, 1, 2]}, "at": {"steps": [100, 30, 60]}, "sinks": {"all": ["a"]},
            "file": {"each": ["7", "8", "10"], "text": ["chk-", "/x"]}}}

A handle whose key contains its digest stores the digest once: ``{"key": "inputs/{sha256}.json", "sha256": …, "size":
…}``. Braces cannot occur in the key of a handle otherwise: `layout` makes keys from validated names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

Column: TypeAlias = dict[str, object]

_HANDLE = {"key", "sha256", "size"}
_DIGEST = "{sha256}"


def shorten_handles(value: Any) -> Any:
    """Return a JSON value that contains the digest of each handle only once."""
    return _with_keys(value, lambda key, digest: key.replace(digest, _DIGEST))


def expand_handles(value: Any) -> Any:
    """Undo `shorten_handles`."""
    return _with_keys(value, lambda key, digest: key.replace(_DIGEST, digest))


def _with_keys(value: object, change_key: Callable[[str, str], str]) -> object:
    if isinstance(value, list):
        return [_with_keys(item, change_key) for item in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"key": str(key), "sha256": str(digest)} if digest and value.keys() == _HANDLE:
            return {**value, "key": change_key(key, digest)}
    return {name: _with_keys(item, change_key) for name, item in value.items()}


def pack(records: list[object]) -> list[object] | Column:
    """Return a list of records as a column, or unchanged if a column is not shorter or would lose their number."""
    column = _column(records) if records else {}
    return column if "of" in column else records


def unpack(stored: Any) -> Any:
    """Undo `pack`; anything but an object is returned unchanged. Raises ValueError: it is not a valid column."""
    if not isinstance(stored, dict):
        return stored
    counts = set(_counts(stored))
    if len(counts) != 1:
        raise ValueError(f"expected columns of one length, got lengths {sorted(counts)}")
    return _values(stored, counts.pop())


def _column(values: Sequence[Any]) -> Column:
    first = values[0]
    if all(isinstance(value, dict) and value.keys() == first.keys() for value in values):
        columns = {name: _column([value[name] for value in values]) for name in first}
        return {"of": columns} if _differs(columns.values()) else {"all": first}
    if all(isinstance(value, list) and len(value) == len(first) for value in values):
        parts = [_column(part) for part in zip(*values, strict=True)]
        return {"of": parts} if _differs(parts) else {"all": first}
    if len({repr(value) for value in values}) == 1:
        return {"all": first}
    if all(type(value) is int for value in values):
        return {"steps": [first, *(after - before for before, after in pairwise(values))]}
    if not all(isinstance(value, str) for value in values):
        return {"each": list(values)}
    prefix = _common_prefix(values)
    rests = [text[len(prefix) :] for text in values]
    suffix = _common_prefix([rest[::-1] for rest in rests])[::-1]
    return {"each": [rest[: len(rest) - len(suffix)] for rest in rests], "text": [prefix, suffix]}


def _differs(columns: Iterable[Column]) -> bool:
    return any("all" not in column for column in columns)


def _common_prefix(texts: Sequence[str]) -> str:
    least, greatest = min(texts), max(texts)
    return next((least[:at] for at, letter in enumerate(least) if letter != greatest[at]), least)


def _counts(column: object) -> Sequence[int]:
    """Return the lengths of all columns of values within a column. Raises ValueError: it is not a column."""
    match column:
        case {"all": _, **rest} if not rest:
            return ()
        case {"of": dict(columns), **rest} if not rest:
            return [count for column in columns.values() for count in _counts(column)]
        case {"of": list(columns), **rest} if not rest:
            return [count for column in columns for count in _counts(column)]
        case {"steps": list(steps), **rest} if not rest and all(type(step) is int for step in steps):
            return (len(steps),)
        case {"each": list(values), "text": [str(), str()], **rest} if not rest and all(
            isinstance(value, str) for value in values
        ):
            return (len(values),)
        case {"each": list(values), **rest} if not rest:
            return (len(values),)
    raise ValueError("expected a column: `all`, `of`, `steps`, or `each`")


def _values(column: Column, count: int) -> list[object]:
    match column:
        case {"of": dict(columns)}:
            fields = {name: _values(column, count) for name, column in columns.items()}
            return [{name: values[index] for name, values in fields.items()} for index in range(count)]
        case {"of": list(columns)}:
            return [list(parts) for parts in zip(*(_values(column, count) for column in columns), strict=True)]
        case {"steps": list(steps)}:
            return list(accumulate(steps))
        case {"each": list(values), "text": [prefix, suffix]}:
            return [f"{prefix}{value}{suffix}" for value in values]
        case {"each": list(values)}:
            return values
    return [column["all"]] * count
