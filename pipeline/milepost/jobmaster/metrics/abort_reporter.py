"""Aborted epochs are told to who listens as the use case ends that gave them up, whichever command or task it is."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.observers.use_case_end import followed_by
from milepost.protocol.failure.abort_reasons import reason_for
from milepost.protocol.manifest.transaction.events import CheckpointAborted, aborts_of
from milepost.storage.log.manifest_log import LandedTransition

if TYPE_CHECKING:
    from milepost.epoch.timing.task_times import TaskTimes
    from milepost.jobmaster.metrics.epoch_spans import SpanTimes
    from milepost.jobmaster.metrics.telemetry import Telemetry

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


def configured_telemetry() -> Telemetry | None:
    """Return who listens by OpenTelemetry's variables; None: none is set, and nothing is imported.

    Raises: EnvironmentUnusable: they ask for it, and its SDK is not installed.
    """
    if not any(name.startswith("OTEL_") for name in os.environ):
        return None
    from milepost.jobmaster.metrics.open_telemetry import telemetry_from_environment

    return telemetry_from_environment()


class AbortReporter:
    """The epochs that an opened job's use cases have given up, until they are told.

    Args:
        telemetry: who listens; asked only when there is something to tell.
    """

    def __init__(self, context: JobContext, telemetry: Callable[[], Telemetry | None]) -> None:
        self._context, self._telemetry = context, telemetry
        self._untold: list[CheckpointAborted] = []
        context.listeners.append(self._hear)

    def report_aborts_after(self, use_case: T) -> T:
        """Return a use case that ends when what it gave up is told."""
        return followed_by(use_case, self._tell)

    def _hear(self, landed: LandedTransition) -> None:
        self._untold.extend(aborts_of(landed.transition.event))

    def _tell(self, failure: BaseException | None) -> None:
        untold, self._untold = self._untold, []
        if not untold:
            return
        try:
            telemetry = self._telemetry()
        except Exception as error:  # noqa: BLE001 - whatever is wrong with who listens, the abort has landed
            _LOG.warning("aborted epochs are not told: %s", error)
            return
        if telemetry is not None:
            for event in untold:
                telemetry.aborted(self._context.spec.name, event, partial(self._span, event, failure))

    def _span(self, event: CheckpointAborted, failure: BaseException | None) -> SpanTimes:
        from milepost.jobmaster.metrics.epoch_spans import aborted_span

        clock = self._context.clocks.get(event.pending.checkpoint_id)
        ended_by_it = failure is not None and reason_for(failure) is event.reason
        error_type = type(failure).__name__ if ended_by_it else event.reason.value
        steps = () if clock is None else clock.begun
        return aborted_span(self._context.spec.name, event, error_type, steps, self._tasks(event))

    def _tasks(self, event: CheckpointAborted) -> Sequence[TaskTimes]:
        from milepost.jobmaster.job.measurements import task_times

        try:
            return task_times(self._context, event.pending)
        except CheckpointError as error:  # the store, perhaps, by which the epoch has failed
            _LOG.warning("checkpoint %s: its trace is without subtasks: %s", event.pending.checkpoint_id, error.message)
            return ()
