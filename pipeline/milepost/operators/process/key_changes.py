"""Changes that calls of a process function make to state and timers of keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from milepost.operators.contract import KeyedState
from milepost.operators.process.declared import KeyState
from milepost.operators.process.python_values import values_for_python
from milepost.protocol.records import TIMER_COLUMN


class KeyChanges:
    """State and timers of some keys before and after the calls, so that only changed keys are written."""

    def __init__(self, uid: str, key: Sequence[str], keys: pa.Table, stored: pa.Table) -> None:
        """Args:
        key: key columns.
        keys: distinct keys.
        stored: the state of each key, null for a key without state.

        Raises OperatorFailed: Python cannot represent a value of the state.
        """
        self._schema = stored.schema
        self._keys = keys
        names = [name for name in self._schema.names if name not in key and name != TIMER_COLUMN]
        self._stored = stored
        self._before = {name: values_for_python(uid, "state", stored.column(name), name) for name in names}
        self._timers: list[int | None] = stored.column(TIMER_COLUMN).to_pylist()
        self._nested = [name for name in names if pa.types.is_nested(self._schema.field(name).type)]
        self._after: dict[str, list[Any]] = {name: [] for name in (*names, TIMER_COLUMN)}
        self._written: list[int] = []
        self._gone: list[int] = []

    def before(self, index: int) -> dict[str, Any]:
        """Return the key's state for its view. Values that can be mutated in place are copies."""
        values = {name: column[index] for name, column in self._before.items()}
        for name in self._nested:
            values[name] = self._stored.column(name)[index].as_py()
        return values

    def timer_before(self, index: int) -> int | None:
        return self._timers[index]

    def record(self, index: int, view: KeyState, timer_us: int | None) -> None:
        """Record the key's state and timer after the call."""
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
