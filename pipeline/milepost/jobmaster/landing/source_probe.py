"""Connect to the external systems of landed sources, without landing anything. For `milepost doctor`."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from milepost.epoch import counted, iso_ms
from milepost.errors import CheckpointError, SourceUnreachable
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.landing_failures import last_failure
from milepost.jobmaster.landing.lost_positions import lost_hints, named_positions
from milepost.jobmaster.landing.open_sources import open_source
from milepost.jobmaster.landing.table_retention import retention_notes
from milepost.protocol.landed import JOB, Position, StoredRecord, position_text, require_identity
from milepost.sources.landed import NotedSource, Pull, ReferencedSource, stored_position
from milepost.storage.concurrency import run_in_background

PROBE_SECONDS = 20.0
"""Time limit of all probes together, which run in parallel."""

_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class ProbedSource:
    """The result of a connection to a landed source, or why it failed.

    Attributes:
        suspicious: whether it works and something needs attention.
    """

    name: str
    ok: bool
    detail: str
    suspicious: bool = False


def probe_landed_sources(context: JobContext, seconds: float = PROBE_SECONDS) -> Iterator[ProbedSource]:
    """Yield the result of each landed source, in name order. A source that does not answer in time is not ok.

    A call that hangs stays on its daemon thread until the process ends.
    """
    deadline = time.monotonic() + seconds
    names = sorted(context.spec.landed)
    answers = [run_in_background(partial(_connect, context, name), f"probe {name}") for name in names]
    for name, answer in zip(names, answers, strict=True):
        try:
            detail, suspicious = answer.result(max(0.0, deadline - time.monotonic()))
            yield ProbedSource(name, True, detail, suspicious)
        except CheckpointError as error:
            yield ProbedSource(name, False, _described(error))
        except TimeoutError:
            silent = SourceUnreachable(
                f"source {name}: no answer within {seconds:g} s. Nothing was landed.",
                hint="check that this machine can reach the external system",
                source=name,
            )
            yield ProbedSource(name, False, _described(silent))


def _connect(context: JobContext, name: str) -> tuple[str, bool]:
    """Return the state of the external system and of the log as text, and whether it needs attention.

    Raises CheckpointError.
    """
    spec = context.spec.landed[name]
    source = open_source(context, name, spec)
    log = context.source_log(name)
    newest = log.newest()
    identity = source.identity()
    if newest is None:
        position = stored_position(name, source.initial_position())
    else:
        require_identity(name, newest.record.identity, {JOB: context.identity, **identity})
        position = newest.record.end
    with lost_hints(context.spec.name, name, source), named_positions(name, position):
        pull = source.next_pull(copy.deepcopy(position))  # a source may change its argument
    notes = source.notes(None if newest is None else position) if isinstance(source, NotedSource) else ()
    retention = source.file_retention() if isinstance(source, ReferencedSource) else None
    notes += () if retention is None else tuple(retention_notes(context, name, retention))
    failure = last_failure(log, None if newest is None else newest.record)
    failed = []
    if failure is not None:
        failed = [f"the last landing failed at {iso_ms(failure.failed_at_ms)}: {failure.failure_of(name).text}"]
    texts = _log(newest), *failed, _ahead(name, position, pull), *(note.text for note in notes)
    is_suspicious = failure is not None or any(note.is_warning for note in notes)
    return "; ".join((f"{spec.location} is opened", *texts)), is_suspicious


def _log(newest: StoredRecord | None) -> str:
    if newest is None:
        return "nothing was landed yet"
    record = newest.record
    return f"landed {counted(record.total_rows, 'row')}, last at {iso_ms(record.landed_at_ms)}"


def _ahead(name: str, position: Position, pull: Pull | None) -> str:
    at = position_text(position, _SHOWN_CHARACTERS)
    if pull is None:
        return f"nothing new after position {at}"
    behind = "" if pull.ahead is None else f"not landed yet: {counted(pull.ahead.count, pull.ahead.unit)}; "
    if pull.end is None:
        return f"{behind}the next landing reads from position {at}, as far as it then gets"
    end = position_text(stored_position(name, pull.end), _SHOWN_CHARACTERS)
    return f"{behind}the next record reads from position {at} to {end}"


def _described(error: CheckpointError) -> str:
    return f"{type(error).__name__}: {error.full_message()}"
