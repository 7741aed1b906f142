"""Report aborted epochs to telemetry at the end of the use case that aborted them."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from milepost.errors import CheckpointError
from milepost.jobmaster.job.context import JobContext
from milepost.protocol.failure import reason_for
from milepost.protocol.manifest.transaction import CheckpointAborted, aborts_of
from milepost.storage.log import LandedTransition

if TYPE_CHECKING:
    from milepost.epoch.timing import TaskTimes
    from milepost.jobmaster.metrics.epoch_spans import SpanTimes
    from milepost.jobmaster.metrics.telemetry import Telemetry

_LOG = logging.getLogger(__name__)


def configured_telemetry() -> Telemetry | None:
    """Return the telemetry that OpenTelemetry's variables configure; None: none is set, and nothing is imported.

    Raises: EnvironmentUnusable: the variables request telemetry, and its SDK is not installed.
    """
    if not any(name.startswith("OTEL_") for name in os.environ):
        return None
    from milepost.jobmaster.metrics.open_telemetry import telemetry_from_environment

    return telemetry_from_environment()


class AbortReporter:
    """Collects the epochs that an opened job's use cases abort, and reports them at the end of the use case.

    Args:
        telemetry: returns the configured telemetry. Called only if an epoch was aborted.
    """

    def __init__(self, context: JobContext, telemetry: Callable[[], Telemetry | None]) -> None:
        self._context, self._telemetry = context, telemetry
        self._unreported: list[CheckpointAborted] = []

    def observe(self) -> None:
        """Report from now on."""
        self._context.listeners.append(self._collect)
        self._context.use_case_ends.callbacks.append(self._report)

    def _collect(self, landed: LandedTransition) -> None:
        self._unreported.extend(aborts_of(landed.transition.event))

    def _report(self, failure: BaseException | None) -> None:
        events, self._unreported = self._unreported, []
        if not events:
            return
        try:
            telemetry = self._telemetry()
        except Exception as error:  # noqa: BLE001 - the abort has landed, so an error of telemetry is only logged
            _LOG.warning("cannot report aborted epochs: %s", error)
            return
        if telemetry is not None:
            for event in events:
                telemetry.aborted(self._context.spec.name, event, partial(self._span, event, failure))

    def _span(self, event: CheckpointAborted, failure: BaseException | None) -> SpanTimes:
        from milepost.jobmaster.metrics.epoch_spans import aborted_span

        clock = self._context.clocks.get(event.pending.checkpoint_id)
        is_cause = failure is not None and reason_for(failure) is event.reason
        error_type = type(failure).__name__ if is_cause else event.reason.value
        steps = () if clock is None else clock.begun
        return aborted_span(self._context.spec.name, event, error_type, steps, self._tasks(event))

    def _tasks(self, event: CheckpointAborted) -> Sequence[TaskTimes]:
        from milepost.jobmaster.job.measurements import task_times

        try:
            return task_times(self._context, event.pending)
        except CheckpointError as error:  # perhaps the store error that aborted the epoch
            _LOG.warning("checkpoint %s: its trace is without subtasks: %s", event.pending.checkpoint_id, error.message)
            return ()
