"""The law of `materialize`: its rows are those of its input, under another key."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.operators.materialize.spec import MaterializeOperator
from milepost_testkit.models.data.batch import Claim, Place, differing, names


@dataclass(frozen=True)
class MaterializeLaw:
    """Each key has one row once nothing is in flight. Nothing is late."""

    spec: MaterializeOperator

    def late(self, place: Place) -> str | None:
        return None

    def batch(self, place: Place) -> str:
        columns = names(tuple(place.columns))
        return f"SELECT upto, {columns} FROM (SELECT * REPLACE ({place.keyed(self.spec.key)}) FROM ({place.present}))"

    def claims(self, place: Place) -> Iterator[Claim]:
        shown = place.shown(self.spec.key, names(tuple(place.columns)))
        yield Claim("the newest rows are those of the input", differing(shown, self.batch(place)))
