"""The captured output of every node of a job, by epoch and in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from milepost.epoch.plan import EpochPlan

EPOCH, STAMP, ORDER = "__epoch", "__stamp", "__order"
"""Columns in addition to a node's own: number of the epoch, lateness stamp (us; null: none) and order of arrival."""


@dataclass(frozen=True)
class Begin:
    """The starting position of an epoch, from its plan.

    Attributes:
        idle_before, idle: idle sources at its start and at its end, which no operator waits for.
        fired: per operator, the time up to which each subtask had fired (us); None if it had not fired.
    """

    idle_before: frozenset[str] = frozenset()
    idle: frozenset[str] = frozenset()
    fired: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: EpochPlan) -> Begin:
        return cls(
            frozenset(one.name for one in plan.inputs if one.idle_before),
            frozenset(one.name for one in plan.inputs if one.idle),
            dict(plan.firing),
        )


@dataclass
class Captured:
    """Rows of each node (`<uid>.late` for its late rows) by the number of their epoch.

    Attributes:
        begins: starting positions by epoch. An absent epoch had no idle source, and no node that had fired beyond its
            inputs.
    """

    pieces: dict[str, list[tuple[int, int | None, pa.Table]]] = field(default_factory=dict)
    begins: dict[int, Begin] = field(default_factory=dict)

    def add(self, node: str, epoch: int, stamp_us: int | None, rows: pa.Table) -> None:
        """Add rows with one stamp."""
        self.pieces.setdefault(node, []).append((epoch, stamp_us, rows))

    def forget(self, epoch: int) -> None:
        """Drop the rows of an aborted attempt."""
        for node, pieces in self.pieces.items():
            self.pieces[node] = [piece for piece in pieces if piece[0] != epoch]

    def rows(self, node: str) -> int:
        """Return the number of rows that a node emitted."""
        return sum(rows.num_rows for _, _, rows in self.pieces.get(node, ()))

    def table(self, node: str) -> pa.Table | None:
        """Return all rows of a node with `EPOCH`, `STAMP` and `ORDER`; None if there are none."""
        pieces = self.pieces.get(node)
        if not pieces:
            return None
        numbered = [
            rows.append_column(EPOCH, pa.array([epoch] * len(rows), pa.int64())).append_column(
                STAMP, pa.array([stamp_us] * len(rows), pa.int64())
            )
            for epoch, stamp_us, rows in pieces
        ]
        table = pa.concat_tables(numbered)
        return table.append_column(ORDER, pa.array(range(len(table)), pa.int64()))
