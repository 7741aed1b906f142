"""Change feeds of TPC-H's tables: the base tables, then refreshes that insert, update and delete rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from milepost_testkit.tpch.tables import KEYS, Tpch

OP = "op"
SEQUENCE = "seq"
_UPDATED = {"customer": "c_acctbal", "supplier": "s_acctbal", "partsupp": "ps_supplycost", "part": "p_retailprice"}
"""Table -> the amount that a refresh changes. The specification has inserts and deletes of orders only."""


@dataclass
class ChangeFeed:
    """The tables as of each epoch, and the changes that lead there.

    Attributes:
        share: part of the orders that a refresh inserts (RF1) and deletes (RF2). The specification has 0.001.
        tables: the tables as of the newest epoch.
    """

    data: Tpch
    share: float = 0.01
    epoch: int = 0
    tables: dict[str, pa.Table] = field(default_factory=dict)

    def advance(self) -> dict[str, pa.Table]:
        """Return the changes of the next epoch by table: rows with `op` (I, U or D) and `seq`. A delete has the key."""
        if not self.tables:
            self.tables = self.data.base()
            changes = {name: [_changes(rows, "I", self.epoch)] for name, rows in self.tables.items()}
        else:
            changes = self._refresh()
        self.epoch += 1
        return {name: pa.concat_tables(parts) for name, parts in changes.items() if parts}

    def write(self, folder: Path) -> None:
        """Write the changes of the next epoch as Parquet files, `<folder>/epoch_<n>/<table>.parquet`."""
        number = self.epoch
        for name, rows in self.advance().items():
            file = folder / f"epoch_{number:04}" / f"{name}.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(rows, file)

    def _refresh(self) -> dict[str, list[pa.Table]]:
        random = np.random.default_rng([self.data.seed, 8, self.epoch])
        count = max(1, round(self.data.scale * 1_500_000 * self.share))
        changes: dict[str, list[pa.Table]] = {name: [] for name in KEYS}
        orders = self.tables["orders"]
        deleted = orders["o_orderkey"].take(pa.array(random.permutation(orders.num_rows)[:count]))
        for name, inserted in zip(
            ("orders", "lineitem"), self.data.sales(self.epoch, count, (self.epoch - 1) * count), strict=True
        ):
            rows = self.tables[name]
            leaves = pc.is_in(rows[KEYS[name][0]], value_set=deleted.combine_chunks())
            changes[name] += [_changes(inserted, "I", self.epoch), _changes(rows.filter(leaves), "D", self.epoch)]
            self.tables[name] = pa.concat_tables([rows.filter(pc.invert(leaves)), inserted])
        for name, amount in _UPDATED.items():
            rows = self.tables[name]
            chosen = random.random(rows.num_rows) < 0.01
            at, mask = rows.column_names.index(amount), pa.array(chosen)
            more = pc.add(rows[amount], pa.scalar(1, pa.decimal128(1, 0))).cast(rows[amount].type)
            self.tables[name] = rows.set_column(at, amount, pc.if_else(mask, more, rows[amount]))
            changes[name].append(_changes(self.tables[name].filter(mask), "U", self.epoch))
        return changes


def _changes(rows: pa.Table, op: str, epoch: int) -> pa.Table:
    if op == "D":
        keys = {key for names in KEYS.values() for key in names}
        for at, column in enumerate(rows.schema):
            if column.name not in keys:
                rows = rows.set_column(at, column, pa.nulls(rows.num_rows, column.type))
    rows = rows.append_column(OP, pa.array([op] * rows.num_rows, pa.string()))
    return rows.append_column(SEQUENCE, pa.array(np.full(rows.num_rows, epoch, np.int64)))
