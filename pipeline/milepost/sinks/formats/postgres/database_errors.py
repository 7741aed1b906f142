"""Translate database errors into Milepost's errors, without secrets and without values of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from milepost.databases import PostgresProblem, describe, problem_of
from milepost.errors import (
    CheckpointError,
    CommitConflict,
    EnvironmentUnusable,
    InvalidRequest,
    StoreUnavailable,
)


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
        reason = describe(error, secrets)
        raise _translate(problem_of(error), reason, sink, where, failure) from None  # its details quote rows


def _translate(problem: PostgresProblem, reason: str, sink: str, where: str, failure: str) -> CheckpointError:
    if problem is PostgresProblem.DENIED:
        return EnvironmentUnusable(
            f"{failure}: {where} denied access ({reason}).",
            hint="GRANT the sink's user that right; it must own the table, with CREATE and USAGE on its schema",
            sink=sink,
        )
    if problem is PostgresProblem.CONFIGURATION:
        return EnvironmentUnusable(
            f"{failure}: no connection to {where} is possible as configured ({reason}).",
            hint="correct host, user, password and database of the sink's `dsn` or `conn_id`",
            sink=sink,
        )
    if problem is PostgresProblem.OBJECT_CHANGED:
        return CommitConflict(
            f"{failure}: its table in {where} has changed ({reason}).", hint="read it again", sink=sink
        )
    if problem is PostgresProblem.PASSING:
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
