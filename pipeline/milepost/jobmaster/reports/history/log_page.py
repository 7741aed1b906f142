"""Pages of the manifest log, filtered by kind of event, table, checkpoint and text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from milepost.errors import StateCorrupt
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.hidden_messages import hide_in_log
from milepost.jobmaster.reports.history.acts import find_returns
from milepost.jobmaster.reports.history.log_document import log_document
from milepost.protocol.log import LoggedEvent, Tombstone

MAX_READ = 1_000
"""Entries that one page reads for those that match its filter."""


class EventKind(StrEnum):
    """Kinds of events: acts of people, epochs, failed epochs, changes of tables, and the rest."""

    ACT = "act"
    EPOCH = "epoch"
    FAILURE = "failure"
    TABLE = "table"
    UPKEEP = "upkeep"


_KINDS: Mapping[str, EventKind] = {
    **dict.fromkeys(
        (
            *("JobCreated", "JobCanceled", "JobResumed", "JobStarted", "TimelineSwitched", "TimelineForked"),
            *("ForkDisposed", "SavepointCreated", "SavepointDisposed"),
        ),
        EventKind.ACT,
    ),
    **dict.fromkeys(
        ("CheckpointTriggered", "CheckpointRebound", "CheckpointCompleted", "JobFinished"), EventKind.EPOCH
    ),
    "CheckpointAborted": EventKind.FAILURE,
    **dict.fromkeys(("SinksConfirmed", "SinkReconciled", "RealignmentDecided"), EventKind.TABLE),
}
"""Name of an event -> its kind. All others are upkeep, unless they publish a checkpoint too."""


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Selects entries; None or "": all. text: part of what happened, who did it, why, or in which run."""

    kind: EventKind | None = None
    table: str | None = None
    checkpoint: int | None = None
    text: str = ""

    def matches(self, document: Mapping[str, Any]) -> bool:
        """Return whether the filter selects an entry."""
        return (
            (self.kind is None or kind_of(document) is self.kind)
            and (self.table is None or self.table in _tables(document))
            and (self.checkpoint is None or self.checkpoint in _checkpoints(document))
            and (not self.text or self.text.casefold() in _text(document).casefold())
        )


@dataclass(frozen=True, slots=True)
class LogPage:
    """Entries, newest first, as documents.

    Attributes:
        following: the version before which the next page begins; None: there are no older entries.
        unreadable: why older entries cannot be read; None: they can.
    """

    events: tuple[Mapping[str, Any], ...]
    following: int | None
    unreadable: str | None = None


def log_page(
    context: JobContext, selected: LogFilter, limit: int, before: int | None = None, *, with_values: bool = True
) -> LogPage:
    """Return at most `limit` entries that the filter selects, among the `MAX_READ` newest ones.

    Args:
        before: only older versions; None: all.
        with_values: whether messages that may quote rows are shown, and searched.
    """
    read: list[LoggedEvent | Tombstone] = []
    matching: list[LoggedEvent | Tombstone] = []
    unreadable = None
    if context.log.head() is None:
        return LogPage((), None)
    shown: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict if with_values else hide_in_log
    try:
        for entry in context.log.events(MAX_READ, before=before):
            read.append(entry)
            matching += [entry] if selected.matches(shown(log_document(entry))) else []
            if len(matching) == limit:
                break
    except StateCorrupt as error:
        unreadable = error.message
    returns = find_returns([(entry.version, entry.event) for entry in read if isinstance(entry, LoggedEvent)])
    documents = tuple(shown(log_document(entry, returns=entry.version in returns)) for entry in matching)
    is_cut = len(matching) == limit or len(read) == MAX_READ
    following = read[-1].version if is_cut and read[-1].version > 1 else None
    return LogPage(documents, following, unreadable)


def kind_of(document: Mapping[str, Any]) -> EventKind:
    """Return the kind of an entry."""
    if document["event"] == "CheckpointsSubsumed" and document.get("confirmed"):
        return EventKind.TABLE
    return _KINDS.get(document["event"], EventKind.UPKEEP)


def _tables(document: Mapping[str, Any]) -> set[str]:
    confirmed = document.get("confirmed") or {}
    return {*(document.get("sinks") or ()), *confirmed.get("sinks", ()), *filter(None, [document.get("sink")])}


def _checkpoints(document: Mapping[str, Any]) -> set[object]:
    confirmed, pin = document.get("confirmed") or {}, document.get("pin") or {}
    many = (*(document.get("checkpoint_ids") or ()), *(document.get("discarded") or ()))
    return {document.get("checkpoint_id"), confirmed.get("checkpoint_id"), pin.get("checkpoint_id"), *many}


def _text(document: Mapping[str, Any]) -> str:
    return "\n".join(_texts(document))


def _texts(document: Mapping[str, Any]) -> Iterator[str]:
    run = document.get("run") or {}
    for value in (*(document.get(name) for name in ("what", "who", "why", "reason", "detail")), run.get("run_id")):
        if isinstance(value, str):
            yield value
