"""Decide from CSV options whether every record is exactly one line."""

from __future__ import annotations

import codecs
from collections.abc import Mapping
from contextlib import suppress
from typing import Any


def records_are_lines(options: Mapping[str, Any]) -> bool:
    """Return whether no value can contain a newline. If values may be quoted, `newlines_in_values` must be false."""
    may_quote = bool(options.get("quote_char", '"')) and bool(options.get("newlines_in_values", True))
    return not may_quote and not options.get("escape_char")


def csv_whole_because(options: Mapping[str, Any]) -> str | None:
    """Return the option that prevents finding record boundaries from the middle of a CSV object, or None."""
    if options.get("escape_char"):
        return "escape_char"
    if not records_are_lines(options):
        return "newlines_in_values"
    with suppress(LookupError):
        if codecs.lookup(str(options.get("encoding", "utf-8"))).name == "utf-8":
            return None
    return "encoding"
