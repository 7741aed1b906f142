"""Distinct keys that an epoch changed, with their final state rows."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from milepost.operators.contract import KeyedState
from milepost.operators.rows.columns import key_columns


class ChangedKeys:
    """Collect the state rows that pieces change. A single piece needs no lookup at the end."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = tuple(key)
        self._pieces: list[pa.Table] = []

    def add(self, state_rows: pa.Table) -> None:
        """Add the state rows that one piece changed. Its keys are distinct."""
        if state_rows.num_rows:
            self._pieces.append(state_rows if not self._pieces else state_rows.select(list(self._key)))

    def current(self, state: KeyedState) -> pa.Table | None:
        """Return the current state rows of the changed keys, by state hash, or None if no key changed."""
        if not self._pieces:
            return None
        if len(self._pieces) == 1:
            return self._pieces[0]
        keys = pa.concat_tables([piece.select(list(self._key)) for piece in self._pieces])
        return state.group(key_columns(keys, self._key)).find()[0]
