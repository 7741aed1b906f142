"""`kind: asof`: each left row with the version of its key that was the newest at its event time.

Right rows are versions: a change feed with an event time. A left row of time t waits until the watermark passes t. No
on-time version of t or earlier can arrive after that, so the result does not depend on arrival order::

    versions of a key    left row at     5       10     19     20     25
    at 10, at 20         gets version    none    10     10     20     20

The newest version of a key never expires. Any other version expires when the watermark reaches the time of its
successor: a new version is stored with that expiry, and its predecessor's expiry becomes the new version's time. Of
several versions with one time, the greatest by all columns is stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from milepost.operators.asof.spec import AsofOperator
from milepost.operators.base.two_inputs import SIDES
from milepost.operators.contract import (
    BuildOptions,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorInput,
    OperatorOutput,
    OutputKind,
    RowsOfKeys,
    StatefulOperator,
    StateTable,
    multi_row_table,
)
from milepost.operators.pairs.buffered_rows import BufferedRows, due_rows
from milepost.operators.pairs.join_columns import LEFT, RIGHT, JoinedColumns
from milepost.operators.pairs.paired_inputs import PairedInputs
from milepost.operators.rows.columns import number_keys
from milepost.operators.rows.row_order import sorted_rows, tie_break
from milepost.protocol.exchange import BEGINNING_OF_TIME_US, END_OF_TIME_US, is_later
from milepost.protocol.records import EXPIRES_COLUMN


def build(spec: AsofOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    return AsofJoinByKey(spec.uid, spec.key, spec.how, inputs, spec.renamed)


class AsofJoinByKey:
    """Joins each left row with the newest version of its key whose event time is not after the row's.

    A row of either side is late when its event time is below the lateness watermark.
    """

    output_kind = OutputKind.APPEND
    output_key: tuple[str, ...] = ()
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(
        self,
        uid: str,
        keys: Sequence[tuple[str, str]],
        how: str,
        inputs: Sequence[OperatorInput],
        renamed: Mapping[str, str],
    ) -> None:
        """Args:
        keys: pairs of a left and a right column. how: inner, or left: rows without a version are emitted as well.
        inputs: left, right. renamed: as in `JoinedColumns`.
        """
        self.uid, self.is_outer = uid, how == "left"
        self.inputs = PairedInputs.of(uid, "an as-of join", keys, inputs)
        self.routing_keys = self.inputs.routing_keys
        self.columns = JoinedColumns.of(uid, self.inputs.schemas, self.routing_keys[RIGHT], renamed)
        self.output_schema = self.columns.schema
        versions = self.inputs.stored(RIGHT)
        version_key = dict.fromkeys((*self.routing_keys[RIGHT], self.inputs.event_times[RIGHT].column))
        self.tables: Mapping[str, StateTable] = {
            SIDES[LEFT]: multi_row_table(self.routing_keys[LEFT], self.inputs.stored(LEFT), [EXPIRES_COLUMN]),
            SIDES[RIGHT]: StateTable(
                tuple(version_key),
                tuple(self.routing_keys[RIGHT]),
                versions.append(pa.field(EXPIRES_COLUMN, pa.int64())),
                tie_break(versions, version_key, ()),
            ),
        }

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> AsofJoinRun:
        """Start one subtask's epoch."""
        return AsofJoinRun(self, [tables[name] for name in SIDES], previous_firing_us)


