"""The law of an as-of join: each left row behind the watermark, with the newest version of its key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from milepost.operators.asof.spec import AsofOperator
from milepost_testkit.models.data.batch import FLOATS, Claim, Place, differing, names


@dataclass(frozen=True)
class AsofLaw:
    """Joins the last version that is not after the row. Among versions of equal time, the greatest row counts."""

    spec: AsofOperator

    def late(self, place: Place) -> str | None:
        return f"{place.time_us} < __stamp"

    def batch(self, place: Place) -> str:
        left, right = (self._side(replace(place, position=at)) for at in (0, 1))
        same = " AND ".join(f'l."{one}" = r."{other}"' for one, other in self.spec.key)
        on = f"l.upto = r.upto AND {same} AND r.__time <= l.__time"
        null = " OR ".join(f'l."{one}" IS NULL' for one, _ in self.spec.key)
        mark = f"(SELECT watermark_us FROM mark WHERE node = '{place.uid}' AND mark.upto = l.upto)"
        how = "LEFT" if self.spec.how == "left" else "INNER"
        order = ", ".join(["r.__time DESC NULLS LAST", *self._whole(place)])
        return (
            f"SELECT l.upto, {self._columns(place)} FROM ({left}) l {how} JOIN ({right}) r ON {on} "
            f"WHERE {null} OR coalesce(l.__time < {mark}, false) "
            f"QUALIFY row_number() OVER (PARTITION BY l.upto, l.__order ORDER BY {order}) = 1"
        )

    def claims(self, place: Place) -> Iterator[Claim]:
        node = place.graph.nodes[place.uid]
        shown = place.appended(names(tuple(node.columns)))
        yield Claim("rows that are passed have the newest version", differing(shown, self.batch(place)))
        early = f'SELECT * FROM "{place.uid}" WHERE epoch_us("{node.event_time}") + {node.shift_us} < __stamp'
        yield Claim("rows are on time for consumers", early)

    def _side(self, place: Place) -> str:
        return f"SELECT *, {place.time_us} AS __time FROM ({place.at_each(place.on_time(self.late(place)))})"

    def _whole(self, place: Place) -> Iterator[str]:
        keys = [other for _, other in self.spec.key]
        for name in self._of_right(place):
            if name not in keys:
                yield f'r."{name}" DESC NULLS LAST'
                if place.columns.get(name) in FLOATS:
                    yield f"CASE WHEN r.\"{name}\"::VARCHAR = '-0.0' THEN 1 ELSE 0 END"

    def _of_right(self, place: Place) -> list[str]:
        return list(place.graph.nodes[place.graph.nodes[place.uid].inputs[1]].columns)

    def _columns(self, place: Place) -> str:
        renamed = {old: new for new, old in self.spec.renamed.items()}
        keys = [other for _, other in self.spec.key]
        left = [f'l."{name}"' for name in place.graph.nodes[place.graph.nodes[place.uid].inputs[0]].columns]
        right = [f'r."{name}" AS "{renamed.get(name, name)}"' for name in self._of_right(place) if name not in keys]
        return ", ".join([*left, *right])
