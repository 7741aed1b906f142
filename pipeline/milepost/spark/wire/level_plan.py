"""A level plan is decided on the driver and told to all tasks of its level."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from milepost.epoch import EpochAlignment, StateTableSnapshot
from milepost.jobspec.graph import late_output
from milepost.operators import LatestByKey, MaterializedOperator, StatefulOperator, TopByKey
from milepost.operators.aggregation import AggregateByKey, AggregateOverUpdates
from milepost.protocol.exchange import (
    END_OF_TIME_US,
    SubtaskAck,
    SubtaskIdentity,
    latest,
    operator_watermark,
    output_watermark,
    source_watermark,
)
from milepost.protocol.records import CheckpointId, FencingToken
from milepost.protocol.subtask import Notifications
from milepost.spark.wire.epoch_clock import LevelShare
from milepost.state.buffers import ChannelStateHandle
from milepost.state.keyed import input_cost, state_cost
from milepost.state.layers import Ints, KeyHash, key_group_range, overlap


@dataclass(frozen=True, slots=True)
class SourceClock:
    """An event-time source as an operator that reads it sees it: watermark at the start of the epoch, and its delay.

    Attributes:
        idle_before, idle: at the start, and at the end, of the epoch it counts only where all other inputs are idle.
    """

    name: str
    watermark_us: int | None
    delay_us: int
    idle_before: bool = False
    idle: bool = False


@dataclass(frozen=True, slots=True)
class UpstreamClock:
    """A stateful operator as one that reads it sees it: complete as far as all of its subtasks have fired.

    Attributes:
        holdback_us: less this: how much older than its watermark its rows may be.
        start_us: how far that was at the start of the epoch.
        idle_before, idle: all sources that reach it are; as of a source.
        behind: the operators with state that its rows come from.
    """

    uid: str
    holdback_us: int = 0
    start_us: int | None = None
    idle_before: bool = False
    idle: bool = False
    ancestors: tuple[str, ...] = ()


Clock = SourceClock | UpstreamClock


@dataclass(frozen=True, slots=True)
class WholeOutput:
    """All rows of an operator whose output is a function of its live state.

    Attributes:
        node: under which name they are put out. operator: that makes them.
        table: of its state, which they are made of.
        fill: under which name they are put out with weights as well; None: nobody reads them so.
    """

    node: str
    operator: AggregateByKey | AggregateOverUpdates | TopByKey | LatestByKey | MaterializedOperator
    table: str
    fill: str | None


@dataclass(frozen=True, slots=True)
class InputPlan:
    """One input of an operator.

    Attributes:
        edge: its name on the wire and in channel state: the producer's, with a number behind it for a repeated one.
        schema: of its rows. routing_key: by which they are exchanged. late: output that its late rows are.
    """

    edge: str
    schema: pa.Schema
    routing_key: tuple[str, ...]
    late: str


def input_plans(
    uid: str, edges: Sequence[str], schemas: Sequence[pa.Schema], keys: Sequence[tuple[str, ...]]
) -> tuple[InputPlan, ...]:
    """Return the inputs of an operator, in the order the spec names them; of several, each has its own late rows."""
    late = [late_output(uid, edges, position) for position in range(len(edges))]
    return tuple(map(InputPlan, edges, schemas, keys, late))


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """One stateful operator of a level, with what its subtasks restore.

    Attributes:
        inputs: in the order the spec names them.
        tables: its state, by name: columns of this epoch, with stored names; handles of all subtasks in the base
            checkpoint, whatever its parallelism, none for an operator without state there.
        firing, channels: of those subtasks: firing watermark, rows in flight.
        directory: where this epoch's snapshots of it go.
        signature: of its inputs, recorded with its channel state.
        clocks: of its inputs; those without event time have none and hold nobody back.
        whole: what of all its state rows is put out as well, for sinks that begin; None: there are none.
        retract: output with what its updates change, for operators that read them; None: there are none.
    """

    operator: StatefulOperator
    inputs: tuple[InputPlan, ...]
    tables: Mapping[str, StateTableSnapshot]
    firing: tuple[int | None, ...]
    channels: tuple[ChannelStateHandle | None, ...]
    directory: str
    signature: str
    clocks: tuple[Clock, ...]
    whole: WholeOutput | None = None
    retract: str | None = None

    @property
    def routing_keys(self) -> dict[str, tuple[str, ...]]:
        """Return by the name of each edge the columns by which its rows are exchanged."""
        return {one.edge: one.routing_key for one in self.inputs}

    def position(self, edge: str) -> int:
        """Return which input a buffer is of, by the name of its edge."""
        return next(index for index, one in enumerate(self.inputs) if one.edge == edge)

    def previous_firing_us(self, key_groups: range) -> int | None:
        """Return the firing watermark from which a subtask goes on.

        The least of the former subtasks whose rows it gets.
        """
        handles = next(iter(self.tables.values())).handles  # those of every table are of the same subtasks
        return operator_watermark(
            fired_us
            for handle, fired_us in zip(handles, self.firing, strict=True)
            if overlap(handle.key_groups, key_groups)
        )

    def state_cost(self, own: range) -> Ints:
        """Memory, per key group of `own`, that its recorded state takes while it is worked on."""
        costs = [state_cost(table.handles, own, table.schema) for table in self.tables.values()]
        return np.sum(costs, axis=0, dtype=np.int64)

    def input_cost(self, rows: int, size: int) -> int:
        """Memory that so many input rows of `size` bytes take while they are worked on."""
        return input_cost(rows, size, [table.schema for table in self.tables.values()])


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
    cache_directory: str | os.PathLike[str]
    alignment: EpochAlignment
    share: LevelShare
    notifications: Notifications

    def identity(self, subtask: int) -> SubtaskIdentity:
        return SubtaskIdentity(self.checkpoint_id, self.token, self.level, subtask)

    def key_groups(self, subtask: int) -> range:
        return key_group_range(self.max_parallelism, self.parallelism, subtask)


def start_watermark_us(clocks: Iterable[Clock]) -> int | None:
    """Return the watermark of an operator's inputs at the start of the epoch: the least of those that are not idle."""
    all_clocks = list(clocks)
    return _started_us([one for one in all_clocks if not one.idle_before] or all_clocks)


