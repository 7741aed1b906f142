"""The law of `top`: the newest row of each rank is the batch query over all rows so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.spec.job.operators.top import TopOperator
from milepost_testkit.models.data.batch import FLOATS, Claim, Place, differing, names, there


@dataclass(frozen=True)
class TopLaw:
    """Rows are ranked by the declared columns, null least and NaN greatest, then by all of them; nothing is late."""

    spec: TopOperator

    def late(self, place: Place) -> str | None:
        return None

    def batch(self, place: Place) -> str:
        rows = f"SELECT * REPLACE ({place.keyed(self.spec.key)}) FROM ({place.present})"
        declared = [self._declared(place, name, descends) for name, descends in self.spec.order_by]
        order = ", ".join([*declared, *(one for name in place.columns for one in self._whole(place, name))])
        rank = f"row_number() OVER (PARTITION BY upto, {names(self.spec.key)} ORDER BY {order})"
        columns = names(tuple(place.columns))
        ranked = f'SELECT upto, {columns}, {rank}::INTEGER AS "{self._rank}" FROM ({rows})'
        shown = columns if self.spec.rank is None else f'{columns}, "{self.spec.rank}"'
        return f'SELECT upto, {shown} FROM ({ranked}) WHERE "{self._rank}" <= {self.spec.n}'

    @property
    def _rank(self) -> str:
        return self.spec.rank or "__rank"

    def claims(self, place: Place) -> Iterator[Claim]:
        if self.spec.rank is None:
            if place.graph.nodes[place.uid].retracts:
                first = there(place, place.uid)
                yield Claim(
                    "what is left of changes are the first rows of each key", differing(first, self.batch(place))
                )
            return
        every = names((*place.columns, self.spec.rank))
        newest = place.shown((*self.spec.key, self.spec.rank), every)
        yield Claim("the newest rows are the first ones of each key", differing(newest, self.batch(place)))

    def _declared(self, place: Place, name: str, descends: bool) -> str:
        value = f'("{name}" + 0.0)' if place.columns[name] in FLOATS else f'"{name}"'
        return f"{value} {'DESC NULLS LAST' if descends else 'ASC NULLS FIRST'}"

    def _whole(self, place: Place, name: str) -> Iterator[str]:
        yield f'"{name}" ASC NULLS FIRST'
        if place.columns[name] in FLOATS:
            yield f"CASE WHEN \"{name}\"::VARCHAR = '-0.0' THEN 0 ELSE 1 END"
