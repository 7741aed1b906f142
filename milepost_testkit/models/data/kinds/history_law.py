"""The law of `history`: the versions of each key, from the winning row of each key and sequence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.operators.history.spec import IS_CURRENT, VALID_FROM, VALID_TO, VERSION_COLUMNS, HistoryOperator
from milepost_testkit.models.data.batch import Claim, Place, declared_order, differing, names, whole_order


@dataclass(frozen=True)
class HistoryLaw:
    """Of rows with equal key and sequence, a delete wins, then the greatest row. Nothing is late.

    A version begins at a row without a previous one, at one after a delete, and at one with another tracked value.
    """

    spec: HistoryOperator

    def late(self, place: Place) -> str | None:
        return None

    def batch(self, place: Place) -> str:
        key, time = names(self.spec.key), f'"{self.spec.sequence}"'
        per_key = (
            f"OVER (PARTITION BY upto, {key} ORDER BY {declared_order(place, self.spec.sequence, descends=False)})"
        )
        track = self.spec.track
        same = "false"
        if track is not None:  # as text, because -0.0 is not 0.0
            equal = [f'"{name}"::VARCHAR IS NOT DISTINCT FROM lag("{name}"::VARCHAR) {per_key}' for name in track]
            same = f"coalesce(NOT __gone AND NOT lag(__gone) {per_key} AND {' AND '.join(equal)}, false)"
        marked = f"SELECT *, NOT {same} AS __begins FROM ({self._winners(place)})"
        spans = f"SELECT *, count(*) FILTER (WHERE __begins) {per_key} AS __span FROM ({marked})"
        of_span = f"OVER (PARTITION BY upto, {key}, __span ORDER BY {time})"
        rows = (
            f'SELECT *, first_value({time}) {of_span} AS "{VALID_FROM}", lead({time}) {per_key} AS "{VALID_TO}", '
            f'lead(upto) {per_key} IS NULL AS "{IS_CURRENT}", coalesce(lead(__begins) {per_key}, true) AS __ends '
            f"FROM ({spans})"
        )
        return f"SELECT upto, {self._columns(place)} FROM ({rows}) WHERE __ends AND NOT __gone"

    def claims(self, place: Place) -> Iterator[Claim]:
        shown = place.shown((*self.spec.key, VALID_FROM), self._columns(place))
        yield Claim("the newest rows are the versions", differing(shown, self.batch(place)))
        if self.spec.versions_can_end:
            ended = names((*self.spec.key, VALID_FROM))
            before = f"lag(__deleted) OVER (PARTITION BY upto, {ended} ORDER BY __order)"
            own = place.at_each(f'SELECT * FROM "{place.uid}"')
            rows = f"SELECT *, coalesce({before}, true) AS was_gone FROM ({own})"
            yield Claim("a delete is of a version in the table", f"SELECT * FROM ({rows}) WHERE __deleted AND was_gone")

    def _columns(self, place: Place) -> str:
        return names((*self._shown(place), *VERSION_COLUMNS))

    def _shown(self, place: Place) -> tuple[str, ...]:
        return self.spec.columns or tuple(place.columns)

    def _winners(self, place: Place) -> str:
        """Return one row per key and sequence at each checkpoint, and whether it is a delete."""
        gone = "false" if self.spec.delete_when is None else f"coalesce({self.spec.delete_when}, false)"
        rows = f"SELECT *, {gone} AS __gone FROM ({place.present})"
        row_key = (*self.spec.key, self.spec.sequence)
        keyed = f"SELECT * REPLACE ({place.keyed(row_key)}) FROM ({rows})"
        stored = [name for name in place.columns if name in {*row_key, *self._shown(place)}]
        order = ["__gone DESC", *(one for name in stored for one in whole_order(place, name, descends=True))]
        rank = f"row_number() OVER (PARTITION BY upto, {names(row_key)} ORDER BY {', '.join(order)})"
        return f"SELECT * FROM ({keyed}) QUALIFY {rank} = 1"
