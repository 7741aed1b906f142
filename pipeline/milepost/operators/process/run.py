"""`kind: process`: a user's class that processes one key at a time, with state and event-time timers of that key.

    # in the spec; turnaround.py is in the same folder
    - {uid: turnaround, kind: process, inputs: [flights], key: [tailnum], function: "turnaround:Turnaround"}

    # in turnaround.py
    class Turnaround:
        state = {"arrived": "timestamp[us, UTC]"}                       # optional; every column may be None
        output = {"tailnum": "string", "minutes": "float64"}            # exactly the columns of the output

        def on_rows(self, key, rows, state, ctx): ...                   # yields dicts or tables of `output`
        def on_timer(self, key, time, state, ctx): ...                  # optional

A new instance (created without arguments) serves one subtask in one epoch, so nothing persists in `self`. After a
failure it may be called again for the same rows. It must therefore use no wall clock and no randomness, and have no
external side effects.

* `key`: the value of the key column, or a tuple in the order of the spec if there are several.
* `rows`: a `pa.Table` with all columns of one input and the rows of the key. It is passed once per key and epoch, in
  event-time order. Rows with equal times, and rows of an input without event time, are in plan order. If the spec sets
  `aligned_timeout` or `epoch_budget`, an epoch is cut when its time is up. Then the key's rows come in plan order, in
  any number of calls. A class that processes them row by row gives the same result wherever the cut is. No row is late.
* `ctx.input`: the input of these rows, if there are several, by its name in `inputs`. An input that is listed twice is
  `orders`, then `orders.2`. None in `on_timer`. Inputs follow in the order of the spec: all rows of the first, key
  after key, then those of the second. A class that needs them by time stores them in `state` and sets a timer.
* `state`: a mutable mapping over the declared columns. A key whose columns are all None and that has no timer is
  deleted. A column that is added to `state` is None for every existing key. A column that gets a wider type keeps its
  values. The values of a removed column are discarded, and the column is None if it is added again.
* `ctx.watermark`: a datetime in UTC, or None while there is no watermark. In `on_rows` it is the watermark at the start
  of the epoch in which the rows were read, in `on_timer` the firing watermark. When the job ends, it is the largest
  datetime.
* `ctx.set_timer(datetime)`: set the key's only timer, replacing an earlier one. After the rows of an epoch, timers that
  an advancing firing watermark has reached fire by time, then by key: `on_timer(key, time, state, ctx)`. `on_timer` may
  set the next timer, which must be later. If that timer is due as well, it fires in the same epoch.
* `on_batch(self, batch, state, ctx)` instead of `on_rows`: `batch` contains the rows of all keys of this subtask, in
  the order and cuts described above. `state` contains the key columns and declared columns of the keys that have state.
  It returns (output table or None, new state table or None). None leaves the state unchanged. A key of the batch that
  is not in the new state table is deleted. It has no timers.
* `notify_complete(self, checkpoint_id)`, `notify_aborted`, `notify_subsumed`, each optional: observe the outcome of a
  checkpoint of the job, for a class that holds an external resource per checkpoint. They are called before the rows of
  the next epoch that has rows, by every subtask of the operator, on an instance of its own. Each outcome is delivered
  at least once, so possibly repeatedly. A completed checkpoint is delivered before those aborted after it.
  `notify_subsumed` means that the job can no longer return to that checkpoint or an older one. `notify_complete` is not
  called for checkpoints that no later epoch continues: the last one of a drained job, one that was rolled back, and one
  that a backfill replaced. `notify_subsumed` covers such checkpoints when it passes them.

With `output_key` in the spec, which must include `key`, a row replaces the previous row of its output key. An epoch
emits only the last row of each output key. A row's key columns must equal the key that it is yielded for.
`ctx.delete()` deletes that row. If the output key has a further column `day`, use `ctx.delete(day=…)`, and in
`on_batch` use `ctx.delete(table of output keys)`. Rows and deletes count in the order in which they are yielded and
called. An `aggregate` or `top` may read these rows. It retracts a row that is replaced or deleted. For that purpose,
each row is stored until it is deleted, as `milepost state JOB UID.output` shows.

The output has exactly the declared columns, and key columns only if they are declared. An output column with the name
of the input's event time is the event time of the output. A timestamp is a datetime with a time zone if and only if its
type is UTC. Python has dates and times of the years 1 to 9999. A key or state outside of them fails `on_rows` and
`on_timer`, with an error that names column and value. `on_batch` receives Arrow tables, which support every year.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from milepost.errors import InvalidRequest
from milepost.language import arrow_schema
from milepost.operators.base.edges import edge_names
from milepost.operators.contract import (
    ONLY_TABLE,
    BuildOptions,
    CheckpointListener,
    Combiner,
    KeyedState,
    OperatorFailed,
    OperatorInput,
    OutputKind,
    StatefulOperator,
    only_table,
)
from milepost.operators.materialized import MaterializedOperator
from milepost.operators.pairs.join_columns import common_key_type
from milepost.operators.process.declared import Declaration
from milepost.operators.process.process_run import ProcessInput, ProcessParts, ProcessRun
from milepost.operators.process.spec import ProcessOperator
from milepost.operators.process.user_code import UserCodeFailed, UserFunction
from milepost.operators.rows.columns import EventTime, check_key, plain_schema
from milepost.operators.rows.deletes import DELETED_FIELD
from milepost.protocol.records import BEGINS_NULL, TIMER_COLUMN, CheckpointId
from milepost.protocol.subtask import Notification


def build(spec: ProcessOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    assert isinstance(options.function, ProcessFunction), f"the class of {spec.uid} is loaded before it is built"
    named = dict(zip(edge_names(spec.inputs), inputs, strict=True))
    process = ProcessByKey(
        spec.uid,
        spec.key,
        options.function,
        named,
        spec.output_key or (),
        timed=options.timed,
        in_pieces=options.in_pieces,
    )
    return MaterializedOperator(process) if options.retracts else process


@dataclass(frozen=True, slots=True)
class ProcessFunction:
    """Code and declaration of a user's class. It is picklable, because it does not hold the class itself."""

    code: UserFunction
    declared: Declaration


