"""`kind: top`: the first n rows of each key. Each epoch emits the ranks with another row than before.

Without a rank column the output is a set of rows without a key, which only operators can read: they get the rows that
entered or left the first n. A row that only changes its rank is neither::

    n = 2, rows of a key by score    ranks emitted          net changes without ranks
    9  7                             1: 9, 2: 7             +9 +7
    8 arrives: 9  8                  2: 8                   -7 +8

Over append-only input the state has only rows that can still be among the first n, because a row after n others never
will be. Over updates it has all rows, because those before one may be retracted. Equal rows are stored once, with a
count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from milepost.operators.base.operator_spec import ordered_columns
from milepost.operators.contract import (
    ONLY_TABLE,
    Bools,
    BuildOptions,
    CheckpointListener,
    Combiner,
    Ints,
    KeyedState,
    OperatorFailed,
    OperatorInput,
    OutputKind,
    RowsOfKeys,
    StatefulOperator,
    StateTable,
    multi_row_table,
)
from milepost.operators.rows.changed_keys_run import RetractedKeysRun
from milepost.operators.rows.columns import (
    check_key,
    check_order,
    distinct_columns,
    first_of_each,
    group_rows,
    key_columns,
    number_keys,
    places_in_groups,
    plain_schema,
    with_plain_keys,
)
from milepost.operators.rows.deletes import DELETED_FIELD, with_deletes
from milepost.operators.rows.retractions import with_weights
from milepost.operators.rows.row_order import OrderBy, order_numbers, sorted_rows, tie_break
from milepost.operators.top.spec import MOST_TIES, TopOperator
from milepost.protocol.records import IDENTITY_COLUMNS, WEIGHT_COLUMN

RANK = pa.int32()
"""Type of a rank, as of Spark's `row_number`."""

_UNSHOWN_RANK = "__rank"
"""Column with the rank of rows if the output has no such column."""

_Ranks: TypeAlias = tuple[pa.Table, Ints]
"""Rows of the output, and the place of each among all ranks of the keys that the epoch changed."""


def build(spec: TopOperator, inputs: Sequence[OperatorInput], options: BuildOptions) -> StatefulOperator:
    """Return the operator of a spec. Raises InvalidRequest."""
    (input_,) = inputs
    ties = Ties(is_dense=spec.ties == "dense", most=spec.max_ties or MOST_TIES) if spec.ties else None
    return TopByKey(spec.uid, spec.key, spec.order_by, spec.n, spec.rank, input_, ties)


@dataclass(frozen=True, slots=True)
class Ties:
    """Rows that are equal in the declared order have one rank.

    Attributes:
        is_dense: whether the next rank is the next number. most: number of rows that a key may have.
    """

    is_dense: bool
    most: int


