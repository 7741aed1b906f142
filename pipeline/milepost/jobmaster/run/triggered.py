"""A trigger answers with the pending checkpoint that it was granted, or with why there is nothing to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from milepost.codec.fields import OmitNone
from milepost.epoch.timing.step_clock import PlanTimes
from milepost.jobmaster.run.opened_epoch import OpenedEpoch
from milepost.protocol.records.ids import CheckpointId, Epoch, FencingToken, TimelineId


@dataclass(frozen=True, slots=True)
class Triggered:
    """A pending checkpoint of the session: its epoch may run.

    Attributes:
        sinks: names of the job's sinks. summary: per source, objects and bytes planned and left for later.
        times: what the trigger measured, for `run_epoch`.
        opened: the epoch, for this process to run under the trigger's token; None: an earlier trigger granted it.
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
    """No epoch.

    Attributes:
        status: ``empty`` (nothing to do), ``covered`` (a checkpoint has this run's work) or ``drained`` (the end).
        settles_in_ms: how long until all new objects can be read; None when there is none that may still be written.
        settling: of which sources they are, as text; "" when there is none.
    """

    status: str
    message: str
    settles_in_ms: OmitNone[int] = None
    settling: str = ""
