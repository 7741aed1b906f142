"""Spec of the `process` operator: run a user's class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from milepost.language import ColumnType, Function, Many, Path, Problem, StepName, did_you_mean
from milepost.operators.base.key_types import key_family
from milepost.operators.base.operator_spec import EventTimeRule, KeyColumns, StatefulSpec
from milepost.operators.base.origins import GROUPED, MADE_OF, RowsLineage, after_step, union
from milepost.operators.base.output_rows import APPEND, UPDATES, OutputRows, append_problems, key_problems
from milepost.operators.base.row_trace import RowTrace, same_names
from milepost.operators.base.state_bounds import OUTPUT_TABLE, StateBound, column_list


class ProcessOperator(StatefulSpec):
    """Runs a user's class on the rows of one key at a time, from one or more inputs, with keyed state and timers.

    Attributes:
        inputs: names of sources and operators with append rows. The same name twice passes its rows twice.
        key: key columns, each once. Every input must have them, under these names.
        function: `module:Class`. The module is in the spec's folder or installed.
        output_key: key columns of the class's `output`, which must include `key`. A row replaces the previous row with
            the same output key, so the output is updates, for an upsert or changelog sink. null: rows are final
            (append).
    """

    kind: Literal["process"]
    inputs: Annotated[Many[StepName], Field(min_length=1)]
    key: KeyColumns
    function: Function
    output_key: KeyColumns | None = None

    event_time_rule: ClassVar[EventTimeRule] = EventTimeRule(
        "that of its inputs, if it has the same name in all of them and `output` has a timestamp of that name; "
        "otherwise none"
    )
    ordered_inputs: ClassVar[bool] = False
    can_be_bootstrapped: ClassVar[bool] = True
    lost_state: ClassVar[str] = "the state of its function for each key"

    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the columns that the class declares: append, or with an output key updates.

        The output has an event time if all inputs have the same one and the class declares a timestamp of that name.
        For updates, it must also be part of the output key.
        """
        problems = []
        for position, (name, rows) in enumerate(zip(self.inputs, inputs, strict=True)):
            problems += append_problems(self.kind, name, rows, path, position)
            problems += key_problems(self.key, name, rows, path)
        problems += _key_types(self, inputs, path)
        problems += _output_key_problems(self, inputs, path, declared)
        if problems:
            return problems
        output_key = self.output_key or ()
        kind = UPDATES if output_key else APPEND
        times = {(rows.event_time, rows.shift_us) for rows in inputs}
        event_time, shift_us = times.pop() if len(times) == 1 else (None, 0)
        if output_key and event_time not in output_key:
            event_time = None
        if declared is None:
            return OutputRows(
                {}, event_time, kind, output_key, columns_known=False, shift_us=shift_us, deletes=bool(output_key)
            )
        timed = (type_ := declared.get(event_time or "")) is not None and type_.kind == "timestamp"
        time = event_time if timed else None
        return OutputRows(dict(declared), time, kind, output_key, shift_us=shift_us, deletes=bool(output_key))

    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        keys = (rows.by(GROUPED, self.key) for rows in inputs)
        whole = after_step(MADE_OF, union(*(rows.whole for rows in inputs)))
        return RowsLineage({}, union(*(rows.rows for rows in inputs), *keys), whole)

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        return tuple(RowTrace(position, same_names(self.key)) for position in range(len(inputs)))

    @property
    def key_texts(self) -> list[str]:
        return list(self.key)

    @property
    def named_columns(self) -> tuple[str, ...]:
        return self.key

    def state_columns(self) -> list[tuple[str, list[str]]]:
        return [("", list(self.key))] * len(self.inputs)

    def holds_event_times(self, event_time: str | None) -> bool:
        return True  # the state of a user's class may

    def signature(self, *, retracts: bool) -> dict[str, Any]:
        # State holds the emitted rows by this key.
        return {"output_key": list(self.output_key or ())} if retracts else {}

    def state_bounds(self) -> tuple[StateBound, ...]:
        key = column_list(self.key)
        grows_with = f"distinct {key}, except those that {self.function} clears"
        return (StateBound("", f"the state of {self.function} per {key}", grows_with=grows_with),)

    def output_bound(self, output_key: Sequence[str]) -> StateBound | None:
        grows_with = f"distinct {column_list(output_key)}, except those that {self.function} deletes"
        return StateBound(OUTPUT_TABLE, "emitted rows", grows_with=grows_with)


def _output_key_problems(
    operator: ProcessOperator, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
) -> Iterator[Problem]:
    """Yield problems of the output key. It must include `key`, so that one subtask has all rows of an output key."""
    if operator.output_key is None:
        return
    for column in operator.key:
        if column not in operator.output_key:
            message = f"{column} is missing: an output key must include the operator's `key`"
            yield Problem((*path, "output_key"), message)
    for index, column in enumerate(operator.output_key):
        if declared is None:
            return
        type_ = declared.get(column)
        input_types = [rows.type_of(column) for rows in inputs] if column in operator.key else []
        if type_ is None:
            message = f"the class's `output` has no column {column}; {did_you_mean(column, declared)}"
        elif type_.is_nested:
            message = f"{column} is {type_}; a key cannot contain lists or structs"
        elif any(key is not None and not _is_injective(type_, key) for key in input_types):
            message = f"{column} is {type_} in the class's `output`, but {next(filter(None, input_types))} in its input"
        else:
            continue
        yield Problem((*path, "output_key", index), message)


def _is_injective(type_: ColumnType, key: ColumnType) -> bool:
    """Return whether different keys stay different in an output column of `type_`.

    A float64 key may collide in a float32 column. An integer that does not fit fails at run time.
    """
    return key_family(type_) == key_family(key) and (key.kind, type_.kind) != ("float64", "float32")


def _key_types(operator: ProcessOperator, inputs: Sequence[OutputRows], path: Path) -> Iterator[Problem]:
    """Yield problems of key columns whose types in two inputs cannot be compared."""
    for index, column in enumerate(operator.key):
        first, first_type = None, None
        for name, rows in zip(operator.inputs, inputs, strict=True):
            type_ = rows.type_of(column)
            if type_ is None or type_.is_nested:
                continue
            if first_type is None:
                first, first_type = name, type_
            elif key_family(type_) != key_family(first_type):
                message = f"{column} is {first_type} in {first}, but {type_} in {name}: their values cannot be compared"
                yield Problem((*path, "key", index), f"{message}; CAST one of them in an upstream `sql` operator")
                break
