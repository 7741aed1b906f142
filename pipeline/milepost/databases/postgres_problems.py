"""Classify errors of a Postgres database, and describe them without secrets and without values of rows."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

import psycopg
from psycopg import errors

_DENIED = (
    "password authentication failed", "no password supplied", "pg_hba.conf", "does not exist",
    "not permitted to log in", "certificate", "ssl", "could not translate host name", "permission denied for database",
    "name or service not known", "no address associated",
)  # fmt: skip
"""Parts of libpq's messages, in lower case, for a connection that cannot succeed as it is configured."""

_CONFIGURED = ("28", "3D", "3F", "0A")
_PASSING = ("08", "40", "53", "55", "57", "58")
_NOT_THERE = (errors.UndefinedTable, errors.UndefinedColumn, errors.DuplicateTable, errors.DuplicateObject)
_QUOTES_VALUES = ("22", "P0")
"""Classes with messages that quote written values, or the text of a function."""

_LONGEST = 300


class PostgresProblem(Enum):
    """What an error of a database means.

    Attributes:
        DENIED: the role lacks a right. CONFIGURATION: no connection is possible as it is configured.
        OBJECT_CHANGED: a table or column no longer exists, or exists already. PASSING: no answer, or a lock; trying
            again may succeed. REFUSED: the server refused the statement.
    """

    DENIED = auto()
    CONFIGURATION = auto()
    OBJECT_CHANGED = auto()
    PASSING = auto()
    REFUSED = auto()


def problem_of(error: psycopg.Error) -> PostgresProblem:
    """Return what an error means."""
    state = error.sqlstate or ""
    if isinstance(error, errors.InsufficientPrivilege):
        return PostgresProblem.DENIED
    if state[:2] in _CONFIGURED or (not state and any(words in _text(error).lower() for words in _DENIED)):
        return PostgresProblem.CONFIGURATION
    if isinstance(error, _NOT_THERE):
        return PostgresProblem.OBJECT_CHANGED
    return PostgresProblem.PASSING if not state or state[:2] in _PASSING else PostgresProblem.REFUSED


def describe(error: psycopg.Error, secrets: Iterable[str]) -> str:
    """Return the error on one line: its name, and its message unless that may contain a value of a row.

    Args:
        secrets: texts that it must not contain.
    """
    text = _text(error)
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _text(error: psycopg.Error) -> str:
    name, state = type(error).__name__, error.sqlstate or ""
    if state[:2] in _QUOTES_VALUES:
        return " ".join(filter(None, (name, error.diag.table_name, error.diag.column_name)))
    text = error.diag.message_primary or str(error)
    return f"{name}: {' '.join(text.split())}"[:_LONGEST]
