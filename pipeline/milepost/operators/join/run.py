"""`kind: join`: pairs of a left and a right row with the same key and event times within an interval.

The state tables `left` and `right` buffer each row until no on-time row of the other side can match it. An arriving row
is paired with the buffered rows first and buffered second, so each pair is emitted exactly once, when its second row
arrives. A row with a null in its key matches nothing and is not buffered. With right times from 5 before the left time
to 10 after it::

    buffered right rows     a left row at 20 looks from 15 to 30     pairs emitted
    10, 20, 30              matches 20 and 30                        (20, 20)  (20, 30)

`how: left`, `right` and `full` also emit the unmatched rows of that side, or of both, once no match can arrive. An
unmatched row has a timer at its expiry, and a matched row has none. `semi` and `anti` only test whether a match exists:
they buffer the unmatched left rows, and the key and event time of right rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import InvalidRequest
from milepost.language.times import in_us
from milepost.operators.base.two_inputs import SIDES
from milepost.operators.contract import (
    OUTPUT_BYTES,
    Bools,
    BuildOptions,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorInput,
    OperatorOutput,
    OutputKind,
    StatefulOperator,
    StateTable,
    multi_row_table,
)
from milepost.operators.join.join_over_updates import JoinOverUpdates, JoinRules
from milepost.operators.join.row_bound import Bound, constant_of, row_bound_of
from milepost.operators.join.spec import JoinOperator
from milepost.operators.join.unmatched import LEFT_ALONE, UNMATCHED_SIDES
from milepost.operators.pairs.buffered_rows import BoundColumn, BufferedRows, MatchedRanges, due_rows, reachable_times
from milepost.operators.pairs.join_columns import LEFT, RIGHT, JoinedColumns, check_unmatched_right
from milepost.operators.pairs.paired_inputs import PairedInputs
from milepost.operators.rows.columns import (
    number_keys,
)
from milepost.protocol.exchange import BEGINNING_OF_TIME_US, END_OF_TIME_US, is_later
from milepost.protocol.records import EXPIRES_COLUMN, IDENTITY_COLUMNS, TIMER_COLUMN


def build(spec: JoinOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    if spec.within is None:
        return JoinOverUpdates(spec.uid, JoinRules(spec.key, spec.how, spec.condition, spec.renamed), inputs)
    shape = JoinShape(spec.key, spec.bounds, spec.how, spec.renamed)
    return IntervalJoinByKey(spec.uid, shape, inputs)


@dataclass(frozen=True, slots=True)
class JoinShape:
    """How an interval join pairs its rows.

    Attributes:
        keys: pairs of a left and a right column.
        within: lo and hi, of right's event time − left's. Both may differ per left row; lo has a constant part.
        how: as in the spec. renamed: as in `JoinedColumns`.
    """

    keys: Sequence[tuple[str, str]]
    within: tuple[Bound, Bound]
    how: str
    renamed: Mapping[str, str]


class IntervalJoinByKey:
    """Joins rows of two inputs with the same key where right's event time − left's is within an interval.

    A row of either side is late when its event time is below the lateness watermark. With the interval [lo, hi], a left
    row of time t pairs with no more on-time rows once the watermark is past t + hi, a right one past t - lo. A pair
    has the left row's event time, so it may be as much as `hi` older than the row that completed it; a row that waited
    in vain, as much as it waited.
    """

    output_kind = OutputKind.APPEND
    output_key: tuple[str, ...] = ()
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(self, uid: str, shape: JoinShape, inputs: Sequence[OperatorInput]) -> None:
        """Args:
        inputs: left, right.
        """
        self.uid, self.how = uid, shape.how
        self.inputs = PairedInputs.of(uid, "a join", shape.keys, inputs)
        self.routing_keys, self.event_times = self.inputs.routing_keys, self.inputs.event_times
        schemas = self.inputs.schemas
        constants, rows = map(constant_of, shape.within), map(row_bound_of, shape.within)
        low, high = (None if one is None else in_us(one) for one in constants)
        assert low is not None, "the lower bound has a constant part"
        self.has_constant_end = high is not None
        high_us = low if high is None else high
        self.reach_us = (low, high_us), (-high_us, -low)
        """Of each side, the least and greatest difference of the other side's event time, by constants."""
        bounds = [None if one is None else BoundColumn.of_column(uid, schemas[LEFT], one.column) for one in rows]
        self.first, self.last = bounds
        """The left columns with the first and the last event time of a right row that matches."""
        if self.by_existence:
            self.columns = JoinedColumns.of_left(schemas[LEFT])
        else:
            self.columns = JoinedColumns.of(uid, schemas, self.routing_keys[RIGHT], shape.renamed)
        self.output_schema = self.columns.schema
        self.unmatched_sides = UNMATCHED_SIDES.get(shape.how, ())
        self.padded_sides = () if self.by_existence else self.unmatched_sides
        self.under = {**dict(shape.keys), self.event_times[LEFT].column: self.event_times[RIGHT].column}
        """Of a right row without a left one, what it shows in left columns."""
        if RIGHT in self.padded_sides:
            self._check_under()
        self.stored = [self._kept_columns(side) for side in (LEFT, RIGHT)]
        self.tables: Mapping[str, StateTable] = {
            name: multi_row_table(self.routing_keys[side], self.stored[side], self._times(side))
            for side, name in enumerate(SIDES)
        }

    @property
    def by_existence(self) -> bool:
        """Whether left rows are emitted, by whether there is a right one."""
        return self.how in LEFT_ALONE

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> IntervalJoinRun:
        """Start one subtask's epoch."""
        return IntervalJoinRun(self, [tables[name] for name in SIDES], previous_firing_us)

    def reachable(self, side: int, rows: pa.Table, times: Ints) -> tuple[Ints, Ints]:
        """Return the first and last time of the other side that may match each row of a side."""
        least, most = reachable_times(times, self.reach_us[side])
        if side == RIGHT:  # without a constant end it may match left rows of any age
            return least if self.has_constant_end else np.full_like(least, BEGINNING_OF_TIME_US), most
        if self.last is not None:
            last = self.last.of(rows)
            most = np.minimum(most, last) if self.has_constant_end else last
        if self.first is not None:
            valid, first = self.first.valid(rows), self.first.of(rows)
            least = np.maximum(least, first)
            most = np.where(valid & (least <= most), most, BEGINNING_OF_TIME_US)
        return least, most

    def alone(self, side: int, rows: pa.Table) -> pa.Table:
        """Return unmatched rows of one side as they are emitted."""
        return self.columns.padded(side, rows, self.under)

    def _kept_columns(self, side: int) -> pa.Schema:
        schema = self.inputs.stored(side)
        if side == LEFT or not self.by_existence:
            return schema
        needed = {*self.routing_keys[RIGHT], self.event_times[RIGHT].column}
        return pa.schema([field for field in schema if field.name in needed])

    def _times(self, side: int) -> list[str]:
        return [TIMER_COLUMN, EXPIRES_COLUMN] if side in self.padded_sides else [EXPIRES_COLUMN]

    def _check_under(self) -> None:
        """Raises InvalidRequest: a left column does not hold what a right row without a left one shows in it."""
        times = self.event_times
        if times[LEFT].shift_us != times[RIGHT].shift_us:
            raise InvalidRequest(
                f"operator {self.uid!r}: `how: {self.how}` needs two event times of one kind, but one is the end of a "
                "window, the first moment after it, and the other is a moment itself. Nothing was changed.",
                hint="Exchange its inputs, and write `how: left`." if self.how == "right" else "",
            )
        check_unmatched_right(self.uid, self.how, [*self.under.items()], self.inputs.schemas)


