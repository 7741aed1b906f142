"""One subtask's epoch of a process operator: call the user's class, store its state."""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.language.times import EPOCH, in_us
from milepost.operators.contract import KeyedState, OperatorFailed, OperatorOutput
from milepost.operators.process.declared import (
    Declaration,
    KeyState,
    Output,
    SchemaMismatch,
    columns_of,
    fitted,
)
from milepost.operators.process.key_changes import KeyChanges
from milepost.operators.process.latest_output import LatestOutput
from milepost.operators.process.python_values import values_for_python
from milepost.operators.process.user_code import UserFunction
from milepost.operators.rows.columns import (
    EventTime,
    Ints,
    distinct_rows,
    find_rows,
    group_rows,
    key_columns,
    number_keys,
)
from milepost.protocol.exchange import END_OF_TIME_US
from milepost.protocol.records import TIMER_COLUMN

_LAST_US = in_us(datetime.max.replace(tzinfo=UTC) - EPOCH)
_FIRST_US = in_us(datetime.min.replace(tzinfo=UTC) - EPOCH)

MOST_TIMERS_AT_THE_END = 10_000
"""Limit of timers per key that fire when the job ends. A class that always sets the next one would prevent the end."""


def _moment(time_us: int | None) -> datetime | None:
    return None if time_us is None else EPOCH + timedelta(microseconds=max(_FIRST_US, min(time_us, _LAST_US)))


Deletes: TypeAlias = Callable[[pa.Table | None, Mapping[str, object]], None]
"""Deletes output rows. Arguments as for `ProcessContext.delete`."""


class ProcessContext:
    """Context of a process function: the watermark, the input of the rows, a timer for the key, and deletes."""

    __slots__ = ("_after_us", "_delete", "_refusal", "_timer_us", "input", "watermark")

    def __init__(
        self,
        watermark_us: int | None,
        timer_us: int | None,
        delete: Deletes,
        refusal: str = "",
        input_: str | None = None,
    ) -> None:
        self.watermark = _moment(watermark_us)
        self.input = input_
        self._delete = delete
        self._timer_us = timer_us
        self._after_us: int | None = None
        self._refusal = refusal

    def delete(self, keys: pa.Table | None = None, /, **columns: object) -> None:
        """Delete the row of an output key.

        Args:
            keys: in `on_batch`, all columns of the output keys.
            columns: otherwise, the columns of the output key that are not in the key of this call.
        """
        self._delete(keys, columns)

    def set_timer(self, time: datetime) -> None:
        """Call `on_timer` of this key when the watermark reaches `time`. This replaces the key's timer."""
        if self._refusal:
            raise ValueError(self._refusal)
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise TypeError(f"set_timer: expected a datetime with time zone, got {time!r}")
        timer_us = in_us(time - EPOCH)
        if self._after_us is not None and timer_us <= self._after_us:
            raise ValueError(f"set_timer: a timer set in on_timer must be later than {_moment(self._after_us)}")
        self._timer_us = timer_us


@dataclass(frozen=True, slots=True)
class ProcessInput:
    """One input of a process operator.

    Attributes:
        name: value of `ctx.input`.
        event_time: event time that orders the rows of a piece. None: plan order.
    """

    name: str
    schema: pa.Schema
    event_time: EventTime | None


@dataclass(frozen=True, slots=True)
class ProcessParts:
    """Configuration of a run.

    Attributes:
        inputs: inputs in the order of the spec.
        output_key: columns by which a row replaces the previous one. (): rows are final.
        no_timers: why timers cannot be set, or "" if they can.
    """

    uid: str
    key: tuple[str, ...]
    key_schema: pa.Schema
    inputs: tuple[ProcessInput, ...]
    state_schema: pa.Schema
    function: UserFunction
    declared: Declaration
    output_key: tuple[str, ...]
    no_timers: str


