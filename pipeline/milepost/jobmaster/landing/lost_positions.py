"""Report that a source cannot go on from the end of its log, the same way for every format (L7, L8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.errors import CheckpointError, PositionExpired, SourceWentBack
from milepost.protocol.landed import Position

_AS_IT_WAS = "Nothing was landed from there on; the log is as it was."


@contextmanager
def named_positions(source: str, end: Position) -> Iterator[None]:
    """Add the source and the end of its log to errors in the block that say that it cannot go on from there."""
    try:
        yield
    except (PositionExpired, SourceWentBack) as error:
        earliest, latest = (error.details.get(name) for name in ("earliest", "latest"))
        lost: type[CheckpointError] = SourceWentBack
        what = "the external system is not where the log ends, at"
        has = "" if latest is None else f" Its latest position is {position_text(latest)}."
        if isinstance(error, PositionExpired):
            lost, what = PositionExpired, "the external system no longer has what follows"
            has = "" if earliest is None else f" It still has {position_text(earliest)} to {position_text(latest)}."
        raise lost(
            f"source {source}: {what} position {position_text(end)}: {_clause(error.message)}.{has} {_AS_IT_WAS}",
            hint=_GO_ON,
            source=source,
            position=end,
            earliest=earliest,
            latest=latest,
        ) from error


def position_text(position: Position) -> str:
    """Return a position as JSON: {"next": 40}."""
    return json.dumps(position, sort_keys=True, default=str)


def _clause(message: str) -> str:
    return message.strip().rstrip(".")


_GO_ON = "give the source another name in the spec: it begins a log of its own, from where the external system is now"
