"""The keys that an epoch has changed, each once, with the state they have in the end."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from milepost.operators.contract import KeyedState
from milepost.operators.rows.columns import key_columns


class ChangedKeys:
    """Collects state rows as pieces change them. With one piece its rows are the answer, and nothing is looked up."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = tuple(key)
        self._pieces: list[pa.Table] = []

    def add(self, state_rows: pa.Table) -> None:
        """Take the state rows that one piece has changed; keys are distinct in it."""
        if state_rows.num_rows:
            self._pieces.append(state_rows if not self._pieces else state_rows.select(list(self._key)))

    def current(self, state: KeyedState) -> pa.Table | None:
        """Return the changed keys' state rows as they are now, in the order of their state hash; None without any."""
        if not self._pieces:
            return None
        if len(self._pieces) == 1:
            return self._pieces[0]
        keys = pa.concat_tables([piece.select(list(self._key)) for piece in self._pieces])
        return state.group(key_columns(keys, self._key)).find()[0]
