"""Results of a trigger: a pending checkpoint, or the reason why there is nothing to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from milepost.codec import OmitNone
from milepost.epoch.timing import PlanTimes
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.protocol.records import CheckpointId, Epoch, FencingToken, TimelineId


@dataclass(frozen=True, slots=True)
class Triggered:
    """A pending checkpoint of the session, ready to run.

    Attributes:
        sinks: names of the job's sinks. summary: per source, objects and bytes planned and left for later.
        times: what the trigger measured, for `run_epoch`.
        opened: the epoch, for this process to run under the trigger's token; None if an earlier trigger opened it.
    """

    checkpoint_id: CheckpointId
    epoch: Epoch
    timeline: TimelineId
    token: FencingToken
    sinks: tuple[str, ...]
    summary: dict[str, Any]
    times: PlanTimes
    opened: OpenedEpoch | None


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The trigger opened no epoch.

    Attributes:
        status: ``empty`` (no new input), ``covered`` (a checkpoint already has this run's work) or ``drained`` (the job
            has finished).
        settles_in_ms: time until all new objects can be read; None if no object may still be being written.
        settling: the sources of those objects, as text; "" if there are none.
    """

    status: str
    message: str
    settles_in_ms: OmitNone[int] = None
    settling: str = ""
