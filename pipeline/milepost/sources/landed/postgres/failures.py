"""Typed errors of a Postgres source. They contain no secrets and no row values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import errors

from milepost.databases import PostgresProblem, PostgresTarget, describe, problem_of
from milepost.errors import (
    CheckpointError,
    EnvironmentUnusable,
    InvalidRequest,
    SourceUnreachable,
)
from milepost.sources.landed.contract import NOTHING_LANDED


@dataclass(frozen=True)
class Failures:
    """Makes the errors of one source.

    Attributes:
        source: its name. table, slot: for messages.
    """

    source: str
    table: str
    slot: str

    @contextmanager
    def translated(self, target: PostgresTarget) -> Iterator[None]:
        """Translate errors of psycopg that the block raises. Milepost's own errors pass through."""
        try:
            yield
        except CheckpointError:
            raise
        except psycopg.Error as error:
            raise self._of(error, target) from None  # its details may quote rows

    def _of(self, error: psycopg.Error, target: PostgresTarget) -> CheckpointError:
        reason, problem = describe(error, target.secrets), problem_of(error)
        if isinstance(error, errors.ConfigurationLimitExceeded):
            return self.unusable(
                f"{target.name} has no replication slot left ({reason})",
                "drop slots that nothing reads (SELECT * FROM pg_replication_slots), or raise max_replication_slots",
            )
        if isinstance(error, errors.ObjectInUse):
            return self.unreachable(
                f"slot {self.slot} in {target.name} is in use ({reason})",
                "another landing of this source is running: land again. If it is no landing of this source, stop it",
            )
        if isinstance(error, errors.LockNotAvailable):
            return self.unreachable(
                f"{target.name} did not get a lock in time ({reason})",
                "land again. A slot is created once all transactions that are open have ended: see pg_stat_activity",
            )
        if problem is PostgresProblem.DENIED:
            return self.unusable(
                f"{target.name} denied access ({reason})",
                f'as an administrator: ALTER ROLE "{target.user}" REPLICATION; GRANT SELECT ON {self.table} TO '
                f'"{target.user}", and USAGE on its schema',
            )
        if problem is PostgresProblem.CONFIGURATION:
            return self.unusable(
                f"no connection to {target.name} is possible as configured ({reason})",
                "correct host, user, password and database of the source's `dsn` or `conn_id`",
            )
        if problem is PostgresProblem.OBJECT_CHANGED:
            return self.invalid(
                f"table {self.table} in {target.name} has changed ({reason})",
                "correct `schema` or the table, then land again: it is read from the same position",
            )
        if problem is PostgresProblem.PASSING:
            return self.unreachable(
                f"{target.name} did not answer ({reason})",
                "check that it is up and reachable from this machine, then land again",
            )
        return self.unreachable(f"{target.name} refused a statement ({reason})", "land again; see the server's log")

    def unreachable(self, what: str, hint: str) -> SourceUnreachable:
        """Return the error for a failure that may be temporary."""
        return SourceUnreachable(f"source {self.source}: {what}. {NOTHING_LANDED}", hint=hint, source=self.source)

    def unusable(self, what: str, hint: str) -> EnvironmentUnusable:
        """Return the error for a server that an administrator must change."""
        return EnvironmentUnusable(
            f"source {self.source}: {what}. {NOTHING_LANDED}", hint=f"{hint}, then land again", source=self.source
        )

    def invalid(self, what: str, hint: str) -> InvalidRequest:
        """Return the error for a table that cannot be landed as the spec says."""
        return InvalidRequest(f"source {self.source}: {what}. {NOTHING_LANDED}", hint=hint, source=self.source)

    def unknown_copy(self, table: object) -> InvalidRequest:
        """Return the error for an initial copy whose rows the server may have lost since."""
        return self.invalid(
            f"table {table}: its initial copy may have rows that the server has lost since",
            "give the source another name in the spec, which copies the table again",
        )
