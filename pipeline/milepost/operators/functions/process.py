"""`kind: process`: a user's class, one key at a time, with state and event-time timers of that key.

    # in the spec; turnaround.py lies beside it
    - {uid: turnaround, kind: process, inputs: [flights], key: [tailnum], function: "turnaround:Turnaround"}

    # in turnaround.py
    class Turnaround:
        state = {"arrived": "timestamp[us, UTC]"}                       # optional; every column may be None
        output = {"tailnum": "string", "minutes": "float64"}            # exactly the columns that come out

        def on_rows(self, key, rows, state, ctx): ...                   # yields dicts or tables of `output`
        def on_timer(self, key, time, state, ctx): ...                  # optional

A new instance (no arguments) serves one subtask in one epoch, so nothing survives in `self`. It may be called again for
the same rows after a failure: no wall clock, no randomness, no effect outside.

* `key`: the value of the key column; a tuple in the order of the spec when there are several.
* `rows`: a `pa.Table` with all columns of one input: rows of the key, once per key and epoch, in event-time order; in
  plan order where times tie or the input has none. Once the spec sets `aligned_timeout` or `epoch_budget`, an epoch is
  cut where its time is up: the key's rows come in plan order, in any number of calls, so a class that takes them row by
  row gives the same result wherever the cut is. No row is late.
* `ctx.input`: of several inputs the one that these rows are of, by the name in `inputs` (one that is there twice is
  `orders`, then `orders.2`); None in `on_timer`. Inputs take turns in the order of the spec: all rows of the first, key
  after key, then those of the second. A class that needs them by time keeps them in `state`, and sets a timer.
* `state`: a mutable mapping over the declared columns. A key whose columns are all None and that has no timer is gone.
  A column that `state` gains is None for every key that there is; one that gets a wider type keeps its values; one that
  it loses is left behind, and is None when it comes back.
* `ctx.watermark`: a datetime in UTC, or None while there is none: in `on_rows` that of the start of the epoch in which
  the rows were read, in `on_timer` the firing watermark. When the job ends it is the last datetime there is.
* `ctx.set_timer(datetime)`: the key's one timer; setting it again replaces it. Once the rows of an epoch are done,
  timers that a rising firing watermark has reached fire by time, then key: `on_timer(key, time, state, ctx)`. It may
  set the next one, which must be later; one that is due as well fires in the same epoch.
* `on_batch(self, batch, state, ctx)` instead of `on_rows`: `batch` holds the rows of all keys of this subtask in the
  order and cuts described above, `state` the key columns and declared columns of those keys that have state. Returns
  (output table or None, new state table or None): None leaves the state as it is; a key of the batch that is not in the
  new state table is forgotten. No timers.
* `notify_complete(self, checkpoint_id)`, `notify_aborted`, `notify_subsumed`, each optional: what became of a
  checkpoint of the job, for a class that holds something outside for each of them. Told before the rows of the next
  epoch that has any, by every subtask of the operator on an instance of its own: at least once, so perhaps again; a
  completed one before those aborted since. `notify_subsumed`: nothing goes back to that one or an older one any more.
  What no later epoch continues is not told complete: the last one of a drained job, one that was gone back from, one
  whose place a backfill took; `notify_subsumed` covers those that are left behind, once it passes them.

With `output_key` in the spec, which has `key` in it, a row replaces the last one with its output key: of each an epoch
gives the last row alone. A row's key columns are those of the key that it is yielded for. `ctx.delete()` takes that row
back, `ctx.delete(day=…)` where the output key has a column `day` beside the key, `ctx.delete(table of output keys)` in
`on_batch`. Rows and deletes count in the order in which they are yielded and called. An `aggregate` or `top` may read
them, which takes a row back when it is replaced or deleted; for that each is kept until it is deleted, as
`milepost state JOB UID.output` shows.

What the output declares comes out, nothing is added; key columns only when declared. An output column named as the
input's event time is the event time again. A timestamp is a datetime with zone iff its type says UTC. Python has dates
and times of the years 1 to 9999: a key or a state beyond them fails `on_rows` and `on_timer`, naming column and value.
`on_batch` gets Arrow tables, which have every year.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.operators.contract import (
    ONLY_TABLE,
    CheckpointListener,
    Combiner,
    KeyedState,
    OperatorFailed,
    OperatorInput,
    OutputKind,
    only_table,
)
from milepost.operators.functions.declared import Declaration, schema_of
from milepost.operators.functions.process_run import ProcessInput, ProcessParts, ProcessRun
from milepost.operators.functions.user_code import UserCodeFailed, UserFunction
from milepost.operators.joins.join_columns import common_key_type
from milepost.operators.rows.columns import EventTime, check_key, plain_schema
from milepost.operators.rows.deletes import DELETED_FIELD
from milepost.protocol.records import BEGINS_NULL, TIMER_COLUMN, CheckpointId
from milepost.protocol.subtask import Notification


@dataclass(frozen=True, slots=True)
class ProcessFunction:
    """A user's class as operators get it: its code, and what it declares. Picklable; holds no class."""

    code: UserFunction
    declared: Declaration


