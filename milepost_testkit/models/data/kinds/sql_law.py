"""The law of SQL over updates: its live output is its query over its live input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import sqlglot

from milepost.jobspec.job.spec import JobSpec
from milepost.language.sql.union import branches
from milepost.operators.sql.spec import SelectSpec
from milepost_testkit.models.data.batch import Claim, Place, differing, names, there


@dataclass(frozen=True)
class SqlLaw:
    """Live rows, retractable or newest per key, are the SELECT of the live input rows.

    SQL downstream of SQL is one projection, so the SELECTs before it apply first.
    """

    job: JobSpec
    spec: SelectSpec

    def claims(self, place: Place) -> Iterator[Claim]:
        node, nodes = place.graph.nodes[place.uid], place.graph.nodes
        columns = names(tuple(node.columns))
        batch = self._batch(place, place.uid)
        if any(nodes[uid].is_stateful for uid in node.consumers):
            left = f"SELECT upto, {columns} FROM ({there(place, place.uid)})"
            yield Claim("what is left of rows that come and go is the query", differing(left, batch))
            read = place.at_each(f'SELECT * FROM "{node.read}"')
            short = f"SELECT upto, {columns} FROM ({read}) GROUP BY ALL HAVING sum(__weight) < 0"
            yield Claim("no row is taken back that never came", short)
        if node.sinks:
            yield Claim("the newest rows are the query", differing(place.shown(node.key, columns), batch))

    def _batch(self, place: Place, uid: str) -> str:
        operator, selects = self.job.operator(uid), []
        if not isinstance(operator, SelectSpec):
            return there(place, uid)
        for one in branches(operator.query, operator.inputs):
            plan = one.plan([*place.graph.nodes[one.input].columns])
            item = plan.exploded
            values = [
                f"explode({item.lists})" if item is not None and name == item.name else text
                for name, text in plan.columns
            ]
            columns = zip(values, place.graph.nodes[uid].columns, strict=True)
            texts = ", ".join(f"{text} AS `{new}`" for text, new in columns)
            where = f" WHERE {plan.filter_sql}" if plan.filter_sql is not None else ""
            query = sqlglot.transpile(f"SELECT upto, {texts} FROM input{where}", read="spark", write="duckdb")[0]
            selects.append(f"SELECT * FROM (WITH input AS ({self._rows_of(place, one.input)}) {query})")
        return " UNION ALL ".join(selects)

    def _rows_of(self, place: Place, name: str) -> str:
        return there(place, name) if name in self.job.sources else self._batch(place, name)