class TopByKey:
    """The first rows of each key by rank. Nothing is ever late, and null is a key of its own."""

    output_kind = OutputKind.UPDATES
    published_table = ONLY_TABLE
    combiner: Combiner | None = None
    listener: CheckpointListener | None = None

    def __init__(
        self,
        uid: str,
        key: Sequence[str],
        order_by: OrderBy,
        n: int,
        rank: str | None,
        input_: OperatorInput,
        ties: Ties | None = None,
    ) -> None:
        """Args:
        order_by: as Spark sorts. n: how many rows of a key, or with ties the greatest rank. rank: column that has their
            places; None: none has.
        """
        schema = input_.schema
        check_key(uid, key, schema)
        check_order(uid, ordered_columns(order_by), schema)
        self.uid, self.key, self.order_by, self.n = uid, tuple(key), order_by, n
        self.rank, self.ties = rank or _UNSHOWN_RANK, ties
        self.is_keyed = ties is None and (rank is not None or (n == 1 and bool(key)))
        self.over_updates = WEIGHT_COLUMN in schema.names
        self.input_schema = pa.schema([field for field in plain_schema(schema) if field.name != WEIGHT_COLUMN])
        self.routing_keys: tuple[tuple[str, ...], ...] = (self.key,)
        ranked = [] if rank is None else [pa.field(rank, RANK)]
        self.output_key = (*self.key, *(field.name for field in ranked)) if self.is_keyed else ()
        self.ranked_schema = distinct_columns(uid, [*self.input_schema, *ranked])
        self.deletes = self.is_keyed and self.over_updates and not input_.always_has(key)
        self.output_schema = self.ranked_schema.append(DELETED_FIELD) if self.deletes else self.ranked_schema
        broken_by = tie_break(self.input_schema, self.key, ordered_columns(order_by))
        self.tables: Mapping[str, StateTable] = {
            ONLY_TABLE: multi_row_table(self.key, self.input_schema, tie_break=broken_by)
        }
        self.state_columns = (*self.input_schema.names, *IDENTITY_COLUMNS, WEIGHT_COLUMN)

    def begin(self, tables: Mapping[str, KeyedState], previous_firing_us: int | None) -> TopRun:
        """Start one subtask's epoch; nothing here fires."""
        return TopRun(self, tables[ONLY_TABLE])

    def ingest(self, rows: pa.Table, state: KeyedState) -> pa.Table:
        """Store the rows that may be among the first of their key, and return the distinct keys."""
        weights = rows.column(WEIGHT_COLUMN) if self.over_updates else None
        rows = rows.select(self.input_schema.names).cast(self.input_schema)
        rows = with_plain_keys(rows, self.key)
        groups, keys = number_keys(rows.select(list(self.key)) if self.key else key_columns(rows, ()))
        if weights is not None:
            state.add(rows.append_column(WEIGHT_COLUMN, weights))
        else:
            self._keep_first(rows, groups, keys, state)
        return keys

    def _keep_first(self, rows: pa.Table, groups: Ints, keys: pa.Table, state: KeyedState) -> None:
        """Store only the stored and new rows that are among the first now.

        Args:
            groups: of each row the number of its key in `keys`.
        """
        stored = state.lookup_all(keys)
        known = stored.take(self.state_columns)
        both = pa.concat_tables([known.select(rows.column_names), rows])
        weights = np.concatenate([_weights(known), np.ones(rows.num_rows, dtype=np.int64)])
        order, begins, before = self._places(both, np.concatenate([stored.owners, groups]), weights)
        kept = np.empty(len(order), dtype=np.bool_)
        # Equal rows are retained or dropped together, so the state does not depend on how rows were cut into pieces.
        kept[order] = (before[begins] < self.n)[np.cumsum(begins) - 1]
        outranked = pa.array(np.flatnonzero(~kept[: known.num_rows]))
        state.delete(known.select([*self.key, *IDENTITY_COLUMNS]).take(outranked))
        state.add(rows.filter(pa.array(kept[known.num_rows :])))

    def changes(self, keys: pa.Table, state: KeyedState) -> tuple[pa.Table, pa.Table]:
        """Return (changed rows with weights, former rows of ranks that ended) of distinct keys, by key and rank."""
        if not self.is_keyed:
            return self.net_changes(keys, state), self.ranked_schema.empty_table()
        (before, place_before), (now, place) = self.changed(keys, state)
        ended = before.filter(pa.array(~np.isin(place_before, place)))
        return with_weights(before, place_before, now, place), ended

    def changed(self, keys: pa.Table, state: KeyedState) -> tuple[_Ranks, _Ranks]:
        """Return the ranks of distinct keys with rows that changed in this epoch: the old rows, then the new ones.

        A rank that no longer has a row is only among the old ones.
        """
        now, place = self._first_rows(state.lookup_all(keys))
        before, place_before = self._first_rows(state.lookup_all_at_start(keys))
        _, at, at_before = np.intersect1d(place, place_before, assume_unique=True, return_indices=True)
        same = np.logical_and.reduce(
            [now.column(name).to_numpy()[at] == before.column(name).to_numpy()[at_before] for name in IDENTITY_COLUMNS]
        )
        others = np.delete(np.arange(now.num_rows), at[same]), np.delete(np.arange(before.num_rows), at_before[same])
        now, before = (
            rows.select(self.ranked_schema.names).take(pa.array(positions))
            for rows, positions in zip((now, before), others, strict=True)
        )
        return (before, place_before[others[1]]), (now, place[others[0]])

    def net_changes(self, keys: pa.Table, state: KeyedState) -> pa.Table:
        """Return the rows that entered or left the first n of distinct keys, weighted, by key, retractions first."""
        sides = [state.lookup_all_at_start(keys), state.lookup_all(keys)]
        (before, of_before), (now, of_now) = (self._ranked(one.take(self.state_columns), one.owners) for one in sides)
        rows, owners = pa.concat_tables([before, now]), np.concatenate([of_before, of_now])
        # A row whose rank changes is another row if the rank is shown. Of ties, more than the first n may be shown.
        shown = [self.rank] if self.rank in self.ranked_schema.names else []
        identity = rows.select([*IDENTITY_COLUMNS, *shown]).append_column("__key", pa.array(owners))
        codes, count = group_rows(identity)
        weights = np.zeros(count, dtype=np.int64)
        np.add.at(weights, codes, np.repeat([-1, 1], [before.num_rows, now.num_rows]))
        changed = np.flatnonzero(weights)
        first = first_of_each(codes, count)[changed]
        order = np.lexsort((weights[changed] > 0, owners[first]))
        found = rows.select(self.ranked_schema.names).take(pa.array(first[order]))
        return found.append_column(WEIGHT_COLUMN, pa.array(weights[changed][order]))

    def results(self, state_rows: pa.Table) -> pa.Table:
        """Return the output of all rows of some state, by key and rank."""
        groups, _ = group_rows(key_columns(state_rows, self.key))
        rows = self._ranked(state_rows, groups)[0].select(self.ranked_schema.names)
        return self.marked(rows, self.ranked_schema.empty_table())

    def marked(self, rows: pa.Table, ended: pa.Table) -> pa.Table:
        """Return rows as they are emitted: where ranks may end, with the deletes of those that have ended."""
        return with_deletes(rows, ended, self.output_key) if self.deletes else rows

    def _first_rows(self, found: RowsOfKeys) -> tuple[pa.Table, Ints]:
        """Return the first rows of keys with their identity, and the place of each among those of all keys."""
        rows, owners = self._ranked(found.take(self.state_columns), found.owners)
        return rows, owners * self.n + rows.column(self.rank).to_numpy() - 1

    def _ranked(self, state_rows: pa.Table, owners: Ints) -> tuple[pa.Table, Ints]:
        """Return the first rows of each key with their rank, by key and rank, and the key number of each."""
        # n = 4, three distinct rows of one key in order:
        #   weight    2  1  3
        #   before    0  2  3     rows of the key that precede it
        #   shown     2  1  1     of the third row, only one copy is among the first 4
        weights = np.maximum(_weights(state_rows), 0)  # below 0 a row is absent
        order, _, before = self._places(state_rows.select(self.input_schema.names), owners, weights)
        if self.ties is None:
            shown = np.clip(self.n - before, 0, weights[order])
            places = places_in_groups(shown)
        else:
            shown = np.where(before < self.n, weights[order], 0)
            self._check_ties(state_rows, order, owners[order], shown)
            places = np.zeros(int(shown.sum()), dtype=np.int64)
        positions = np.repeat(order, shown)
        ranks = pa.array(np.repeat(before, shown) + places + 1).cast(RANK)
        return state_rows.take(pa.array(positions)).append_column(self.rank, ranks), owners[positions]

    def _check_ties(self, rows: pa.Table, order: Ints, owners: Ints, shown: Ints) -> None:
        """Raises OperatorFailed: a key has too many rows of the first ranks."""
        assert self.ties is not None
        counts = np.bincount(owners, shown)
        crowded = np.flatnonzero(counts[owners] > self.ties.most)
        if crowded.size:
            row = int(order[crowded[0]])
            key = ", ".join(f"{name} = {rows.column(name)[row]}" for name in self.key) or "all rows"
            raise OperatorFailed(
                self.uid,
                f"expected at most {self.ties.most:,} rows of the first {self.n:,} ranks, got "
                f"{int(counts[owners[crowded[0]]]):,} for {key}; raise `max_ties`, or add columns to `order_by`",
            )

    def _places(self, rows: pa.Table, owners: Ints, weights: Ints) -> tuple[Ints, Bools, Ints]:
        """Sort rows by key and rank.

        Returns:
            (positions in that order, of each whether it differs from the one before, and how many rows of its key are
            before it; with ties, how many are before all that tie with it, or how many ranks).
        """
        order, begins = sorted_rows(rows, owners, self.order_by)
        of_key = owners[order]
        first = np.ones(len(order), dtype=np.bool_)
        np.not_equal(of_key[1:], of_key[:-1], out=first[1:])
        counted = weights[order]
        if self.ties is not None:
            # views         9  9  7  5       rows of one key, in order
            # rows before   0  0  2  3       rank 1  1  3  4
            # ranks before  0  0  1  2       dense 1  1  2  3
            declared = order_numbers([rows.column(name) for name in ordered_columns(self.order_by)])[order]
            opens = first.copy()
            opens[1:] |= declared[1:] != declared[:-1]
            of_tie = np.cumsum(opens) - 1
            sums = np.bincount(of_tie, counted, minlength=int(opens.sum())).astype(np.int64)
            counted = np.where(opens, ((sums > 0) if self.ties.is_dense else sums)[of_tie], 0)
        before = np.cumsum(counted) - counted
        if self.ties is not None:
            before = before[np.flatnonzero(opens)[of_tie]]
        return order, begins, before - before[first][np.cumsum(first) - 1]


class TopRun(RetractedKeysRun[TopByKey]):
    """One subtask's epoch of a `TopByKey`."""

    def check_settled(self, *, all_keys: bool) -> None:
        """Raises OperatorFailed: a row was retracted but never inserted."""
        if self._operator.over_updates:
            super().check_settled(all_keys=all_keys)


def _weights(state_rows: pa.Table) -> Ints:
    return state_rows.column(WEIGHT_COLUMN).to_numpy()
