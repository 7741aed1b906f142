"""The plan of a level, which the driver sends to all its tasks."""

from __future__ import annotations

import functools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from milepost.epoch import EpochAlignment, StateTableSnapshot
from milepost.operators import PublishesChanges, PublishesState, StatefulOperator
from milepost.operators.base import late_output
from milepost.protocol.exchange import (
    END_OF_TIME_US,
    SubtaskAck,
    SubtaskIdentity,
    delivered_event_time,
    latest,
    newest_by_partition,
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
    """The event time of a source, as an input of an operator.

    Attributes:
        watermark_us: watermark at the start of the epoch.
        delay_us: watermark delay of the source.
        idle_before, idle: whether the source is idle at the start and at the end of the epoch. An idle source is
            ignored unless all inputs are idle.
        partitions: newest event time of each of its partitions at the start of the epoch.
        behind: partitions that are behind at the end of the epoch. None: it read none of their records.
    """

    name: str
    watermark_us: int | None
    delay_us: int
    idle_before: bool = False
    idle: bool = False
    partitions: tuple[tuple[str, int], ...] = ()
    behind: tuple[str, ...] | None = ()

    def end_us(self, acks: Iterable[Mapping[str, Any]]) -> int | None:
        """Return its watermark at the end of the epoch, from what its subtasks acknowledged."""
        read = [ack["sources"][self.name] for ack in acks if self.name in ack.get("sources", {})]
        newest_us = functools.reduce(latest, (one["newest_event_us"] for one in read), None)
        partitions = newest_by_partition(dict(self.partitions), (one["partitions"] for one in read))
        return source_watermark(
            self.watermark_us, delivered_event_time(newest_us, partitions, self.behind), self.delay_us
        )


@dataclass(frozen=True, slots=True)
class UpstreamClock:
    """The event time of a stateful operator, as an input of another one. It is the lowest firing watermark.

    Attributes:
        holdback_us: how much older than the firing watermark its rows may be.
        start_us: lowest firing watermark at the start of the epoch.
        idle_before, idle: whether all its sources are idle, as in `SourceClock`.
        ancestors: stateful operators upstream of it.
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
    """The output with all current rows of an operator, computed from its live state.

    Attributes:
        node: name of the output.
        operator: the operator that computes the rows from its state. One without a key has rows only for `fill`.
        fill: name of the output with the same rows and weights; None: it has no reader.
    """

    node: str
    operator: PublishesState | PublishesChanges
    fill: str | None


@dataclass(frozen=True, slots=True)
class InputPlan:
    """One input of an operator.

    Attributes:
        edge: name on the wire and in channel state: the producer's name, with a number if it is repeated.
        schema: schema of its rows.
        routing_key: columns by which its rows are exchanged.
        late: output of its late rows.
        drops_late: whether no sink publishes that output.
    """

    edge: str
    schema: pa.Schema
    routing_key: tuple[str, ...]
    late: str
    drops_late: bool


def input_plans(
    uid: str,
    edges: Sequence[str],
    schemas: Sequence[pa.Schema],
    keys: Sequence[tuple[str, ...]],
    published: Collection[str] = (),
) -> tuple[InputPlan, ...]:
    """Return the inputs of an operator in the order of the spec. Each of several inputs has its own late output.

    Args:
        published: outputs that sinks publish.
    """
    late = [late_output(uid, edges, position) for position in range(len(edges))]
    return tuple(map(InputPlan, edges, schemas, keys, late, (name not in published for name in late)))


@dataclass(frozen=True, slots=True)
class OperatorPlan:
    """One stateful operator of a level, with the state that its subtasks restore.

    Attributes:
        inputs: its inputs, in the order of the spec.
        tables: its state tables by name. Each has the columns of this epoch under their stored names, and the handles
            of all subtasks in the base checkpoint, whatever its parallelism; none if the operator has no state there.
        firing, channels: firing watermark and channel state of each of those subtasks.
        directory: key prefix of its snapshots in this epoch.
        signature: signature of its inputs, recorded with its channel state.
        clocks: clocks of its inputs. An input without event time has none and does not hold back the watermark.
        whole: output with all its current rows, for sinks that start; None: there is none.
        retract: output with the retractions of its updates, for operators that read them; None: there is none.
        upstream: stateful operators upstream of it.
        settled_before: whether these had no rows in flight in the base checkpoint.
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
    upstream: tuple[str, ...] = ()
    settled_before: bool = True

    @property
    def routing_keys(self) -> dict[str, tuple[str, ...]]:
        """The columns by which the rows of each edge are exchanged, by edge name."""
        return {input_.edge: input_.routing_key for input_ in self.inputs}

    def position(self, edge: str) -> int:
        """Return the index of the input with an edge name."""
        return next(index for index, input_ in enumerate(self.inputs) if input_.edge == edge)

    def previous_firing_us(self, key_groups: range) -> int | None:
        """Return the firing watermark that a subtask continues from.

        It is the lowest of the base's subtasks that share a key group with it. If these fired at 50 and 40, and the
        subtask takes key groups of both, it continues at 40.
        """
        handles = next(iter(self.tables.values())).handles  # all tables have the same subtasks
        return operator_watermark(
            fired_us
            for handle, fired_us in zip(handles, self.firing, strict=True)
            if overlap(handle.key_groups, key_groups)
        )

    def state_cost(self, own: range) -> Ints:
        """Return the memory that its recorded state takes while it is processed, per key group of `own`."""
        costs = [state_cost(table.handles, own, table.schema) for table in self.tables.values()]
        return np.sum(costs, axis=0, dtype=np.int64)

    def input_cost(self, rows: int, size: int) -> int:
        """Return the memory that `rows` input rows of `size` bytes take while they are processed."""
        return input_cost(rows, size, [table.schema for table in self.tables.values()])


@dataclass(frozen=True, slots=True)
class LevelPlan:
    """The plan of one level, the same for all its subtasks.

    Attributes:
        base: checkpoint that the epoch continues.
        senders: number of subtasks of the previous level.
        operators: operators that each task runs.
        channel_directory: key prefix of their channel state.
        alignment, share: determine the deadline of each task.
        notifications: results of earlier checkpoints to notify the subtasks of.
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
    """Return an operator's input watermark at the start of the epoch: the lowest of the inputs that are not idle.

    Inputs at 7, 5 and an idle one at 2 give 5. If all three are idle, they give 2.
    """
    all_clocks = list(clocks)
    return _started_us([clock for clock in all_clocks if not clock.idle_before] or all_clocks)


def _started_us(clocks: Iterable[Clock]) -> int | None:
    return operator_watermark(
        clock.watermark_us if isinstance(clock, SourceClock) else output_watermark(clock.start_us, clock.holdback_us)
        for clock in clocks
    )


def fired_us(firing: Iterable[int | None]) -> int | None:
    """Return the highest firing watermark of an operator's subtasks. Rows for lower times are late.

    Rows of an emitted window stay late, even if the operator reads other inputs now.
    """
    return functools.reduce(latest, firing, None)


def input_watermark_us(clocks: Iterable[Clock], carried: Iterable[SubtaskAck], *, final: bool) -> int | None:
    """Return an operator's input watermark at the end of the epoch, from the acknowledgements of upstream levels.

    It is never lower than at the start of the epoch, even if a source that was idle then returns with older rows.

    Args:
        final: whether the sources have ended. Their watermark is then END_OF_TIME_US.
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
            ends.append(clock.end_us(acks))
    started_us = _started_us([one for one in all_clocks if not one.idle_before or one in in_flight] or all_clocks)
    return latest(operator_watermark(ends), started_us)


def _has_rows_in_flight(clock: Clock, acks: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether an input has rows in flight, before its operator or a stateful operator upstream."""
    return isinstance(clock, UpstreamClock) and _have_rows_in_flight((clock.uid, *clock.ancestors), acks)


def is_settled(uids: Iterable[str], carried: Iterable[SubtaskAck]) -> bool:
    """Return whether none of these operators of upstream levels leaves rows in flight in this epoch."""
    return not _have_rows_in_flight(tuple(uids), [ack.ack for ack in carried])


def _have_rows_in_flight(uids: Sequence[str], acks: Sequence[Mapping[str, Any]]) -> bool:
    hosted = [operators[uid] for ack in acks for uid in uids if uid in (operators := ack.get("operators", {}))]
    return any(operator["channel"] is not None for operator in hosted)
