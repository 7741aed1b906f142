"""Values that name one row, as people write them: `city=Bergen day=2026-07-01`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from milepost.errors import InvalidRequest


def row_values(words: Sequence[str]) -> dict[str, str]:
    """Return column -> value of `COLUMN=VALUE` words. Raises InvalidRequest."""
    values = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise InvalidRequest(
                f"expected COLUMN=VALUE, got {word!r}. Nothing was read.",
                hint="Name values of one row, such as those of its key: city=Bergen",
            )
        if name in values:
            raise InvalidRequest(f"column {name} was given twice. Nothing was read.")
        values[name] = value
    return values


def row_of_text(text: str) -> dict[str, str]:
    """Return column -> value of words with quotes as in a shell. Raises InvalidRequest."""
    try:
        words = shlex.split(text)
    except ValueError as error:  # an open quote
        raise InvalidRequest(f"a row cannot be read: {error}. Nothing was read.") from None
    if not words:
        raise InvalidRequest("expected COLUMN=VALUE, got nothing. Nothing was read.")
    return row_values(words)


def names_row(value: object) -> bool:
    """Return whether a value of a form names a row."""
    try:
        return isinstance(value, str) and bool(row_of_text(value))
    except InvalidRequest:
        return False
