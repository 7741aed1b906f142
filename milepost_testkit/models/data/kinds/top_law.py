"""The law of `top`: the newest row of each rank is the batch query over all rows so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.operators.top.spec import TopOperator
from milepost_testkit.models.data.batch import Claim, Place, declared_order, differing, names, there, whole_order


@dataclass(frozen=True)
class TopLaw:
    """Rows are ranked by the declared columns, null least and NaN greatest, then by all of them; nothing is late."""

    spec: TopOperator

    def late(self, place: Place) -> str | None:
        return None

    def batch(self, place: Place) -> str:
        rows = place.with_plain_key(self.spec.key, place.present)
        declared = [declared_order(place, name, descends=descends) for name, descends in self.spec.order_by]
        whole = [one for name in place.columns for one in whole_order(place, name, descends=False)]
        function = {False: "row_number", True: "rank", "dense": "dense_rank"}[self.spec.ties]
        order = ", ".join(declared if self.spec.ties else [*declared, *whole])
        rank = f"{function}() OVER (PARTITION BY {names(('upto', *self.spec.key))} ORDER BY {order})"
        columns = names(tuple(place.columns))
        ranked = f'SELECT upto, {columns}, {rank}::INTEGER AS "{self._rank}" FROM ({rows})'
        shown = columns if self.spec.rank is None else f'{columns}, "{self.spec.rank}"'
        return f'SELECT upto, {shown} FROM ({ranked}) WHERE "{self._rank}" <= {self.spec.n}'

    @property
    def _rank(self) -> str:
        return self.spec.rank or "__rank"

    def claims(self, place: Place) -> Iterator[Claim]:
        if not self.spec.is_keyed:
            if place.graph.nodes[place.uid].retracts:
                first = there(place, place.uid)
                yield Claim(
                    "what is left of changes are the first rows of each key", differing(first, self.batch(place))
                )
            return
        rank = () if self.spec.rank is None else (self.spec.rank,)
        newest = place.shown((*self.spec.key, *rank), names((*place.columns, *rank)))
        yield Claim("the newest rows are the first ones of each key", differing(newest, self.batch(place)))
