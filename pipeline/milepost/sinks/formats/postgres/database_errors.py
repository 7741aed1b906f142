"""Translate database errors into Milepost's errors, without secrets and without values of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    EnvironmentUnusable,
    InvalidRequest,
    StoreUnavailable,
)

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
"""Classes whose messages quote written values, or the text of a function."""

_LONGEST = 300


@contextmanager
def postgres_errors(sink: str, where: str, secrets: frozenset[str], failure: str) -> Iterator[None]:
    """Translate errors of psycopg that the block raises. Milepost's own errors pass through.

    Args:
        where: the database, for messages. failure: what did not happen, as the start of a message.
    """
    try:
        yield
    except CheckpointError:
        raise
    except psycopg.Error as error:
        reason = _describe(error)
        for secret in secrets:
            reason = reason.replace(secret, "***")
        raise _translate(error, reason, sink, where, failure) from None  # its details quote rows


def _translate(error: psycopg.Error, reason: str, sink: str, where: str, failure: str) -> CheckpointError:
    state = error.sqlstate or ""
    if isinstance(error, errors.InsufficientPrivilege):
        return EnvironmentUnusable(
            f"{failure}: {where} denied access ({reason}).",
            hint="GRANT the sink's user that right; it must own the table, with CREATE and USAGE on its schema",
            sink=sink,
        )
    if state[:2] in _CONFIGURED or (not state and any(words in reason.lower() for words in _DENIED)):
        return EnvironmentUnusable(
            f"{failure}: no connection to {where} is possible as configured ({reason}).",
            hint="correct host, user, password and database of the sink's `dsn` or `conn_id`",
            sink=sink,
        )
    if isinstance(error, _NOT_THERE):
        return CommitConflict(
            f"{failure}: its table in {where} has changed ({reason}).", hint="read it again", sink=sink
        )
    if not state or state[:2] in _PASSING:
        return StoreUnavailable(
            f"{failure}: {where} did not answer, or another transaction held a lock too long ({reason}).",
            hint="try again; if it persists, check that it is up and reachable from this machine, and "
            "pg_stat_activity for sessions that hold locks",
            sink=sink,
        )
    return InvalidRequest(
        f"{failure}: {where} refused the statement ({reason}).",
        hint="undo changes to the table by others; `milepost doctor` names them",
        sink=sink,
    )


def _describe(error: psycopg.Error) -> str:
    """Return the error on one line: its name, and its message unless that may contain a value of a row."""
    name, state = type(error).__name__, error.sqlstate or ""
    if state[:2] in _QUOTES_VALUES:
        return " ".join(filter(None, (name, error.diag.table_name, error.diag.column_name)))
    text = error.diag.message_primary or str(error)
    return f"{name}: {' '.join(text.split())}"[:_LONGEST]
