"""Generate TPC-H's eight tables by scale factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost_testkit.tpch import values

KEYS: dict[str, tuple[str, ...]] = {
    "region": ("r_regionkey",),
    "nation": ("n_nationkey",),
    "supplier": ("s_suppkey",),
    "part": ("p_partkey",),
    "partsupp": ("ps_partkey", "ps_suppkey"),
    "customer": ("c_custkey",),
    "orders": ("o_orderkey",),
    "lineitem": ("l_orderkey", "l_linenumber"),
}
"""Table -> its primary key."""
_MONEY = pa.decimal128(15, 2)
_FIRST_DAY = np.datetime64("1992-01-01")
_LAST_DAY = np.datetime64("1998-08-02")
_CURRENT_DAY = np.datetime64("1995-06-17")
_LARGE = 1500
"""One order in this number has seven lines of 45 to 50 pieces, so that q18 has rows at any scale factor."""


@dataclass(frozen=True)
class Tpch:
    """The tables of one scale factor and seed. A table is the same in each process."""

    scale: float = 0.01
    seed: int = 4

    def _random(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, *stream])

    def _count(self, at_scale_one: int) -> int:
        return max(8, round(self.scale * at_scale_one))

    @property
    def suppliers(self) -> int:
        return max(100, self._count(10_000))  # fewer would supply one part twice

    @property
    def parts(self) -> int:
        return self._count(200_000)

    @property
    def customers(self) -> int:
        return self._count(150_000)

    def base(self) -> dict[str, pa.Table]:
        """Return all tables, as they are before the first refresh."""
        orders, lineitem = self.sales(0, self._count(1_500_000))
        return {
            "region": self._region(),
            "nation": self._nation(),
            "supplier": self._supplier(),
            "part": self._part(),
            "partsupp": self._partsupp(),
            "customer": self._customer(),
            "orders": orders,
            "lineitem": lineitem,
        }

    def _region(self) -> pa.Table:
        random, count = self._random(1), len(values.REGIONS)
        return pa.table({"r_regionkey": pa.array(range(count), pa.int32()), "r_name": list(values.REGIONS),
                         "r_comment": _comments(random, count, 8)})  # fmt: skip

    def _nation(self) -> pa.Table:
        random, count = self._random(2), len(values.NATIONS)
        return pa.table({"n_nationkey": pa.array(range(count), pa.int32()),
                         "n_name": [name for name, _ in values.NATIONS],
                         "n_regionkey": pa.array([region for _, region in values.NATIONS], pa.int32()),
                         "n_comment": _comments(random, count, 8)})  # fmt: skip

    def _supplier(self) -> pa.Table:
        random, count = self._random(3), self.suppliers
        keys, nations = np.arange(1, count + 1), random.integers(0, 25, count)
        comments = _comments(random, count, 8).to_pylist()
        marked = random.permutation(count)[: 2 * max(1, round(self.scale * 5))]
        for number, row in enumerate(marked):
            comments[row] += " Customer " + ("Complaints" if number % 2 else "Recommends")
        return pa.table({"s_suppkey": keys, "s_name": _numbered("Supplier", keys),
                         "s_address": _addresses(random, count), "s_nationkey": pa.array(nations, pa.int32()),
                         "s_phone": _phones(random, nations),
                         "s_acctbal": _money(random.integers(-99_999, 1_000_000, count)),
                         "s_comment": comments})  # fmt: skip

    def _part(self) -> pa.Table:
        random, count = self._random(4), self.parts
        keys = np.arange(1, count + 1)
        maker, brand = random.integers(1, 6, count), random.integers(1, 6, count)
        names = np.argsort(random.random((count, len(values.COLORS))), axis=1)[:, :5].T
        types = [_chosen(random, words, count) for words in values.TYPES]
        containers = [_chosen(random, words, count) for words in values.CONTAINERS]
        return pa.table({"p_partkey": keys, "p_name": _joined([_taken(values.COLORS, one) for one in names]),
                         "p_mfgr": _joined(["Manufacturer#", _text(maker)], ""),
                         "p_brand": _joined(["Brand#", _text(maker), _text(brand)], ""), "p_type": _joined(types),
                         "p_size": pa.array(random.integers(1, 51, count), pa.int32()),
                         "p_container": _joined(containers), "p_retailprice": _money(_retail_price(keys)),
                         "p_comment": _comments(random, count, 3)})  # fmt: skip

    def _partsupp(self) -> pa.Table:
        random, count = self._random(5), self.parts * 4
        parts = np.repeat(np.arange(1, self.parts + 1), 4)
        suppliers = self._supplier_of(parts, np.tile(np.arange(4), self.parts))
        return pa.table({"ps_partkey": parts, "ps_suppkey": suppliers,
                         "ps_availqty": pa.array(random.integers(1, 10_000, count), pa.int32()),
                         "ps_supplycost": _money(random.integers(100, 100_001, count)),
                         "ps_comment": _comments(random, count, 10)})  # fmt: skip

    def _customer(self) -> pa.Table:
        random, count = self._random(6), self.customers
        keys, nations = np.arange(1, count + 1), random.integers(0, 25, count)
        return pa.table({"c_custkey": keys, "c_name": _numbered("Customer", keys),
                         "c_address": _addresses(random, count), "c_nationkey": pa.array(nations, pa.int32()),
                         "c_phone": _phones(random, nations),
                         "c_acctbal": _money(random.integers(-99_999, 1_000_000, count)),
                         "c_mktsegment": _chosen(random, values.SEGMENTS, count),
                         "c_comment": _comments(random, count, 8)})  # fmt: skip

    def sales(self, refresh: int, count: int, first: int = 0) -> tuple[pa.Table, pa.Table]:
        """Return `count` orders and their lines. Keys of refreshes follow the first eight of each 32 keys.

        Args:
            refresh: 0 for the base tables. first: number of orders that refreshes made before.
        """
        random = self._random(7, refresh)
        number = np.arange(count) + first
        keys = number // 8 * 32 + number % 8 + 1 + (8 if refresh else 0)
        ordered = _FIRST_DAY + random.integers(0, (_LAST_DAY - _FIRST_DAY).astype(int) + 1, count)
        large = number % _LARGE == _LARGE // 3
        sizes = np.where(large, 7, random.integers(1, 8, count))
        order = np.repeat(np.arange(count), sizes)
        line = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        lines = self._lines(random, keys[order], line + 1, ordered[order], large[order])
        status, price = lines.pop("status"), lines.pop("price")
        opened = np.bincount(order, status, count)
        custkey = self._buyers[random.integers(0, len(self._buyers), count)]
        comments = _comments(random, count, 7)
        orders = pa.table({
            "o_orderkey": keys, "o_custkey": custkey,
            "o_orderstatus": np.where(opened == 0, "F", np.where(opened == sizes, "O", "P")).astype(object),
            "o_totalprice": _money(np.round(np.bincount(order, price, count)).astype(np.int64)),
            "o_orderdate": ordered, "o_orderpriority": _chosen(random, values.PRIORITIES, count),
            "o_clerk": _numbered("Clerk", random.integers(1, self._count(1000) + 1, count)),
            "o_shippriority": np.zeros(count, np.int32), "o_comment": comments,
        })  # fmt: skip
        return orders, pa.table(lines)

    @cached_property
    def _buyers(self) -> np.ndarray:
        keys = np.arange(1, self.customers + 1)
        return keys[keys % 3 != 0]

    def _lines(
        self, random: np.random.Generator, keys: np.ndarray, line: np.ndarray, ordered: np.ndarray, large: np.ndarray
    ) -> dict[str, object]:
        count = len(keys)
        parts = random.integers(1, self.parts + 1, count)
        quantity = np.where(large, random.integers(45, 51, count), random.integers(1, 51, count))
        extended = quantity * _retail_price(parts)
        discount, tax = random.integers(0, 11, count), random.integers(0, 9, count)
        shipped = ordered + random.integers(1, 122, count)
        received = shipped + random.integers(1, 31, count)
        returned = np.where(random.random(count) < 0.5, "R", "A")
        opened = shipped > _CURRENT_DAY
        return {
            "l_orderkey": keys, "l_partkey": parts,
            "l_suppkey": self._supplier_of(parts, random.integers(0, 4, count)),
            "l_linenumber": line.astype(np.int32), "l_quantity": _money(quantity * 100),
            "l_extendedprice": _money(extended), "l_discount": _money(discount), "l_tax": _money(tax),
            "l_returnflag": np.where(received <= _CURRENT_DAY, returned, "N").astype(object),
            "l_linestatus": np.where(opened, "O", "F").astype(object),
            "l_shipdate": shipped, "l_commitdate": ordered + random.integers(30, 91, count), "l_receiptdate": received,
            "l_shipinstruct": _chosen(random, values.INSTRUCTIONS, count),
            "l_shipmode": _chosen(random, values.MODES, count), "l_comment": _comments(random, count, 4),
            "status": opened.astype(np.int64), "price": extended * (100 - discount) * (100 + tax) / 10_000,
        }  # fmt: skip

    def _supplier_of(self, parts: np.ndarray, which: np.ndarray) -> np.ndarray:
        """Return one of the four suppliers of each part."""
        return (parts + which * (self.suppliers // 4 + (parts - 1) // self.suppliers)) % self.suppliers + 1


def _retail_price(parts: np.ndarray) -> np.ndarray:
    return 90_000 + parts // 10 % 20_001 + 100 * (parts % 1000)


def _money(cents: np.ndarray) -> pa.Array:
    # The same 16 bytes, read with two digits after the point: 1234 is 12.34.
    whole = pa.array(cents, pa.int64()).cast(pa.decimal128(19, 0))
    return pa.Array.from_buffers(_MONEY, len(whole), whole.buffers())


def _text(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers).cast(pa.string())


def _numbered(name: str, numbers: np.ndarray) -> pa.Array:
    return _joined([f"{name}#", pc.utf8_lpad(_text(numbers), 9, "0")], "")


def _joined(parts: Sequence[object], separator: str = " ") -> pa.Array:
    return pc.binary_join_element_wise(*parts, separator)


def _taken(words: Sequence[str], indices: np.ndarray) -> pa.Array:
    return pa.array(words).take(pa.array(indices))


def _chosen(random: np.random.Generator, words: Sequence[str], count: int) -> pa.Array:
    return _taken(words, random.integers(0, len(words), count))


def _comments(random: np.random.Generator, count: int, words: int) -> pa.Array:
    return _joined([_chosen(random, values.WORDS, count) for _ in range(words)])


def _addresses(random: np.random.Generator, count: int) -> pa.Array:
    return _joined([_text(random.integers(10**9, 10**12, count)), _chosen(random, values.COLORS, count)])


def _phones(random: np.random.Generator, nations: np.ndarray) -> pa.Array:
    parts = [random.integers(100, 1000, len(nations)), random.integers(100, 1000, len(nations)),
             random.integers(1000, 10_000, len(nations))]  # fmt: skip
    return _joined([_text(nations + 10), *map(_text, parts)], "-")
