"""The law of `over`: the rows of its input, with DuckDB's functions over them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from milepost.operators.over import OverCall, OverOperator
from milepost_testkit.models.data.aggregate_calls import INTEGERS
from milepost_testkit.models.data.batch import Claim, Place, declared_order, differing, names, whole_order


@dataclass(frozen=True)
class OverLaw:
    """Rows are sorted by the declared columns, and those that tie by the row key. Nothing is late."""

    spec: OverOperator

    def late(self, place: Place) -> str | None:
        return None

    def batch(self, place: Place) -> str:
        values = ", ".join(f'{self._value(call, place)} AS "{name}"' for name, call in self.spec.functions.items())
        rows = f"SELECT * REPLACE ({place.keyed(self.spec.output_key)}) FROM ({place.present})"
        return f"SELECT upto, {names(tuple(place.columns))}, {values} FROM ({rows})"

    def claims(self, place: Place) -> Iterator[Claim]:
        shown = place.shown(self.spec.output_key, names((*place.columns, *self.spec.functions)))
        yield Claim("the newest rows are those of the input with their values", differing(shown, self.batch(place)))

    def _value(self, call: OverCall, place: Place) -> str:
        order = [declared_order(place, name, descends=descends) for name, descends in self.spec.order_by]
        # Without a frame, all rows that tie have the same value.
        if call.frame is not None or call.function in ("row_number", "lag", "lead", "first_value", "last_value"):
            order += [one for name in self.spec.row_key for one in whole_order(place, name, descends=False)]
        arguments = "*" if call.function == "count" and call.column is None else f'"{call.column}"'
        if call.column is None and call.function != "count":
            arguments = ""
        if call.function in ("lag", "lead"):
            arguments += f", {call.distance}"
        by = f"ORDER BY {', '.join(order)}" if order else ""
        window = f"OVER (PARTITION BY {names(('upto', *self.spec.key))} {by} {call.frame or ''})"
        value = f"{call.function}({arguments}) {window}"
        if call.function in ("row_number", "rank", "dense_rank"):
            return f"{value}::INTEGER"
        is_whole = call.function == "sum" and place.columns[str(call.column)] in INTEGERS
        return f"{value}::BIGINT" if is_whole else value