class ProcessByKey:
    """Runs a user's class. What it raises, or gives that it did not declare, declines the epoch with its line.

    Attributes:
        parts: what its runs and its listener need of it.
    """

    combiner: Combiner | None = None

    def __init__(
        self,
        uid: str,
        key: Sequence[str],
        function: ProcessFunction,
        inputs: Mapping[str, OperatorInput],
        output_key: Sequence[str] = (),
        *,
        timed: bool,
        in_pieces: bool,
    ) -> None:
        """Args:
        inputs: by name, in the order of the spec. The event time of each puts the rows of a key in order; without one
            they keep plan order.
        output_key: by which a row of the output replaces the last one; (): a row is final.
        timed: whether a source with event time reaches it, without which no watermark and no timer is.
        in_pieces: an epoch may be cut where its time is up: rows keep plan order, which no cut changes.
        """
        for input_ in inputs.values():
            check_key(uid, key, input_.schema)
        declared = function.declared
        self.uid = uid
        self.key = self.routing_key = tuple(key)
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.routing_key,) * len(inputs)
        key_schema = pa.schema([pa.field(name, _common_type(uid, name, inputs)) for name in key])
        state = [field.with_metadata({BEGINS_NULL: "1"}) for field in schema_of(declared.state)]
        self.state_schema = pa.schema([*key_schema, *state, pa.field(TIMER_COLUMN, pa.int64())])
        self.tables = only_table(self.key, self.routing_key, self.state_schema)
        declared_output = schema_of(declared.output)
        for name in key if output_key else ():
            if (key_schema.field(name).type, declared_output.field(name).type) == (pa.float64(), pa.float32()):
                raise InvalidRequest(
                    f"operator {uid!r}: `output` declares {name} float32, which does not tell float64 keys of its "
                    "input apart. Nothing was changed.",
                    hint=f"Declare {name} float64.",
                )
        self.output_schema = pa.schema([*declared_output, DELETED_FIELD]) if output_key else declared_output
        self.output_key = tuple(output_key)
        self.output_kind = OutputKind.UPDATES if output_key else OutputKind.APPEND
        self.listener: CheckpointListener | None = _Listener(self) if declared.notified else None
        self.parts = ProcessParts(
            uid=uid,
            key=self.key,
            key_schema=key_schema,
            inputs=tuple(
                ProcessInput(name, plain_schema(one.schema), None if in_pieces else EventTime.of_input(uid, one))
                for name, one in inputs.items()
            ),
            state_schema=self.state_schema,
            function=function.code,
            declared=declared,
            output_key=self.output_key,
            no_timers=_why_no_timers(declared, timed),
        )

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> ProcessRun:
        """Make the instance that serves this epoch of this subtask. Raises OperatorFailed when that fails."""
        return ProcessRun(self.parts, self.instance(), tables[ONLY_TABLE], previous_firing_us)

    def instance(self) -> Any:
        """Make an instance of the user's class. Raises OperatorFailed with the user's line."""
        function = self.parts.function
        try:
            return function.load()()
        except UserCodeFailed as error:
            raise OperatorFailed(self.uid, str(error)) from error
        except (Exception, SystemExit) as error:
            raise OperatorFailed(self.uid, function.describe(error)) from error


class _Listener:
    """Tells an instance of the user's class what became of a checkpoint."""

    def __init__(self, operator: ProcessByKey) -> None:
        self._operator = operator

    def notify(self, checkpoint_id: CheckpointId, what: Notification) -> None:
        parts = self._operator.parts
        method = f"notify_{what.value}"
        if method not in parts.declared.notified:
            return
        instance = self._operator.instance()
        try:
            getattr(instance, method)(int(checkpoint_id))
        except (Exception, SystemExit) as error:
            raise OperatorFailed(parts.uid, parts.function.describe(error)) from error


def _common_type(uid: str, column: str, inputs: Mapping[str, OperatorInput]) -> pa.DataType:
    """Return the type that holds a key column of all inputs exactly. Raises InvalidRequest: there is none."""
    types = {name: plain_schema(one.schema).field(column).type for name, one in inputs.items()}
    (first, common), *others = types.items()
    for name, type_ in others:
        wider = common_key_type(common, type_)
        if wider is None:
            raise InvalidRequest(
                f"operator {uid!r}: key {column} is {types[first]} in {first}, {type_} in {name}: values of one are "
                "not values of the other. Nothing was changed.",
                hint="CAST one of them in a `sql` operator before it.",
            )
        common = wider
    return common


def _why_no_timers(declared: Declaration, timed: bool) -> str:
    """Return why timers cannot be set; empty when they can."""
    if declared.batches:
        return "set_timer: timers of on_batch are not available in this version"
    if not declared.timers:
        return "set_timer: the class has no on_timer"
    return "" if timed else "set_timer: no source with event_time reaches this operator: none would fire"