class IntervalJoinRun:
    """One subtask's epoch of an `IntervalJoinByKey`. Pairs are final, and timers emit unmatched rows."""

    def __init__(self, operator: IntervalJoinByKey, tables: Sequence[KeyedState], fired_us: int | None) -> None:
        self._operator = operator
        self._tables = tables
        self._fired_us = fired_us

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Pair rows of one side with those of the other, then buffer them. Raises OperatorFailed."""
        operator = self._operator
        taken = operator.inputs.take(position, rows, lateness_us)
        alone = operator.output_schema.empty_table()
        if position in operator.unmatched_sides and taken.without_key.num_rows:
            alone = operator.alone(position, taken.without_key)
        yield OperatorOutput(alone, taken.late)
        if taken.rows.num_rows:
            for joined in self._join(position, taken.rows, taken.times):
                yield OperatorOutput(joined, taken.late.slice(0, 0))

    def advance(self, firing_us: int | None) -> pa.Table:
        """Emit the unmatched rows that can no longer match, by time and key."""
        operator, before_us = self._operator, self._fired_us
        unmatched = [operator.output_schema.empty_table()]
        if is_later(firing_us, before_us):
            self._fired_us = firing_us
            for side in operator.unmatched_sides:
                column = TIMER_COLUMN if side in operator.padded_sides else EXPIRES_COLUMN
                due = due_rows(self._tables[side], column, operator.routing_keys[side], before_us, firing_us)
                unmatched.append(operator.alone(side, due))
        return pa.concat_tables(unmatched)

    def finish(self, firing_us: int | None) -> pa.Table:
        """Emit those of the epoch's firing watermark."""
        return self.advance(firing_us)

    def _join(self, position: int, rows: pa.Table, times: Ints) -> Iterator[pa.Table]:
        """Yield the output of new rows in bounded batches, then buffer the rows that can still match."""
        operator = self._operator
        kept, matches = self._matches(position, rows, times)
        paired, met = matches.touched(kept)
        if not operator.by_existence:
            yield from self._pairs(position, rows, kept, matches)
            if RIGHT - position in operator.padded_sides:
                self._mark_paired(RIGHT - position, kept, met)
        elif position == RIGHT:
            yield from self._release_waiting(kept, met)
        elif operator.how == "semi":
            yield rows.filter(pa.array(paired)).cast(operator.output_schema)
        if operator.by_existence and position == LEFT:
            rows, times, paired = rows.filter(pa.array(~paired)), times[~paired], paired[~paired]
        _, until = operator.reachable(position, rows, times)
        # One past the last watermark at which a row of the other side that pairs with it is on time.
        expires = np.where(until < END_OF_TIME_US, until + 1, END_OF_TIME_US)
        waits = np.ones(len(expires), dtype=np.bool_) if self._fired_us is None else expires > self._fired_us
        if position in operator.unmatched_sides and not bool(waits.all()):
            yield operator.alone(position, rows.filter(pa.array(~waits & ~paired)))
        self._keep(position, rows.filter(pa.array(waits)), expires[waits], paired[waits])

    def _matches(self, position: int, rows: pa.Table, times: Ints) -> tuple[BufferedRows, MatchedRanges]:
        """Return the other side's buffered rows of these keys, and those that match each row."""
        operator, other = self._operator, RIGHT - position
        stored = operator.stored[position]
        own_key, other_key = operator.routing_keys[position], operator.routing_keys[other]
        keys = rows.select(list(own_key)).cast(pa.schema([stored.field(name) for name in own_key]))
        codes, distinct = number_keys(keys.rename_columns(list(other_key)))
        kept = BufferedRows.of(self._tables[other].lookup_all(distinct), operator.event_times[other])
        begins, ends = kept.between(codes, *operator.reachable(position, rows, times))
        since = until = None
        if position == RIGHT and (bounds := [one for one in (operator.first, operator.last) if one is not None]):
            # The bounds of each left row are compared pair by pair.
            found = kept.found.take(
                [*dict.fromkeys([operator.event_times[LEFT].column, *(one.column for one in bounds)])]
            )
            firsts, lasts = operator.reachable(LEFT, found, operator.event_times[LEFT].of(found))
            since, until = firsts[kept.order], lasts[kept.order]
        return kept, MatchedRanges(begins, ends, times, since, until)

    def _pairs(self, position: int, rows: pa.Table, kept: BufferedRows, matches: MatchedRanges) -> Iterator[pa.Table]:
        """Yield pairs in the order of the rows, then of the other side's times."""
        columns = self._operator.columns
        for own, others in matches.pairs(_batch_rows(columns)):
            mine = rows.take(pa.array(own))
            found = kept.found.take(columns.of_side(RIGHT - position), kept.order[others])
            yield columns.joined(*((mine, found) if position == LEFT else (found, mine)))

    def _release_waiting(self, kept: BufferedRows, places: Ints) -> Iterator[pa.Table]:
        """Yield the buffered left rows that now have a match (`semi`), and delete them."""
        operator, batch_rows = self._operator, _batch_rows(self._operator.columns)
        if operator.how == "semi":
            for start in range(0, len(places), batch_rows):
                yield kept.found.take(
                    operator.output_schema.names, kept.order[places[start : start + batch_rows]]
                ).cast(operator.output_schema)
        names = [*operator.routing_keys[LEFT], *IDENTITY_COLUMNS]
        self._tables[LEFT].delete(kept.found.take(names, np.unique(kept.order[places])))

    def _mark_paired(self, side: int, kept: BufferedRows, places: Ints) -> None:
        """Clear the timers of buffered rows of one side that have found a match."""
        positions = np.unique(kept.order[places])
        timers = kept.found.take([TIMER_COLUMN], positions).column(TIMER_COLUMN)
        positions = positions[pc.is_valid(timers).to_numpy()]
        if positions.size:
            marked = kept.found.take(self._operator.tables[SIDES[side]].schema.names, positions)
            none = pa.nulls(marked.num_rows, pa.int64())
            self._tables[side].upsert(marked.set_column(marked.column_names.index(TIMER_COLUMN), TIMER_COLUMN, none))

    def _keep(self, position: int, rows: pa.Table, expires: Ints, paired: Bools) -> None:
        operator = self._operator
        stored = operator.stored[position]
        kept = rows.select(stored.names).cast(stored).append_column(EXPIRES_COLUMN, pa.array(expires))
        if position in operator.padded_sides:
            kept = kept.append_column(TIMER_COLUMN, pa.array(expires, mask=paired))
        self._tables[position].add(kept)


def _batch_rows(columns: JoinedColumns) -> int:
    """Return the maximum number of rows of one output."""
    return max(1, OUTPUT_BYTES // max(1, columns.row_bytes))