def _started_us(clocks: Iterable[Clock]) -> int | None:
    return operator_watermark(
        clock.watermark_us if isinstance(clock, SourceClock) else output_watermark(clock.start_us, clock.holdback_us)
        for clock in clocks
    )


def fired_us(firing: Iterable[int | None]) -> int | None:
    """Return the furthest that a subtask of an operator has fired: no row that it gets is on time for less.

    Rows of a window that was emitted stay late, whatever the operator reads now.
    """
    return functools.reduce(latest, firing, None)


def input_watermark_us(clocks: Iterable[Clock], carried: Iterable[SubtaskAck], *, final: bool) -> int | None:
    """Return the watermark of an operator's inputs at the end of the epoch, from what the levels before acknowledged.

    Never less than at its start: a source that was idle then has not held back what it comes back behind.

    Args:
        final: sources have ended: their watermark is END_OF_TIME_US.
    """
    acks = [ack.ack for ack in carried]
    ends: list[int | None] = []
    all_clocks = list(clocks)
    in_flight = {one for one in all_clocks if _has_rows_in_flight(one, acks)}
    for clock in [one for one in all_clocks if not one.idle or one in in_flight] or all_clocks:
        if isinstance(clock, UpstreamClock):
            fired = [ack["operators"][clock.uid]["firing_us"] for ack in acks if clock.uid in ack.get("operators", {})]
            ends.append(output_watermark(operator_watermark(fired), clock.holdback_us))
        elif final:
            ends.append(END_OF_TIME_US)
        else:
            newest_us: int | None = None
            for ack in acks:
                newest_us = latest(newest_us, ack.get("sources", {}).get(clock.name, {}).get("newest_event_us"))
            ends.append(source_watermark(clock.watermark_us, newest_us, clock.delay_us))
    started_us = _started_us([one for one in all_clocks if not one.idle_before or one in in_flight] or all_clocks)
    return latest(operator_watermark(ends), started_us)


def _has_rows_in_flight(clock: Clock, acks: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether rows of an input are in flight, before its operator or one behind that."""
    if isinstance(clock, SourceClock):
        return False
    before = (clock.uid, *clock.ancestors)
    hosted = [operators[uid] for ack in acks for uid in before if uid in (operators := ack.get("operators", {}))]
    return any(one["channel"] is not None for one in hosted)
