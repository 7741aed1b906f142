"""Replace messages that may quote values of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.protocol.records import QUOTING_REASONS

HIDDEN_VALUES = (
    "Rows and values are shown to users who may trigger this DAG (`airflow.viewers_see_values` of the spec)."
)

HIDDEN_MESSAGE = (
    "the message may quote rows, which are shown to users who may trigger this DAG "
    "(`airflow.viewers_see_values` of the spec)"
)

_QUOTING = frozenset(reason.value for reason in QUOTING_REASONS)
_QUOTING_ERRORS = frozenset({"InvalidRequest", "SourceUnreachable"})
"""Errors of a landing that may quote rows: values that do not fit a schema, and exceptions of a user's reader."""


def hide_message(reason: str | None, message: str | None) -> str | None:
    """Return the message of a failure, or `HIDDEN_MESSAGE` if a message of this kind may quote values of rows."""
    quotes = reason in _QUOTING or reason in _QUOTING_ERRORS
    return HIDDEN_MESSAGE if quotes and message else message


def hide_quotes(text: str) -> str:
    """Replace the text after a reason that may quote values: `a` in `chk 3: BAD_RECORD: a`."""
    found = [f"{name}: " for name in (*_QUOTING, *_QUOTING_ERRORS) if f"{name}: " in text]
    first = min(found, key=text.index, default="")
    return f"{text.partition(first)[0]}{first}{HIDDEN_MESSAGE}" if first else text


def hide_in_log(event: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of the log without data values."""
    shown = dict(event)
    if shown.get("reason") in _QUOTING:
        shown |= {name: HIDDEN_MESSAGE for name in ("detail", "why") if shown.get(name)}
    if "cleared_detail" in shown:
        shown["cleared_detail"] = hide_message(shown.get("cleared_reason"), shown["cleared_detail"])
    return shown
