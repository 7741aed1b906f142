"""Report that a source cannot continue from the end of its log, with the same text for every format (L7, L8)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from milepost.errors import CheckpointError, PositionExpired, SourceWentBack, with_hint
from milepost.protocol.landed import Position, position_text
from milepost.sources.landed import LandedSource, ResumableSource, RewindableSource

_AS_IT_WAS = "Nothing was landed from there on, and the log is unchanged."


@contextmanager
def named_positions(source: str, end: Position) -> Iterator[None]:
    """Add the source and the end of its log to PositionExpired and SourceWentBack in the block."""
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
            f"source {source}: {what} position {position_text(end)}: {clause(error.message)}.{has} {_AS_IT_WAS}",
            source=source,
            position=end,
            earliest=earliest,
            latest=latest,
        ) from error


def try_reading(opened: LandedSource, position: Position, *, whole: bool = True) -> None:
    """Read the rows of one record after a position, and discard them. Some sources only then detect lost data.

    Args:
        whole: whether to read all of them; False: only the first batch.
    """
    pull = opened.next_pull(copy.deepcopy(position))
    for split in pull.splits if pull is not None else ():
        for _ in opened.read(split):
            if not whole:
                return


def reason_of_loss(source: str, opened: LandedSource, position: Position, *, whole: bool = True) -> str | None:
    """Return why the external system no longer has what follows a position; None: it has it. whole: as `try_reading`.

    Raises SourceWentBack.
    """
    with named_positions(source, position):
        try:
            try_reading(opened, position, whole=whole)
        except PositionExpired as error:
            return clause(error.message) or "the position has expired"
    return None


def expired_hint(job: str, name: str, source: LandedSource) -> str:
    """Return the next step after lost data. name: of the source."""
    if not isinstance(source, ResumableSource):
        return f"bring the lost data back, or {_OTHER_NAME}"
    return (
        "bring the lost data back, or approve a gap in the log: "
        f"milepost land {job} --source {name} --resume-from earliest"
    )


def went_back_hint(job: str, name: str, source: LandedSource) -> str:
    """Return the next step after the external system went back. name: of the source."""
    if not isinstance(source, RewindableSource):
        return f"bring it forward again, or {_OTHER_NAME}"
    return (
        "bring it forward again, or approve that the false records are void: "
        f"milepost land {job} --source {name} --void-from auto"
    )


@contextmanager
def lost_hints(job: str, name: str, source: LandedSource) -> Iterator[None]:
    """Add the next step to PositionExpired and SourceWentBack in the block."""
    with (
        with_hint(PositionExpired, expired_hint(job, name, source)),
        with_hint(SourceWentBack, went_back_hint(job, name, source)),
    ):
        yield


def clause(message: str) -> str:
    """Return a message without its full stop, to be part of a sentence."""
    return message.strip().rstrip(".")


_OTHER_NAME = (
    "give the source another name in the spec: it begins a log of its own, from where the external system is now"
)
