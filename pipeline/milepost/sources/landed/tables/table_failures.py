"""Errors of a source that is an open table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from milepost.errors import InvalidRequest, PositionExpired, SourceUnreachable, SourceWentBack, StoreUnavailable
from milepost.language import start_time_ms
from milepost.protocol.landed import Position
from milepost.sources.landed.contract import NOTHING_LANDED

P = ParamSpec("P")
R = TypeVar("R")

_CHECK_ACCESS = "check that this machine can read the table, then land again"


@dataclass(frozen=True, slots=True)
class TableFailures:
    """Makes the errors of one source.

    Attributes:
        source: its name. table: kind and location of its table, without secrets, such as `the Delta table s3://lake/t`.
    """

    source: str
    table: str

    def invalid(self, problem: str, hint: str) -> InvalidRequest:
        """Return the error for a table that cannot be read as declared in the spec.

        Args:
            problem: continues the sentence that begins with the table.
        """
        return InvalidRequest(
            f"source {self.source}: {self.table} {problem}. {NOTHING_LANDED}", hint=hint, source=self.source
        )

    def past_start_ms(self, start: str) -> int:
        """Return the time at which a new log begins, in ms. Raises InvalidRequest: it is in the future.

        A log begins at a version, so rows that are appended before a future time would be landed.
        """
        time_ms = start_time_ms(start)
        if time_ms > time.time() * 1000:
            raise self.invalid(f"has no version of `start` yet: {start} is in the future", "choose an earlier time")
        return time_ms

    def refused(self, problem: str, way_out: str = "") -> InvalidRequest:
        """Return the error for a change of the table that a log cannot represent, because logs are append-only.

        Args:
            way_out: a step for the table; "": there is none.
        """
        hint = (
            "give the source another name in the spec, which begins a log of its own: to continue with what follows, "
            "set its `start` to the version or time after the change; to begin again with the whole table, give the "
            "operators that read it new uids and their sinks new tables too, because rows that were processed would "
            "otherwise count twice"
        )
        return self.invalid(problem, f"{way_out}, or {hint}" if way_out else hint)

    def unreachable(self, problem: str, hint: str = _CHECK_ACCESS) -> SourceUnreachable:
        """Return the error for a table that did not answer."""
        return SourceUnreachable(
            f"source {self.source}: {self.table} {problem}. {NOTHING_LANDED}",
            hint=hint,
            source=self.source,
        )

    @contextmanager
    def outages(self) -> Iterator[None]:
        """Translate StoreUnavailable, which would refer to the store of the job, to SourceUnreachable."""
        try:
            yield
        except StoreUnavailable as error:
            problem = f"did not answer: {error.message.rstrip('.')}"
            raise self.unreachable(problem, error.hint or _CHECK_ACCESS) from error

    def expired(self, problem: str, earliest: Position, latest: Position) -> PositionExpired:
        """Return the error for rows that were deleted before they were landed. The lander adds the source."""
        return PositionExpired(f"{self.table} {problem}", earliest=earliest, latest=latest)

    def went_back(self, problem: str, latest: Position) -> SourceWentBack:
        """Return the error for a table that no longer has what was landed. The lander adds the source."""
        return SourceWentBack(f"{self.table} {problem}", latest=latest)


class _HasFailures(Protocol):
    failures: TableFailures


S = TypeVar("S", bound=_HasFailures)


def names_outages(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Run a method of a source within `TableFailures.outages`."""

    @wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.failures.outages():
            return method(self, *args, **kwargs)

    return call