class ProcessRun:
    """Calls one instance of the user's class for the rows of each key, piece by piece, then for due timers."""

    def __init__(self, parts: ProcessParts, instance: Any, state: KeyedState, fired_us: int | None) -> None:
        self._parts = parts
        self._function = parts.function
        self._instance = instance
        self._state = state
        self._output = Output(parts.declared.output, deletes=bool(parts.output_key))
        self._latest = LatestOutput(parts.key, parts.output_key, self._output.schema) if parts.output_key else None
        self._columns = columns_of("state", parts.declared.state)
        self._fired_us = fired_us
        self._lateness_us: int | None = None

    def rows(self, position: int, rows: pa.Table, lateness_us: int | None) -> Iterator[OperatorOutput]:
        """Call the class for each key of the piece. No row is late. Raises OperatorFailed with the user's line."""
        own = self._parts.inputs[position]
        if rows.num_rows:
            self._lateness_us = lateness_us
            rows = rows.select(own.schema.names).cast(own.schema)
            times = own.event_time.of(rows) if own.event_time is not None else None
            if self._parts.declared.batches:
                self._batch(own, rows if times is None else rows.take(pa.array(np.argsort(times, kind="stable"))))
            else:
                self._keys(own, rows, times)
        yield OperatorOutput(self._final(), own.schema.empty_table())

    def advance(self, firing_us: int | None) -> pa.Table:
        """Call `on_timer` for due timers, if the watermark has advanced. Raises OperatorFailed.

        A timer that is set at or below the firing watermark waits until the watermark advances. The time at which it
        fires therefore does not depend on where an epoch was cut.
        """
        if firing_us is not None and (self._fired_us is None or firing_us > self._fired_us):
            self._fired_us = firing_us
            if self._parts.declared.timers:
                self._timers(firing_us)
        return self._final()

    def finish(self, firing_us: int | None) -> pa.Table:
        """Call `on_timer` for due timers. Emit rows that replace others. Raises OperatorFailed."""
        final = self.advance(firing_us)
        return final if self._latest is None else self._latest.take()

    def _final(self) -> pa.Table:
        """Return the final rows collected so far. With an output key there are none before `finish`."""
        return self._output.take() if self._latest is None else self._output.schema.empty_table()

    def _delete(self, key: Any, keys: pa.Table | None, columns: Mapping[str, object]) -> None:
        """Delete a row of the key of the current call. Raises errors for the user's code."""
        own, output_key = self._parts.key, self._parts.output_key
        if not output_key:
            raise ValueError("delete: the spec has no output_key, so rows are final")
        wanted = [name for name in output_key if name not in own]
        if keys is not None or sorted(columns) != sorted(wanted):
            raise TypeError(f"delete: expected {', '.join(f'{name}=…' for name in wanted) or 'nothing'} beside the key")
        values = (key,) if len(own) == 1 else key
        try:
            self._output.delete({**dict(zip(own, values, strict=True)), **columns})
        except SchemaMismatch as problem:
            raise TypeError(f"delete: {problem}") from None

    def _delete_all(self, keys: pa.Table | None, columns: Mapping[str, object]) -> None:
        """Delete rows of output keys. Raises errors for the user's code."""
        output_key = self._parts.output_key
        if not output_key:
            raise ValueError("delete: the spec has no output_key, so rows are final")
        if columns or not isinstance(keys, pa.Table) or sorted(keys.column_names) != sorted(output_key):
            raise TypeError(f"delete: expected a table with the columns {', '.join(output_key)}")
        try:
            self._output.delete_all(keys)
        except SchemaMismatch as problem:
            raise TypeError(f"delete: {problem}") from None

    def _put_out(self, method: str, keys: pa.Table, owners: Ints | None) -> None:
        """Collect the rows that a method has yielded for some keys. Arguments as for `LatestOutput.add`."""
        if self._latest is None:
            return
        try:
            self._latest.add(self._output.take(), keys, owners)
        except SchemaMismatch as problem:
            raise self._mismatch(f"{method}: {problem}", None) from problem

    def _keys(self, own: ProcessInput, rows: pa.Table, times: Ints | None) -> None:
        """Call `on_rows` for each key, in the order of their first rows."""
        codes, keys = number_keys(key_columns(rows, self._parts.key).cast(self._parts.key_schema))
        order = np.lexsort((times, codes)) if times is not None else np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(keys.num_rows + 1))
        rows = rows.take(pa.array(order)).combine_chunks()
        changes = KeyChanges(self._parts.uid, self._parts.key, keys, self._stored(keys))
        put_out = [self._output.taken]
        for index, key in enumerate(self._values(keys)):
            part = rows.slice(bounds[index], bounds[index + 1] - bounds[index])
            view = KeyState(self._columns, changes.before(index))
            before_us = changes.timer_before(index)
            delete = partial(self._delete, key)
            ctx = ProcessContext(self._lateness_us, before_us, delete, self._parts.no_timers, own.name)
            self._call(self._instance.on_rows, key, part, view, ctx, view=view)
            changes.record(index, view, ctx._timer_us)
            put_out.append(self._output.taken)
        changes.apply(self._state)
        self._put_out("on_rows", keys, np.repeat(np.arange(keys.num_rows), np.diff(put_out)))

    def _timers(self, firing_us: int) -> None:
        """Call `on_timer` for each due timer, by time, then key."""
        due = self._state.due(firing_us)
        due = due.filter(pc.field(TIMER_COLUMN) <= firing_us)
        if not due.num_rows:
            return
        due = due.sort_by([(name, "ascending") for name in self._parts.key])
        keys = due.select(list(self._parts.key))
        changes = KeyChanges(self._parts.uid, self._parts.key, keys, due)
        names = list(self._values(keys))
        views = [KeyState(self._columns, changes.before(index)) for index in range(due.num_rows)]
        after: list[int | None] = [None] * due.num_rows
        waiting = [(int(time_us), index) for index, time_us in enumerate(due.column(TIMER_COLUMN).to_pylist())]
        heapq.heapify(waiting)
        calls, put_out = [0] * due.num_rows, self._output.taken
        owners: list[int] = []
        while waiting:
            time_us, index = heapq.heappop(waiting)
            ctx = ProcessContext(firing_us, None, partial(self._delete, names[index]), self._parts.no_timers)
            ctx._after_us = time_us
            calls[index] += 1
            if firing_us == END_OF_TIME_US and calls[index] > MOST_TIMERS_AT_THE_END:
                raise self._endless(names[index])
            self._call(self._instance.on_timer, names[index], _moment(time_us), views[index], ctx, view=views[index])
            after[index] = ctx._timer_us
            owners += [index] * (self._output.taken - len(owners) - put_out)
            if ctx._timer_us is not None and ctx._timer_us <= firing_us:
                heapq.heappush(waiting, (ctx._timer_us, index))
        for index, view in enumerate(views):
            changes.record(index, view, after[index])
        changes.apply(self._state)
        self._put_out("on_timer", keys, np.array(owners, dtype=np.int64))

    def _batch(self, own: ProcessInput, rows: pa.Table) -> None:
        """Call `on_batch` once."""
        keys = distinct_rows(key_columns(rows, self._parts.key).cast(self._parts.key_schema))
        stored = self._stored(keys)
        known = stored.filter(find_rows(keys, self._state.lookup(keys)).is_valid()).drop_columns([TIMER_COLUMN])
        ctx = ProcessContext(self._lateness_us, None, self._delete_all, self._parts.no_timers, own.name)
        answer = self._guarded(lambda: self._instance.on_batch(rows, known, ctx))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise self._mismatch(f"on_batch: expected (output, state), got {type(answer).__name__}", None)
        output, new = answer
        try:
            if output is not None:
                self._output.add(output)
            if new is not None:
                self._replace(keys, known, new)
        except SchemaMismatch as problem:
            raise self._mismatch(f"on_batch: {problem}", None) from problem
        self._put_out("on_batch", keys, None)

    def _replace(self, keys: pa.Table, known: pa.Table, new: object) -> None:
        """Replace the state of the batch's keys by `new`."""
        if not isinstance(new, pa.Table | pa.RecordBatch):
            raise SchemaMismatch(f"expected a pyarrow Table as new state, got {type(new).__name__}")
        state = fitted(new, known.schema, "state")
        given = key_columns(state, self._parts.key).cast(self._parts.key_schema)
        if group_rows(given)[1] != state.num_rows:
            raise SchemaMismatch("the new state has a key twice")
        if state.num_rows and find_rows(given, keys).null_count:
            raise SchemaMismatch("the new state has a key that is not in the batch")
        columns = [*given.columns, *state.select(list(self._columns)).columns, pa.nulls(state.num_rows, pa.int64())]
        if state.num_rows:
            self._state.upsert(pa.table(columns, schema=self._parts.state_schema))
        cleared = find_rows(keys, given).is_null()
        self._state.delete(keys.filter(cleared))

    def _values(self, keys: pa.Table) -> Iterator[Any]:
        """Return each key as a Python value. Raises OperatorFailed: Python cannot represent a value."""
        columns = [values_for_python(self._parts.uid, "key", keys.column(name), name) for name in keys.column_names]
        return iter(columns[0]) if len(columns) == 1 else zip(*columns, strict=True)

    def _stored(self, keys: pa.Table) -> pa.Table:
        """Return the state of each distinct key, in order. It is null for a key without state."""
        stored = self._state.lookup(keys)
        rest = stored.drop_columns(list(self._parts.key)).take(find_rows(keys, stored))
        columns = [*keys.cast(self._parts.key_schema).columns, *rest.columns]
        return pa.table(columns, schema=self._parts.state_schema)

    def _call(self, method: Callable[..., Any], *arguments: Any, view: KeyState) -> None:
        """Call a method of the class and collect the rows that it yields."""
        result = self._guarded(lambda: method(*arguments))
        items: Iterator[Any]
        if result is None:
            items = iter(())
        elif isinstance(result, Mapping | pa.Table | pa.RecordBatch):
            items = iter((result,))
        elif not isinstance(result, Iterable):
            raise self._mismatch(f"{method.__name__}: expected dicts or tables, got {type(result).__name__}", None)
        else:
            items = self._guarded(lambda: iter(result))
        while True:
            item = self._guarded(lambda: next(items, _END))
            try:
                if item is _END:
                    view.settle()
                    return
                self._output.add(item)
            except SchemaMismatch as problem:
                raise self._mismatch(f"{method.__name__}: {problem}", result) from problem

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except MemoryError as error:  # the task adds the hint; the user's line is available only here
            raise MemoryError(self._function.describe(error)) from error
        except (Exception, SystemExit) as error:
            raise OperatorFailed(self._parts.uid, self._function.describe(error)) from error

    def _endless(self, key: object) -> OperatorFailed:
        return OperatorFailed(
            self._parts.uid,
            f"on_timer of key {key!r} has set the next timer {MOST_TIMERS_AT_THE_END} times while the job ends; "
            "at the end ctx.watermark is the last datetime there is: set no timer then",
        )

    def _mismatch(self, problem: str, result: object) -> OperatorFailed:
        place = None
        if inspect.isgenerator(result) and result.gi_frame is not None:
            place = self._function.place_of(result.gi_code.co_filename, result.gi_frame.f_lineno)
        return OperatorFailed(self._parts.uid, f"{problem} ({place})" if place else problem)


_END = object()
