"""The law of a join without `within`: the join of what both inputs have."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from milepost.operators.join.spec import JoinOperator
from milepost.operators.join.unmatched import LEFT_ALONE, RIGHT_UNMATCHED
from milepost_testkit.models.data.batch import Claim, Place, differing, names, there

_SYMBOLS = {"<=>": "IS NOT DISTINCT FROM"}
"""Of Spark's comparisons, those that DuckDB writes otherwise."""


@dataclass(frozen=True)
class JoinOverUpdatesLaw:
    """Rows of one key that satisfy the condition. A null key matches nothing, and nothing is late."""

    spec: JoinOperator

    def late(self, place: Place) -> str | None:
        return None

    def batch(self, place: Place) -> str:
        left, right = (self._side(place, side) for side in (0, 1))
        graph, inputs = place.graph, place.graph.nodes[place.uid].inputs
        of_left = ", ".join(f'l."{name}"' for name in graph.nodes[inputs[0]].columns)
        renamed = {old: new for new, old in self.spec.renamed.items()}
        keys = [pair[1] for pair in self.spec.key]
        others = [name for name in graph.nodes[inputs[1]].columns if name not in keys]
        of_right = "".join(f', r."{name}" AS "{renamed.get(name, name)}"' for name in others)
        near = " AND ".join(["l.upto = r.upto", *self._equal()])
        there_is = f"EXISTS (SELECT 1 FROM ({right}) r WHERE {near})"
        there_is_left = f"EXISTS (SELECT 1 FROM ({left}) l WHERE {near})"
        if self.spec.how in LEFT_ALONE:
            negated = "" if self.spec.how == "semi" else "NOT "
            return f"SELECT l.upto, {of_left} FROM ({left}) l WHERE {negated}{there_is}"
        pairs = f"SELECT l.upto, {of_left}{of_right} FROM ({left}) l JOIN ({right}) r ON {near}"
        queries = [pairs]
        if self.spec.how in ("left", "full"):
            nulls = "".join(", NULL" for _ in others)
            queries.append(f"SELECT l.upto, {of_left}{nulls} FROM ({left}) l WHERE NOT {there_is}")
        if self.spec.how in ("right", "full"):
            shown, columns = dict(self.spec.key), graph.nodes[inputs[0]].columns
            under = ", ".join(f'r."{shown[name]}"' if name in shown else "NULL" for name in columns)
            queries.append(f"SELECT r.upto, {under}{of_right} FROM ({right}) r WHERE NOT {there_is_left}")
        return " UNION ALL ".join(queries)

    def claims(self, place: Place) -> Iterator[Claim]:
        node = place.graph.nodes[place.uid]
        columns = names(tuple(node.columns))
        shown = place.appended(columns) if node.output_kind == "append" else there(place, place.uid)
        says = "what is left of changes is the join of what the inputs have"
        yield Claim(says, differing(f"SELECT upto, {columns} FROM ({shown})", self.batch(place)))

    def _side(self, place: Place, side: int) -> str:
        own = replace(place, position=side)
        if side and self.spec.how not in RIGHT_UNMATCHED:
            return own.present  # of right rows the key is not emitted
        # An unmatched right row shows its key in the left columns.
        types = {pair[side]: place.columns[pair[0]] for pair in self.spec.key}
        return replace(own, columns=types).with_plain_key([*types], own.present)

    def _equal(self) -> list[str]:
        equal = [f'l."{left}" = r."{right}"' for left, right in self.spec.key]
        return equal + [
            f'l."{one.left}" {_SYMBOLS.get(one.symbol, one.symbol)} r."{one.right}"' for one in self.spec.condition
        ]
