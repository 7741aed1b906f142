"""The law of lookups: the rows of each epoch joined with the static source of that epoch."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import pyarrow as pa

from milepost.epoch.dimensions import DimensionSnapshot
from milepost.operators.lookup.spec import LookupOperator
from milepost.protocol.records.ids import CheckpointId, FencingToken
from milepost.protocol.records.object_store import ObjectStore
from milepost.sources.dimension import encode_dimension
from milepost.storage.layout import dimensions_prefix
from milepost.storage.object_handles import handle_of
from milepost_testkit.models.data.batch import Claim, Place, differing, names

STATIC = "d"
KEYS = {"k": "dk", "f": "df", "i": "di"}
"""Columns of rows, and of the static source that they are looked up by."""
SCHEMA = pa.schema([("dk", pa.string()), ("df", pa.float64()), ("di", pa.int64()), ("label", pa.string())])
DOCUMENT = {
    "format": "parquet",
    "path": f"../{STATIC}/*.parquet",
    "schema": {"dk": "string", "df": "float64", "di": "int64", "label": "string"},
    "static": True,
}
_TEXTS = ("a", "b", None, "", "a longer key, which is no inlined one", "c")
_FLOATS = (1.5, -0.0, None, float("nan"), 0.0)
_WHOLE = (0, 1, None, 2**31 - 1, 2**40)
_MOST = 12


def static_rows(epoch: int) -> pa.Table:
    """Return the rows of the static source at an epoch's trigger. Keys repeat, and rows change with each epoch."""
    places = range(1, 1 + epoch * 5 % _MOST + 1)
    rows = [
        (_TEXTS[n % len(_TEXTS)], _FLOATS[n % len(_FLOATS)], _WHOLE[n % len(_WHOLE)], f"{n * epoch % 7} of {epoch}-{n}")
        for n in places
    ]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)], SCHEMA
    )


def copy_of(store: ObjectStore, rows: pa.Table, epoch: int, token: FencingToken) -> DimensionSnapshot:
    """Store the dimension copy of an epoch, as its driver does."""
    body = encode_dimension(rows)
    key = f"{dimensions_prefix(CheckpointId(epoch), token)}{STATIC}-{epoch}.arrow"
    store.put(key, body)
    return DimensionSnapshot((), "0" * 64, handle_of(key, body), rows.num_rows, rows.nbytes)


@dataclass(frozen=True)
class LookupLaw:
    """Rows joined with the static row of their key in their epoch, the first one in its order if there are several.

    Attributes:
        read: the emitted columns, those that a reader needs.
    """

    spec: LookupOperator
    read: Collection[str]

    def claims(self, place: Place) -> Iterator[Claim]:
        input_ = place.graph.nodes[place.input]
        new = {column: name for name, column in self.spec.renamed.items()}
        keys = [(_value(f'i."{left}"', left), _value(f'd."{right}"', left), right) for left, right in self.spec.key]
        (order, descends), *_ = self.spec.order_by
        among = ", ".join(["__epoch", *(own for _, own, _ in keys)])
        first = f'row_number() OVER (PARTITION BY {among} ORDER BY "{order}" {"DESC" if descends else "ASC"}) = 1'
        chosen = f'SELECT * FROM "{self.spec.dimension}" d QUALIFY {first}'
        equal = " AND ".join(f"{left} = {right}" for left, right, _ in keys)
        found = [
            name for name in place.graph.nodes[self.spec.dimension].columns if name not in {one for *_, one in keys}
        ]
        own = [(f'i."{name}"', name) for name in input_.columns]
        own += [(f'd."{name}"', new.get(name, name)) for name in found]
        needed = ", ".join(value for value, name in own if name in self.read)
        expected = f'''SELECT i.__epoch, i.__stamp, {needed} FROM "{place.input}" i {self.spec.how} JOIN ({chosen}) d
            ON {equal} AND d.__epoch = i.__epoch'''
        columns = names([name for _, name in own if name in self.read])
        actual = f'SELECT __epoch, __stamp, {columns} FROM "{place.uid}"'
        yield Claim("rows are looked up in what was held in their epoch", differing(actual, expected))


def _value(text: str, column: str) -> str:
    return f"({text} + 0.0)" if column == "f" else text
