"""Report why a job has stopped: the failed epoch, the refusing rules, its input, and the checkpoint that readers see.

The log entry of the failed epoch is found by binary search, and one veto of at most 64 kB is read. Earlier results of a
rule come from a few retained checkpoints.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from milepost.epoch import iso_ms
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.checkpoint.document import CheckpointReport
from milepost.jobmaster.reports.history.history import History
from milepost.jobmaster.reports.history.refused_bounds import bounds_of
from milepost.jobmaster.reports.tables.table_report import (
    CheckpointVerdict,
    RuleResult,
    reason_to_wait,
    results_of,
    verdicts_of,
)
from milepost.protocol.records import QUALITY_GATE_REASONS, ManifestState
from milepost.storage.concurrency import prefetch

PREVIOUS = 5
"""Number of earlier results to report per rule."""

_GATE_REASONS = frozenset(reason.value for reason in QUALITY_GATE_REASONS)


@dataclass(frozen=True, slots=True)
class RefusingRule:
    """A rule that refused the epoch.

    Attributes:
        bounds: its arguments in the spec; None: the spec no longer has the rule.
        observed, observed_value, exception, rows: as in `Refusal`; rows have the sink's key.
        key: key columns of the sink.
        previous: its results for the last completed checkpoints, newest first, at most `PREVIOUS`.
    """

    sink: str
    type: str
    column: str | None
    severity: str
    bounds: Mapping[str, Any] | None
    observed: Mapping[str, Any]
    observed_value: Any
    exception: str | None
    rows: tuple[Mapping[str, Any], ...]
    key: tuple[str, ...]
    previous: tuple[RuleResult, ...]


@dataclass(frozen=True, slots=True)
class IncidentInput:
    """Input that the failed epoch read from one source; see `VetoedInput`."""

    source: str
    rows: int
    objects: int
    first: tuple[str, ...]
    records: str | None


@dataclass(frozen=True, slots=True)
class Incident:
    """A failed epoch that no completed epoch has followed.

    Attributes:
        reason, detail, meaning, remedy: as in `CheckpointReport`.
        spec_changed: whether the spec has changed since the epoch, so that bounds may differ too.
        read: by source; None: not recorded, as for failures other than a veto.
        problem: why the veto cannot be read, or None.
        shortened: whether rows or names were left out of the veto because of its size.
        shows: the newest completed checkpoint, which readers still see; None: none has completed.
        shows_since: when it completed. waiting: tables that do not show it yet.
    """

    checkpoint_id: int
    epoch: int | None
    timeline: str | None
    triggered: str | None
    reason: str
    detail: str | None
    meaning: str | None
    remedy: str | None
    spec_changed: bool
    rules: tuple[RefusingRule, ...]
    read: tuple[IncidentInput, ...] | None
    problem: str | None
    shortened: bool
    shows: int | None
    shows_since: str | None
    waiting: tuple[str, ...]


def incident_of(context: JobContext) -> Incident | None:
    """Return the current incident, or None if an epoch has completed since the last failure."""
    head = context.log.head()
    if head is None or head.state.failures.last_reason is None or not head.state.failures.last_checkpoint:
        return None
    state = head.state
    await_verdicts = prefetch(context.store, lambda: _earlier_verdicts(context, state), "verdicts")
    failed = History(context).show(int(state.failures.last_checkpoint), state=state, details=False)
    return _incident(context, state, failed, await_verdicts())


def _earlier_verdicts(context: JobContext, state: ManifestState) -> Mapping[str, Sequence[CheckpointVerdict]]:
    """Return the earlier verdicts on each table, if the quality gate stopped the epoch."""
    if state.failures.last_reason not in _GATE_REASONS:
        return {}
    return {sink.name: verdicts_of(context, state, sink.name, PREVIOUS) for sink in context.spec.sinks}


def _incident(
    context: JobContext,
    state: ManifestState,
    failed: CheckpointReport,
    verdicts: Mapping[str, Sequence[CheckpointVerdict]],
) -> Incident:
    veto: Mapping[str, Any] = failed.veto if isinstance(failed.veto, Mapping) else {}
    newest = state.head()
    read = veto.get("read")
    return Incident(
        checkpoint_id=failed.checkpoint_id,
        epoch=failed.epoch,
        timeline=failed.timeline,
        triggered=failed.trigger_time,
        reason=failed.failure_reason or str(state.failures.last_reason),
        detail=failed.failure_detail,
        meaning=failed.meaning,
        remedy=failed.remedy,
        spec_changed=failed.spec_hash is not None and failed.spec_hash != context.job.spec_hash,
        rules=tuple(_rules(context, veto.get("refusals", ()), verdicts)),
        read=None
        if read is None
        else tuple(
            IncidentInput(source, one["rows"], one["objects"], tuple(one["first"]), one["records"])
            for source, one in sorted(read.items())
        ),
        problem=veto.get("problem"),
        shortened=bool(veto.get("shortened")),
        shows=None if newest is None else int(newest.checkpoint_id),
        shows_since=None if newest is None else iso_ms(newest.completed_time_ms),
        waiting=tuple(sink.name for sink in context.spec.sinks if reason_to_wait(state, sink.name) is not None),
    )


def _rules(
    context: JobContext,
    refusals: Sequence[Mapping[str, Any]],
    verdicts: Mapping[str, Sequence[CheckpointVerdict]],
) -> Iterator[RefusingRule]:
    inputs = context.graph.sink_inputs
    seen = Counter[tuple[str, str, str | None]]()
    for refusal, bounds in zip(refusals, bounds_of(context.job.spec.quality, refusals), strict=True):
        name, kind, column = rule = refusal["sink"], refusal["type"], refusal["column"]
        previous = results_of(verdicts.get(name, ()), kind, column, seen[rule])
        seen[rule] += 1
        yield RefusingRule(
            sink=name,
            type=kind,
            column=column,
            severity=refusal["severity"],
            bounds=bounds,
            observed=refusal["observed"],
            observed_value=refusal["observed_value"],
            exception=refusal["exception"],
            rows=tuple(refusal["rows"]),
            key=tuple(inputs[name].key) if name in inputs else (),
            previous=tuple(previous),
        )