class ProcessByKey:
    """Runs a user's class. Its exceptions and undeclared outputs decline the epoch, with the user's line.

    Attributes:
        parts: configuration that its runs and its listener need.
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
        inputs: inputs by name, in the order of the spec. The rows of a key are ordered by the input's event time, or
            stay in plan order without one.
        output_key: columns by which an output row replaces the previous one. (): rows are final.
        timed: whether a source with event time is upstream. Without one there are no watermarks and no timers.
        in_pieces: whether an epoch may be cut when its time is up. Then rows stay in plan order, which cuts do not
            change.
        """
        for input_ in inputs.values():
            check_key(uid, key, input_.schema)
        declared = function.declared
        self.uid = uid
        self.key = self.routing_key = tuple(key)
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.routing_key,) * len(inputs)
        key_schema = pa.schema([pa.field(name, _common_type(uid, name, inputs)) for name in key])
        state = [field.with_metadata({BEGINS_NULL: "1"}) for field in arrow_schema(declared.state)]
        self.state_schema = pa.schema([*key_schema, *state, pa.field(TIMER_COLUMN, pa.int64())])
        self.tables = only_table(self.key, self.routing_key, self.state_schema)
        declared_output = arrow_schema(declared.output)
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
        """Create the instance that serves this epoch of this subtask. Raises OperatorFailed."""
        return ProcessRun(self.parts, self.instance(), tables[ONLY_TABLE], previous_firing_us)

    def instance(self) -> Any:
        """Create an instance of the user's class. Raises OperatorFailed with the user's line."""
        function = self.parts.function
        try:
            return function.load()()
        except UserCodeFailed as error:
            raise OperatorFailed(self.uid, str(error)) from error
        except (Exception, SystemExit) as error:
            raise OperatorFailed(self.uid, function.describe(error)) from error


class _Listener:
    """Notifies an instance of the user's class of the outcome of a checkpoint."""

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
    """Return the type that represents a key column of all inputs exactly. Raises InvalidRequest: there is none."""
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
    """Return why timers cannot be set, or "" if they can."""
    if declared.batches:
        return "set_timer: timers of on_batch are not available in this version"
    if not declared.timers:
        return "set_timer: the class has no on_timer"
    return "" if timed else "set_timer: no source with event_time reaches this operator: none would fire"
