"""`kind: process`: a user's class, one key at a time, with state and event-time timers of that key.

    class Turnaround:
        state = {"arrived": "timestamp[us, UTC]"}                       # optional; every column may be None
        output = {"tailnum": "string", "minutes": "float64"}            # exactly the columns that come out

        def on_rows(self, key, rows, state, ctx): ...                   # yields dicts or tables of `output`
        def on_timer(self, key, time, state, ctx): ...                  # optional

A new instance (no arguments) serves one subtask in one epoch, so nothing survives in `self`. It may be called again for
the same rows after a failure: no wall clock, no randomness, no effect outside.

* `key`: the value of the key column; a tuple in the order of the spec when there are several.
* `rows`: a `pa.Table` with all columns of the input: the key's rows of this epoch in event-time order, in plan order
  where times tie or the input has none. Called once per key and epoch. No row is late.
* `state`: a mutable mapping over the declared columns. A key whose columns are all None and that has no timer is gone.
* `ctx.watermark`: a datetime in UTC, or None while there is none: in `on_rows` that of the start of the epoch, in
  `on_timer` the firing watermark, of its end.
* `ctx.set_timer(datetime)`: the key's one timer; setting it again replaces it. Once the rows of an epoch are done,
  timers at or below the firing watermark fire by time, then key: `on_timer(key, time, state, ctx)`. It may set the next
  one, which must be later; one that is due as well fires in the same epoch.
* `on_batch(self, batch, state, ctx)` instead of `on_rows`: `batch` holds the rows of all keys of this subtask and epoch
  in event-time order, `state` the key columns and declared columns of those keys that have state. Returns
  (output table or None, new state table or None): None leaves the state as it is; a key of the batch that is not in the
  new state table is forgotten. No timers.

What the output declares comes out, nothing is added; key columns only when declared. An output column named as the
input's event time is the event time again. A timestamp is a datetime with zone iff its type says UTC.
"""

from __future__ import annotations

import heapq
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.operators.columns import (
    Ints,
    check_key,
    event_times_us,
    find_rows,
    first_of_each,
    group_rows,
    key_columns,
    plain_schema,
)
from pipeline.operators.contract import (
    TIMER_COLUMN,
    KeyedState,
    OperatorFailed,
    OperatorOutput,
    OutputKind,
    Watermarks,
)
from pipeline.operators.declared import Declaration, KeyState, Misfit, Output, columns_of, fitted, schema_of
from pipeline.operators.user_code import UserCodeFailed, UserFunction

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LAST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND


def _moment(time_us: int | None) -> datetime | None:
    return None if time_us is None else _EPOCH + timedelta(microseconds=min(time_us, _LAST_US))


@dataclass(frozen=True, slots=True)
class ProcessFunction:
    """A user's class as operators get it: its code, and what it declares. Picklable; holds no class."""

    code: UserFunction
    declared: Declaration


class ProcessContext:
    """What a process function may ask: the watermark, and a timer for its key."""

    __slots__ = ("_after_us", "_refusal", "_timer_us", "watermark")

    def __init__(self, watermark_us: int | None, timer_us: int | None, refusal: str = "") -> None:
        self.watermark = _moment(watermark_us)
        self._timer_us = timer_us
        self._after_us: int | None = None
        self._refusal = refusal

    def set_timer(self, time: datetime) -> None:
        """Call `on_timer` of this key once the watermark reaches `time`; replaces the timer that it has."""
        if self._refusal:
            raise ValueError(self._refusal)
        if not isinstance(time, datetime) or time.tzinfo is None:
            raise TypeError(f"set_timer: expected a datetime with time zone, got {time!r}")
        timer_us = (time - _EPOCH) // _MICROSECOND
        if self._after_us is not None and timer_us <= self._after_us:
            raise ValueError(f"set_timer: a timer set in on_timer must be later than {_moment(self._after_us)}")
        self._timer_us = timer_us