class AsofJoinRun:
    """One subtask's epoch of an `AsofJoinByKey`. A row is emitted when the watermark passes it."""

    def __init__(self, operator: AsofJoinByKey, tables: Sequence[KeyedState], fired_us: int | None) -> None:
        self._operator = operator
        self._rows, self._versions = tables
        self._fired_us = fired_us

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Buffer the rows of one side. Raises OperatorFailed."""
        operator, inputs = self._operator, self._operator.inputs
        taken = inputs.take(position, rows, lateness_us)
        unpaired = operator.output_schema.empty_table()
        if position == LEFT and operator.is_outer and taken.without_key.num_rows:
            unpaired = operator.columns.padded(LEFT, taken.without_key, {})
        yield OperatorOutput(unpaired, taken.late)
        if not taken.rows.num_rows:
            return
        kept = taken.rows.cast(inputs.stored(position))
        if position == RIGHT:
            self._keep_versions(kept, taken.times)
            return
        # Expire 1 us after its time: by then the watermark has passed it, and every version it could get is late.
        expires = np.where(taken.times < END_OF_TIME_US, taken.times + 1, END_OF_TIME_US)
        self._rows.add(kept.append_column(EXPIRES_COLUMN, pa.array(expires)))

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit the left rows that the watermark has passed, each with its version, by time and key."""
        operator, before_us = self._operator, self._fired_us
        if not is_later(firing_us, before_us):
            return operator.output_schema.empty_table()
        self._fired_us = firing_us
        due = due_rows(self._rows, EXPIRES_COLUMN, operator.routing_keys[LEFT], before_us, firing_us)
        return self._with_versions(due) if due.num_rows else operator.output_schema.empty_table()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit those of the epoch's firing watermark."""
        return self.advance(firing_us)

    def _with_versions(self, rows: pa.Table) -> pa.Table:
        operator = self._operator
        codes, found = self._versions_of(rows, LEFT)
        kept = BufferedRows.of_single(found, operator.inputs.event_times[RIGHT])
        times = operator.inputs.event_times[LEFT].of(rows)
        begins, ends = kept.between(codes, np.full(len(times), BEGINNING_OF_TIME_US), times)
        there = ends > begins
        versions = found.take(operator.columns.of_side(RIGHT), kept.order[ends[there] - 1])
        joined = operator.columns.joined(rows.filter(pa.array(there)), versions)
        if not operator.is_outer or bool(there.all()):
            return joined
        return pa.concat_tables([joined, operator.columns.padded(LEFT, rows.filter(pa.array(~there)), {})])

    def _versions_of(self, rows: pa.Table, side: int) -> tuple[Ints, RowsOfKeys]:
        """Return the key number of each row, and the stored versions of these keys."""
        own_key, version_key = self._operator.routing_keys[side], self._operator.routing_keys[RIGHT]
        codes, distinct = number_keys(rows.select(list(own_key)).rename_columns(list(version_key)))
        return codes, self._versions.lookup_all(distinct)

    def _keep_versions(self, rows: pa.Table, times: Ints) -> None:
        """Store versions, each with the time of its successor as expiry."""
        operator = self._operator
        codes, found = self._versions_of(rows, RIGHT)
        names = operator.tables[SIDES[RIGHT]].schema.names
        known = found.take(names)
        both = pa.concat_tables([known.select(rows.column_names), rows])
        moments = np.concatenate([operator.inputs.event_times[RIGHT].of(known), times])
        owners = np.concatenate([found.owners, codes])
        order, next_us = _versions_in_order(both, owners, moments)
        before = known.column(EXPIRES_COLUMN).fill_null(END_OF_TIME_US).to_numpy()
        is_new, changed = order >= known.num_rows, np.ones(len(order), dtype=np.bool_)
        changed[~is_new] = before[order[~is_new]] != next_us[~is_new]
        outdated = np.ones(known.num_rows, dtype=np.bool_)
        outdated[order[~is_new]] = False
        key = list(operator.tables[SIDES[RIGHT]].key)
        self._versions.delete(known.filter(pa.array(outdated)).select(key))
        expires = pa.array(next_us[changed], mask=next_us[changed] == END_OF_TIME_US)
        self._versions.upsert(both.take(pa.array(order[changed])).append_column(EXPIRES_COLUMN, expires))


def _versions_in_order(rows: pa.Table, owners: Ints, times: Ints) -> tuple[Ints, Ints]:
    """Return the versions of each key by time, and the time of each one's successor.

    Of several versions with one time only the greatest is returned, as "b" is here.

    >>> rows = pa.table({"name": ["b", "a", "c"]})
    >>> order, until = _versions_in_order(rows, np.array([0, 0, 0]), np.array([7, 7, 9]))
    >>> order.tolist(), until.tolist() == [9, END_OF_TIME_US]
    ([0, 2], True)
    """
    order = np.lexsort((times, owners))
    same = _as_next(owners[order]) & _as_next(times[order])
    if same.any():
        moments = np.empty(len(order), dtype=np.int64)
        moments[order] = np.cumsum(np.concatenate([[True], ~same[:-1]]))
        order, _ = sorted_rows(rows, moments, ())
        same = _as_next(moments[order])
        order = order[~same]
    next_us = np.full(len(order), END_OF_TIME_US)
    followed = _as_next(owners[order])
    next_us[followed] = times[order][1:][followed[:-1]]
    return order, next_us


def _as_next(values: Ints) -> np.ndarray:
    """Return of each value whether the next one is equal to it."""
    same = np.zeros(len(values), dtype=np.bool_)
    same[:-1] = values[1:] == values[:-1]
    return same
