"""A level plan is decided on the driver and told to all tasks of its level."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from milepost.dataflow.operators.aggregate import AggregateByKey
from milepost.dataflow.operators.contract import StatefulOperator
from milepost.epoch.plan import EpochAlignment
from milepost.protocol.exchange.barrier import SubtaskAck, SubtaskIdentity
from milepost.protocol.exchange.watermarks import END_OF_TIME_US, latest, operator_watermark, source_watermark
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.subtask.task_lifecycle import Notifications
from milepost.spark.wire.epoch_clock import LevelShare
from milepost.state.buffers.channel_state import ChannelStateHandle
from milepost.state.layers.key_groups import key_group_range
from milepost.state.layers.key_hash import KeyHash
from milepost.state.runs.handles import StateHandle


@dataclass(frozen=True, slots=True)
class SourceClock:
    """An event-time source as an operator that reads it sees it: watermark at the start of the epoch, and its delay."""

    name: str
    watermark_us: int | None
    delay_us: int


@dataclass(frozen=True, slots=True)
class UpstreamClock:
    """A stateful operator as one that reads it sees it: complete as far as all of its subtasks have fired."""

    uid: str


Clock = SourceClock | UpstreamClock


@dataclass(frozen=True, slots=True)
class WholeOutput:
    """All rows of an operator whose output is a function of its live state.

    Attributes:
        node: under which name they are put out. operator: that makes them.
    """

    node: str
    operator: AggregateByKey


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """One stateful operator of a level, with what its subtasks restore.

    Attributes:
        inputs: producers, in the order the spec names them. input_schema: of each of them.
        state_schema: of its state, with stored names.
        handles, firing, channels: of all subtasks in the base checkpoint, whatever its parallelism: state, firing
            watermark, rows in flight; empty for an operator without state there.
        directory: where this epoch's snapshots of it go.
        signature: of its inputs, recorded with its channel state.
        clocks: of its inputs; those without event time have none and hold nobody back.
        whole: what of all its state rows is put out as well, for sinks that begin; None: there are none.
    """

    operator: StatefulOperator
    inputs: tuple[str, ...]
    input_schema: pa.Schema
    state_schema: pa.Schema
    handles: tuple[StateHandle, ...]
    firing: tuple[int | None, ...]
    channels: tuple[ChannelStateHandle | None, ...]
    directory: str
    signature: str
    clocks: tuple[Clock, ...]
    whole: WholeOutput | None = None

    def previous_firing_us(self, key_groups: range) -> int | None:
        """Return the firing watermark from which a subtask goes on.

        The least of the former subtasks whose rows it gets.
        """
        return operator_watermark(
            fired_us
            for handle, fired_us in zip(self.handles, self.firing, strict=True)
            if handle.key_groups.start < key_groups.stop and key_groups.start < handle.key_groups.stop
        )


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """What the subtasks of one level do.

    Attributes:
        base: checkpoint they continue. senders: subtasks of the level before.
        operators: hosted by each task. channel_directory: where their rows in flight go.
        alignment, share: when they stop processing.
        notifications: what they are told of other checkpoints.
    """

    job: str
    checkpoint_id: CheckpointId
    token: FencingToken
    base: CheckpointId
    level: int
    senders: int
    parallelism: int
    max_parallelism: int
    hasher: KeyHash
    operators: tuple[OperatorPlan, ...]
    channel_directory: str
    cache_directory: str
    alignment: EpochAlignment
    share: LevelShare
    notifications: Notifications

    def identity(self, subtask: int) -> SubtaskIdentity:
        return SubtaskIdentity(self.checkpoint_id, self.token, self.level, subtask)

    def key_groups(self, subtask: int) -> range:
        return key_group_range(self.max_parallelism, self.parallelism, subtask)


def lateness_us(clocks: Iterable[Clock], firing: Iterable[int | None]) -> int | None:
    """Return the stamp of all rows that an operator gets from a source in one epoch: what is late among them.

    Never below what has fired: rows of a window that was emitted stay late, whatever sources the operator reads now.

    Args:
        clocks: of its inputs. firing: the watermark that each of its subtasks had fired up to before.
    """
    stamp_us = operator_watermark(clock.watermark_us for clock in clocks if isinstance(clock, SourceClock))
    for fired_us in firing:
        stamp_us = latest(stamp_us, fired_us)
    return stamp_us


def input_watermark_us(clocks: Iterable[Clock], carried: Iterable[SubtaskAck], *, final: bool) -> int | None:
    """Return the watermark of an operator's inputs at the end of the epoch, from what the levels before acknowledged.

    Args:
        final: sources have ended: their watermark is END_OF_TIME_US.
    """
    acks = [ack.ack for ack in carried]
    ends: list[int | None] = []
    for clock in clocks:
        if isinstance(clock, UpstreamClock):
            fired = [ack["operators"][clock.uid]["firing_us"] for ack in acks if clock.uid in ack.get("operators", {})]
            ends.append(operator_watermark(fired))
        elif final:
            ends.append(END_OF_TIME_US)
        else:
            newest_us: int | None = None
            for ack in acks:
                newest_us = latest(newest_us, ack.get("sources", {}).get(clock.name, {}).get("newest_event_us"))
            ends.append(source_watermark(clock.watermark_us, newest_us, clock.delay_us))
    return operator_watermark(ends)
