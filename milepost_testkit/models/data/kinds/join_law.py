"""The law of an interval join: pairs, and unmatched rows once no match can arrive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from milepost.operators.join.spec import JoinOperator
from milepost.operators.join.unmatched import LEFT_ALONE
from milepost_testkit.models.data.batch import Claim, Place, differing, microseconds, names


@dataclass(frozen=True)
class JoinLaw:
    """On-time rows of one key, close in event time. A null key matches nothing."""

    spec: JoinOperator

    def late(self, place: Place) -> str | None:
        return f"{place.time_us} < __stamp"

    def batch(self, place: Place) -> str:
        left, right = self._columns(place)
        rows, near = self._sides(place), self._near
        pairs = f"SELECT l.upto, {left}, {right} FROM {rows['l']} JOIN {rows['r']} USING (upto) WHERE {near}"
        lasts = f"r.__time - {self._low_us}"
        alone = {
            "left": f"SELECT l.upto, {left}, {self._nulls(right)} FROM {self._alone(place, 'l', 'r', self._last)}",
            "right": f"SELECT r.upto, {self._under(place)}, {right} FROM {self._alone(place, 'r', 'l', lasts)}",
            "semi": f"SELECT l.upto, {left} FROM {rows['l']} WHERE {self._there(place, 'l', 'r')}",
            "anti": f"SELECT l.upto, {left} FROM {self._alone(place, 'l', 'r', self._last)}",
        }
        if self.spec.how in LEFT_ALONE:
            return alone[self.spec.how]
        sides = {"inner": (), "full": ("left", "right")}.get(self.spec.how, (self.spec.how,))
        return " UNION ALL ".join([pairs, *(alone[side] for side in sides)])

    def claims(self, place: Place) -> Iterator[Claim]:
        node = place.graph.nodes[place.uid]
        shown = place.appended(names(tuple(node.columns)))
        says = "rows are all pairs of one key that are near in time, and those that pair with nothing"
        yield Claim(says, differing(shown, self.batch(place)))
        if node.event_time is None:
            return
        early = f'SELECT * FROM "{place.uid}" WHERE epoch_us("{node.event_time}") + {node.shift_us}'
        yield Claim("rows are on time for consumers", f"{early} < __stamp - {node.holdback_us}")

    def _sides(self, place: Place) -> dict[str, str]:
        left, right = replace(place, position=0), replace(place, position=1)
        return {
            name: f"(SELECT *, {one.time_us} AS __time FROM ({one.at_each(one.on_time(self.late(one)))})) {name}"
            for one, name in ((left, "l"), (right, "r"))
        }

    @property
    def _near(self) -> str:
        same = " AND ".join(f'l."{one}" = r."{other}"' for one, other in self.spec.key)
        return f"{same} AND r.__time BETWEEN {self._first} AND {self._last}"

    @property
    def _low_us(self) -> int:
        return microseconds(self.spec.constant_bounds[0])

    @property
    def _first(self) -> str:
        """The least event time of a match of a left row. A null of a row's own bound matches nothing."""
        first, row = f"l.__time + {self._low_us}", self.spec.row_bounds.get(0)
        return first if row is None else f'greatest({first}, coalesce(epoch_us(l."{row.column}"), 1e18::BIGINT))'

    @property
    def _last(self) -> str:
        """The greatest event time of a match of a left row, which may be a column of it."""
        (_, high), row = self.spec.constant_bounds, self.spec.row_bounds.get(1)
        own = "" if row is None else f'epoch_us(l."{row.column}")'
        if high is None:
            return own
        last = f"l.__time + {microseconds(high)}"
        return f"CASE WHEN {own} IS NOT NULL THEN least({last}, {own}) END" if own else last

    def _there(self, place: Place, own: str, other: str) -> str:
        side = self._sides(place)[other]
        return f"EXISTS (SELECT 1 FROM {side} WHERE {other}.upto = {own}.upto AND {self._near})"

    def _alone(self, place: Place, own: str, other: str, last: str) -> str:
        """Return the unmatched rows of one side: with a null key, or once the watermark has passed their last match."""
        keys = [pair["lr".index(own)] for pair in self.spec.key]
        null = " OR ".join(f'{own}."{name}" IS NULL' for name in keys)
        mark = f"(SELECT watermark_us FROM mark WHERE node = '{place.uid}' AND mark.upto = {own}.upto)"
        past = f"coalesce(coalesce({last}, -1e18::BIGINT) < {mark}, false)"
        return f"{self._sides(place)[own]} WHERE NOT {self._there(place, own, other)} AND ({null} OR {past})"

    def _columns(self, place: Place) -> tuple[str, str]:
        """Return the columns of a pair: those of the left row, then those of the right row."""
        graph, inputs = place.graph, place.graph.nodes[place.uid].inputs
        left = [f'l."{name}"' for name in graph.nodes[inputs[0]].columns]
        return ", ".join(left), ", ".join(f'r."{name}" AS "{new}"' for name, new in self._right_columns(place))

    def _right_columns(self, place: Place) -> list[tuple[str, str]]:
        renamed = {old: new for new, old in self.spec.renamed.items()}
        keys = [other for _, other in self.spec.key]
        columns = place.graph.nodes[place.graph.nodes[place.uid].inputs[1]].columns
        return [(name, renamed.get(name, name)) for name in columns if name not in keys]

    def _nulls(self, right: str) -> str:
        return ", ".join("NULL" for _ in right.split(", "))

    def _under(self, place: Place) -> str:
        """Return the left columns of an unmatched right row: its key, its event time, and nulls."""
        left, right = (place.graph.nodes[name] for name in place.graph.nodes[place.uid].inputs)
        shown = {**dict(self.spec.key), left.event_time: right.event_time}
        return ", ".join(f'r."{shown[name]}"' if name in shown else "NULL" for name in left.columns)