class ProcessByKey:
    """Runs a user's class. What it raises, or gives that it did not declare, declines the epoch with its line."""

    output_kind = OutputKind.APPEND
    output_key: tuple[str, ...] = ()

    def __init__(
        self,
        uid: str,
        key: Sequence[str],
        function: ProcessFunction,
        input_schema: pa.Schema,
        event_time: str | None,
        *,
        timed: bool,
    ) -> None:
        """Args:
        event_time: of its input, by which the rows of a key are ordered; None = plan order.
        timed: whether a source with event time reaches it, without which no watermark and no timer is.
        """
        check_key(uid, key, input_schema)
        self._function, declared = function.code, function.declared
        self._declared = declared
        self._event_time = event_time
        self._timed = timed
        self._input_schema = plain_schema(input_schema)
        self.uid = uid
        self.key = self.routing_key = tuple(key)
        self._key_schema = pa.schema([self._input_schema.field(name) for name in key])
        timer = pa.field(TIMER_COLUMN, pa.int64())
        self.state_schema = pa.schema([*self._key_schema, *schema_of(declared.state), timer])
        self.output_schema = schema_of(declared.output)

    def process(self, rows: pa.Table, state: KeyedState, watermarks: Watermarks) -> OperatorOutput:
        """Call the class for the rows of each key, then for the timers that are due. Raises OperatorFailed."""
        output = Output(self._declared.output)
        run = _Run(self, self._instance(), state, watermarks, output)
        if rows.num_rows:
            rows = rows.select(self._input_schema.names).cast(self._input_schema)
            times = event_times_us(self.uid, rows, self._event_time) if self._event_time is not None else None
            if self._declared.batches:
                run.batch(rows if times is None else rows.take(pa.array(np.argsort(times, kind="stable"))))
            else:
                run.rows(rows, times)
        if self._declared.timers and watermarks.firing_us is not None:
            run.timers(watermarks.firing_us)
        return OperatorOutput(output.table(), self._input_schema.empty_table())

    def _instance(self) -> Any:
        try:
            return self._function.load()()
        except UserCodeFailed as error:
            raise OperatorFailed(self.uid, str(error)) from error
        except (Exception, SystemExit) as error:
            raise OperatorFailed(self.uid, self._function.describe(error)) from error

    @property
    def no_timers(self) -> str:
        """Why timers cannot be set; empty when they can."""
        if self._declared.batches:
            return "set_timer: timers of on_batch are not available in this version"
        if not self._declared.timers:
            return "set_timer: the class has no on_timer"
        return "" if self._timed else "set_timer: no source with event_time reaches this operator: none would fire"

    @property
    def parts(self) -> tuple[UserFunction, Declaration, pa.Schema]:
        return self._function, self._declared, self._key_schema


