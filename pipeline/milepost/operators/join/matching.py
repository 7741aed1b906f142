"""Find, for each left row, the right rows that have its key and satisfy comparisons.

Equalities are folded into the number of the key, and right rows are sorted by that number and by the value of one range
comparison. The matches of a left row are then a range of sorted right rows. With one key and `left < right`::

    right values   4  2  9     sorted   2  4  9
    left 3         matches 4 and 9:     positions 1 to 3
    left 9         matches nothing:     positions 3 to 3

Comparisons that are left over (`<>`, further ranges) are tested on each pair. A sum of weights needs no pairs for
`<>`: it is the sum over all rows whose value is not null, less the sum over equal ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from milepost.operators.contract import Bools, Ints
from milepost.operators.join.condition import SWAPPED
from milepost.operators.pairs.buffered_rows import batched_pairs
from milepost.operators.rows.row_order import order_numbers

_BATCH_PAIRS = 1 << 20
_RANGES = ("<", "<=", ">", ">=")
_NOT_NULL = "not null"
"""Symbol of a comparison that is true if neither side is null."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One comparison of left and right rows.

    Attributes:
        symbol: as in `Comparison`, or `_NOT_NULL`.
        left, right: numbers that sort as the values do, across both sides: null first, NaN last, one zero.
        left_valid, right_valid: which values are not null.
    """

    symbol: str
    left: Ints
    right: Ints
    left_valid: Bools
    right_valid: Bools

    @classmethod
    def of(cls, symbol: str, left: pa.ChunkedArray, right: pa.ChunkedArray) -> Compared:
        """Number the values of two columns of one type."""
        both = pa.chunked_array([*left.chunks, *right.chunks], left.type)
        numbers, valid = order_numbers([both]), both.is_valid().to_numpy()
        at = len(left)
        return cls(symbol, numbers[:at], numbers[at:], valid[:at], valid[at:])

    @property
    def swapped(self) -> Compared:
        """The same comparison with its sides swapped."""
        return Compared(SWAPPED[self.symbol], self.right, self.left, self.right_valid, self.left_valid)

    def holds(self, own: Ints, other: Ints) -> Bools:
        """Return for which pairs of left and right rows it is true."""
        left, right = self.left[own], self.right[other]
        if self.symbol == "<=>":
            return left == right
        return self.left_valid[own] & self.right_valid[other] & _TESTS[self.symbol](left, right)


_TESTS: Mapping[str, Callable[[Ints, Ints], Bools]] = {
    "=": np.equal,
    "<>": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


@dataclass(frozen=True, slots=True)
class Matches:
    """The right rows that match each left row.

    Attributes:
        order: positions of right rows, sorted by group and value.
        begins, ends: of each left row, its half-open range in that order.
        residual: comparisons that are tested on each pair.
    """

    order: Ints
    begins: Ints
    ends: Ints
    residual: tuple[Compared, ...]

    @classmethod
    def of(cls, left: Ints, right: Ints, comparisons: Sequence[Compared]) -> Matches:
        """Match rows by the number of their key, and by comparisons.

        >>> prices = Compared.of("<", pa.chunked_array([[3, 9]]), pa.chunked_array([[4, 2, 9]]))
        >>> found = Matches.of(np.array([0, 0]), np.array([0, 0, 0]), [prices])
        >>> found.order.tolist(), found.begins.tolist(), found.ends.tolist()
        ([1, 0, 2], [1, 3], [3, 3])
        """
        usable = np.ones(len(left), dtype=np.bool_), np.ones(len(right), dtype=np.bool_)
        for one in comparisons:
            if one.symbol != "<=>":
                usable = usable[0] & one.left_valid, usable[1] & one.right_valid
            if one.symbol in ("=", "<=>"):
                left, right = _refined(left, right, one.left, one.right)
        rest = [one for one in comparisons if one.symbol not in ("=", "<=>", _NOT_NULL)]
        range_ = next((one for one in rest if one.symbol in _RANGES), None)
        order = np.flatnonzero(usable[1])
        if range_ is None:
            places = right[order]
            low, high = left, left
        else:
            rest.remove(range_)
            values = np.unique(np.concatenate([range_.left, range_.right]))
            size = len(values) + 1
            places = right[order] * size + np.searchsorted(values, range_.right[order])
            own = left * size + np.searchsorted(values, range_.left)
            low, high = _bounds(range_.symbol, own, left * size, left * size + len(values))
        by_place = np.argsort(places, kind="stable")
        order, places = order[by_place], places[by_place]
        begins = np.searchsorted(places, low, side="left")
        ends = np.searchsorted(places, high, side="right")
        ends = np.where(usable[0], np.maximum(ends, begins), begins)
        return cls(order, begins, ends, tuple(rest))

    def pairs(self, batch_rows: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield pairs (left position, right position) of up to `batch_rows` rows."""
        for own, places in batched_pairs(self.begins, self.ends, batch_rows):
            other = self.order[places]
            for one in self.residual:
                holds = one.holds(own, other)
                own, other = own[holds], other[holds]
            if own.size:
                yield own, other

    def sums(self, weights: Ints) -> Ints:
        """Return for each left row the sum of the weights of its matches."""
        if self.residual:
            sums = np.zeros(len(self.begins), dtype=np.int64)
            for own, other in self.pairs(_BATCH_PAIRS):
                np.add.at(sums, own, weights[other])
            return sums
        until = np.concatenate([[0], np.cumsum(weights[self.order])])
        return until[self.ends] - until[self.begins]


def matched_weights(left: Ints, right: Ints, comparisons: Sequence[Compared], weights: Sequence[Ints]) -> list[Ints]:
    """Return for each left row the sums of the weights of the right rows that match it.

    Args:
        left, right: number of each row's key. weights: several weights of the right rows; each gives one result.
    """
    differs = next((at for at, one in enumerate(comparisons) if one.symbol == "<>"), None)
    if differs is None:
        matches = Matches.of(left, right, comparisons)
        return [matches.sums(one) for one in weights]
    others, one = [*comparisons[:differs], *comparisons[differs + 1 :]], comparisons[differs]
    not_null, equal = (
        matched_weights(left, right, [*others, replace(one, symbol=symbol)], weights) for symbol in (_NOT_NULL, "=")
    )
    return [every - same for every, same in zip(not_null, equal, strict=True)]


def _refined(left: Ints, right: Ints, left_values: Ints, right_values: Ints) -> tuple[Ints, Ints]:
    """Return new group numbers, equal for rows that are equal in their group and value."""
    _, values = np.unique(np.concatenate([left_values, right_values]), return_inverse=True)
    groups = np.concatenate([left, right]) * (int(values.max(initial=0)) + 1) + values
    _, numbers = np.unique(groups, return_inverse=True)
    return numbers[: len(left)], numbers[len(left) :]


def _bounds(symbol: str, own: Ints, least: Ints, most: Ints) -> tuple[Ints, Ints]:
    """Return the lowest and highest place that a right row has for `left SYMBOL right` to be true."""
    if symbol == "<":
        return own + 1, most
    if symbol == "<=":
        return own, most
    return least, own if symbol == ">=" else own - 1
