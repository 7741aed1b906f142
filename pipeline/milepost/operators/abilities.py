"""Optional abilities of operators and their runs, which the data plane tests for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, runtime_checkable

import pyarrow as pa

from milepost.operators.contract import KeyedState


@runtime_checkable
class RetractingRun(Protocol):
    """A run that also emits retractions, because operators read its updates."""

    def retractions(self) -> pa.Table:
        """Return, after `finish`, the retracted rows as of the start of the epoch, and the rows that replace them.

        The schema is the output schema plus `WEIGHT_COLUMN`, -1 or 1. Rows are grouped by key, with -1 first. Rows that
        have not changed are omitted.
        """


@runtime_checkable
class ChangesRun(Protocol):
    """A run with output that may be too large for memory at the end of an epoch, as the pairs of a key may be."""

    def changes(self) -> Iterator[pa.Table]:
        """Yield, after `finish`, the rows that the epoch adds to the output and removes from it, each at most once.

        The schema is the output schema; if rows may be removed, plus `WEIGHT_COLUMN`. A table is at most OUTPUT_BYTES.
        """


@runtime_checkable
class RetractInputRun(Protocol):
    """A run over an input of mode retract."""

    def check_settled(self, *, all_keys: bool) -> None:
        """Check, after `finish` and with no rows in flight, that every retracted row had been added.

        Args:
            all_keys: check all keys, not only those of this epoch. Needed if rows were in flight before, because then a
                key without rows in this epoch may have a negative weight.
        Raises:
            OperatorFailed: a weight is below 0.
        """


@runtime_checkable
class UniqueKeysRun(Protocol):
    """A run that requires one row per key in its input once nothing is in flight."""

    def check_unique(self, *, all_keys: bool) -> None:
        """Check, after `finish` and with no rows in flight here or upstream, that no key has two rows.

        Args:
            all_keys: check all keys, not only those of this epoch. Needed if rows were in flight before.
        Raises:
            OperatorFailed: a key has two rows.
        """


@runtime_checkable
class PublishesState(Protocol):
    """An operator whose current output is a function of one of its state tables.

    Attributes:
        published_table: name of that table.
    """

    uid: str
    published_table: str

    def results(self, state_rows: pa.Table) -> pa.Table:
        """Return the output rows of some rows of the table."""


@runtime_checkable
class PublishesChanges(Protocol):
    """An operator of mode retract whose current output is a function of its state tables."""

    uid: str

    def whole(self, tables: Mapping[str, KeyedState]) -> Iterator[pa.Table]:
        """Yield all rows of the output with their weight, in tables of at most OUTPUT_BYTES."""