class _Run:
    """One epoch of one subtask."""

    def __init__(
        self, operator: ProcessByKey, instance: Any, state: KeyedState, watermarks: Watermarks, output: Output
    ) -> None:
        self._operator = operator
        self._function, self._declared, self._key_schema = operator.parts
        self._instance = instance
        self._state = state
        self._watermarks = watermarks
        self._output = output
        self._columns = columns_of("state", self._declared.state)

    def rows(self, rows: pa.Table, times: Ints | None) -> None:
        """Call `on_rows` for each key, in the order of their first rows."""
        keys = key_columns(rows, self._operator.key)
        codes, count = group_rows(keys)
        order = np.lexsort((times, codes)) if times is not None else np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(count + 1))
        rows = rows.take(pa.array(order)).combine_chunks()
        keys = keys.take(pa.array(first_of_each(codes, count)))
        changes = _Changes(self._operator, keys, self._stored(keys))
        for index, key in enumerate(_values(keys)):
            part = rows.slice(bounds[index], bounds[index + 1] - bounds[index])
            view = KeyState(self._columns, changes.before(index))
            before_us = changes.timer_before(index)
            ctx = ProcessContext(self._watermarks.lateness_us, before_us, self._operator.no_timers)
            self._call(self._instance.on_rows, key, part, view, ctx, view=view)
            changes.record(index, view, ctx._timer_us)
        changes.apply(self._state)

    def timers(self, firing_us: int) -> None:
        """Call `on_timer` for each due timer, by time, then key."""
        due = self._state.due(firing_us)
        due = due.filter(pc.field(TIMER_COLUMN) <= firing_us)
        if not due.num_rows:
            return
        due = due.sort_by([(name, "ascending") for name in self._operator.key])
        keys = due.select(list(self._operator.key))
        changes = _Changes(self._operator, keys, due)
        names = list(_values(keys))
        views = [KeyState(self._columns, changes.before(index)) for index in range(due.num_rows)]
        after: list[int | None] = [None] * due.num_rows
        waiting = [(int(time_us), index) for index, time_us in enumerate(due.column(TIMER_COLUMN).to_pylist())]
        heapq.heapify(waiting)
        while waiting:
            time_us, index = heapq.heappop(waiting)
            ctx = ProcessContext(firing_us, None, self._operator.no_timers)
            ctx._after_us = time_us
            self._call(self._instance.on_timer, names[index], _moment(time_us), views[index], ctx, view=views[index])
            after[index] = ctx._timer_us
            if ctx._timer_us is not None and ctx._timer_us <= firing_us:
                heapq.heappush(waiting, (ctx._timer_us, index))
        for index, view in enumerate(views):
            changes.record(index, view, after[index])
        changes.apply(self._state)

    def batch(self, rows: pa.Table) -> None:
        """Call `on_batch` once."""
        normal = key_columns(rows, self._operator.key)
        codes, count = group_rows(normal)
        keys = normal.take(pa.array(first_of_each(codes, count)))
        stored = self._stored(keys)
        known = stored.filter(find_rows(keys, self._state.lookup(keys)).is_valid()).drop_columns([TIMER_COLUMN])
        ctx = ProcessContext(self._watermarks.lateness_us, None, self._operator.no_timers)
        answer = self._guarded(lambda: self._instance.on_batch(rows, known, ctx))
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise self._misfit(f"on_batch: expected (output, state), got {type(answer).__name__}", None)
        output, new = answer
        try:
            if output is not None:
                self._output.add(output)
            if new is not None:
                self._replace(keys, known, new)
        except Misfit as problem:
            raise self._misfit(f"on_batch: {problem}", None) from problem

    def _replace(self, keys: pa.Table, known: pa.Table, new: object) -> None:
        """Make `new` the state of the batch's keys."""
        if not isinstance(new, pa.Table | pa.RecordBatch):
            raise Misfit(f"expected a pyarrow Table as new state, got {type(new).__name__}")
        state = fitted(new, known.schema, "state")
        given = key_columns(state, self._operator.key).cast(self._key_schema)
        if group_rows(given)[1] != state.num_rows:
            raise Misfit("the new state has a key twice")
        if state.num_rows and find_rows(given, keys).null_count:
            raise Misfit("the new state has a key that is not in the batch")
        columns = [*given.columns, *state.select(list(self._columns)).columns, pa.nulls(state.num_rows, pa.int64())]
        if state.num_rows:
            self._state.upsert(pa.table(columns, schema=self._operator.state_schema))
        gone = find_rows(keys, given).is_null()
        self._state.delete(keys.filter(gone))

    def _stored(self, keys: pa.Table) -> pa.Table:
        """The state of each of the distinct keys, in their order; null for a key without state."""
        found = self._state.lookup(keys)
        rest = found.drop_columns(list(self._operator.key)).take(find_rows(keys, found))
        columns = [*keys.cast(self._key_schema).columns, *rest.columns]
        return pa.table(columns, schema=self._operator.state_schema)

    def _call(self, method: Callable[..., Any], *arguments: Any, view: KeyState) -> None:
        """Call a method of the class and take what it yields."""
        result = self._guarded(lambda: method(*arguments))
        items: Iterator[Any]
        if result is None:
            items = iter(())
        elif isinstance(result, Mapping | pa.Table | pa.RecordBatch):
            items = iter((result,))
        elif not isinstance(result, Iterable):
            raise self._misfit(f"{method.__name__}: expected dicts or tables, got {type(result).__name__}", None)
        else:
            items = self._guarded(lambda: iter(result))
        while True:
            item = self._guarded(lambda: next(items, _END))
            try:
                if item is _END:
                    view.settle()
                    return
                self._output.add(item)
            except Misfit as problem:
                raise self._misfit(f"{method.__name__}: {problem}", result) from problem

    def _guarded(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (Exception, SystemExit) as error:
            raise OperatorFailed(self._operator.uid, self._function.describe(error)) from error

    def _misfit(self, problem: str, result: object) -> OperatorFailed:
        place = None
        if inspect.isgenerator(result) and result.gi_frame is not None:
            place = self._function.place_of(result.gi_code.co_filename, result.gi_frame.f_lineno)
        return OperatorFailed(self._operator.uid, f"{problem} ({place})" if place else problem)


_END = object()


class _Changes:
    """State and timers of some keys before and after, so that only keys that changed are written."""

    def __init__(self, operator: ProcessByKey, keys: pa.Table, stored: pa.Table) -> None:
        self._schema = operator.state_schema
        self._keys = keys
        names = [name for name in self._schema.names if name not in operator.key and name != TIMER_COLUMN]
        self._stored = stored
        self._before = {name: stored.column(name).to_pylist() for name in names}
        self._timers: list[int | None] = stored.column(TIMER_COLUMN).to_pylist()
        self._nested = [name for name in names if pa.types.is_nested(self._schema.field(name).type)]
        self._after: dict[str, list[Any]] = {name: [] for name in (*names, TIMER_COLUMN)}
        self._written: list[int] = []
        self._gone: list[int] = []

    def before(self, index: int) -> dict[str, Any]:
        """The key's state, for its view to change: what can be changed in place is a copy."""
        values = {name: column[index] for name, column in self._before.items()}
        for name in self._nested:
            values[name] = self._stored.column(name)[index].as_py()
        return values

    def timer_before(self, index: int) -> int | None:
        return self._timers[index]

    def record(self, index: int, view: KeyState, timer_us: int | None) -> None:
        """Take what the key's view and timer are now."""
        values = view.values_by_name()
        if timer_us == self._timers[index] and all(
            value is column[index] or value == column[index]
            for value, column in zip(values.values(), self._before.values(), strict=True)
        ):
            return
        if timer_us is None and all(value is None for value in values.values()):
            self._gone.append(index)
            return
        self._written.append(index)
        for name, value in values.items():
            self._after[name].append(value)
        self._after[TIMER_COLUMN].append(timer_us)

    def apply(self, state: KeyedState) -> None:
        if self._written:
            columns = list(self._keys.take(pa.array(self._written, pa.int64())).columns)
            columns += [
                pa.array(self._after[field.name], type=field.type)
                for field in self._schema
                if field.name in self._after
            ]
            state.upsert(pa.table(columns, names=self._schema.names))
        if self._gone:
            state.delete(self._keys.take(pa.array(self._gone, pa.int64())))


def _values(keys: pa.Table) -> Iterator[Any]:
    """Each key as the user's code gets it."""
    columns = [column.to_pylist() for column in keys.columns]
    return iter(columns[0]) if len(columns) == 1 else zip(*columns, strict=True)
