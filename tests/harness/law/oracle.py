"""The oracle, node by node: every claim of every operator's law, at every checkpoint with nothing in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from milepost.protocol.exchange.watermarks import END_OF_TIME_US, held_back, operator_watermark
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost.spec.graph.edges import DELETED_COLUMN, edge_names, late_output
from milepost.spec.graph.graph import JobGraph, Node
from milepost.spec.job.operators.lookup import LookupOperator
from milepost.spec.job.spec import JobSpec, RowWiseSpec, SqlOperator
from tests.harness.law.batch import Claim, Place, late_claims, microseconds, retraction_claims
from tests.harness.law.captured import EPOCH, ORDER, STAMP, Captured
from tests.harness.law.kinds.lookups import LookupLaw
from tests.harness.law.kinds.sql_law import SqlLaw
from tests.harness.law.laws import law_of

_SHOWN = 5
_NUMBERS = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
}


class Broken(AssertionError):
    """A node's rows are not what its law says."""


def check(
    spec: JobSpec,
    graph: JobGraph,
    captured: Captured,
    schemas: Mapping[str, pa.Schema],
    checkpoints: Mapping[int, tuple[int, ...]],
    *,
    ended: frozenset[int] = frozenset(),
    since: Mapping[str, int] | None = None,
) -> None:
    """Raises Broken: a claim does not hold.

    Args:
        schemas: of every node's rows, late ones included where there may be some.
        checkpoints: those with nothing in flight, with the epochs that led to each, in order.
        ended: epochs at whose end event time ended.
        since: first epoch of operators that began, without state, after others.
    """
    db, since = _database(), since or {}
    watermarks = Watermarks(spec, graph, captured, ended)
    made = {node: _table(captured, node, schema) for node, schema in schemas.items()}
    made["lineage"] = _lineage(checkpoints, 0)
    epochs = {epoch: lineage[:place] for lineage in checkpoints.values() for place, epoch in enumerate(lineage)}
    made["began"] = _marks(watermarks, graph, epochs, ("node", EPOCH, "stamp_us"))
    made["mark"] = _marks(watermarks, graph, checkpoints, ("node", "upto", "watermark_us"))
    for name, table in made.items():
        db.register(name, table)
    try:
        for node in graph.stateful:
            operator = spec.operator(node.uid)
            assert not isinstance(operator, RowWiseSpec)
            law, edges = law_of(operator), edge_names(node.inputs)
            read = [graph.nodes[name].read for name in node.inputs]
            places = [Place(graph, node.uid, _types(schemas[name]), at) for at, name in enumerate(read)]
            claims = [law.claims(places[0])]
            if node.retracts:
                claims.append(retraction_claims(places[0]))
            for place in places:
                late = late_output(node.uid, edges, place.position)
                claims.append(late_claims(law, place, late, schemas.get(late, schemas[read[place.position]]).names))
            db.register("lineage", _lineage(checkpoints, since.get(node.uid, 0)))
            for claim in chain.from_iterable(claims):
                _hold(db, node, claim)
            db.register("lineage", made["lineage"])
        for sql in (one for one in spec.operators if isinstance(one, SqlOperator)):
            if graph.nodes[sql.uid].output_kind != "append":
                for claim in SqlLaw(spec, sql).claims(Place(graph, sql.uid, {})):
                    _hold(db, graph.nodes[sql.uid], claim)
        for lookup in (one for one in spec.operators if isinstance(one, LookupOperator)):
            for claim in LookupLaw(lookup, schemas[lookup.uid].names).claims(Place(graph, lookup.uid, {})):
                _hold(db, graph.nodes[lookup.uid], claim)
    finally:
        for name in made:
            db.unregister(name)


def _hold(db: duckdb.DuckDBPyConnection, node: Node, claim: Claim) -> None:
    rows = db.execute(claim.query).fetchall()
    if rows:
        columns = ", ".join(column[0] for column in db.description or ())
        shown = "".join(f"\n  {row}" for row in rows[:_SHOWN])
        raise Broken(f"{node.kind} {node.uid}: {claim.says}: it does not hold\n  ({columns}){shown}")


class Watermarks:
    """The watermarks of sources, reckoned from the rows that they put out, and of the nodes behind them."""

    def __init__(self, spec: JobSpec, graph: JobGraph, captured: Captured, ended: frozenset[int]) -> None:
        self._graph, self._ended = graph, ended
        self._delay_us = {
            name: microseconds(source.watermark_delay)
            for name, source in spec.sources.items()
            if source.event_time is not None
        }
        self._newest_us: dict[tuple[str, int], int] = {}
        for name in self._delay_us:
            for epoch, _, rows in captured.pieces.get(name, ()):
                newest = pc.max(rows.column(spec.sources[name].event_time).cast(pa.int64())).as_py()
                if newest is not None:
                    self._newest_us[name, epoch] = max(newest, self._newest_us.get((name, epoch), newest))

    def after(self, source: str, lineage: Iterable[int]) -> int | None:
        """Return a source's watermark after these epochs; None: no row has come."""
        newest = [self._newest_us[source, epoch] for epoch in lineage if (source, epoch) in self._newest_us]
        return max(newest) - self._delay_us[source] if newest else None

    def of_node(self, uid: str, lineage: tuple[int, ...]) -> int | None:
        """Return the least watermark of a node's inputs with event time; None: minus infinity.

        Of an operator that is its own, less what it holds back.
        """
        if self._ended.intersection(lineage):
            return END_OF_TIME_US
        inputs = [name for name in dict.fromkeys(self._graph.nodes[uid].inputs) if self._is_timed(name)]
        found = [
            self.after(name, lineage) if name in self._delay_us
            else held_back(self.of_node(name, lineage), self._graph.nodes[name].holdback_us)
            for name in inputs
        ]  # fmt: skip
        return operator_watermark(found)

    def _is_timed(self, name: str) -> bool:
        """Return whether a source with event time reaches a node."""
        return not self._delay_us.keys().isdisjoint(self._graph.nodes[name].sources)


@cache
def _database() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect(config={"threads": 1})
    db.execute("SET TimeZone = 'UTC'")
    db.execute("SET disabled_optimizers = 'top_n_window_elimination'")  # of 2.0 it drops rows where 0.0 and -0.0 meet
    return db


def _types(schema: pa.Schema) -> dict[str, str]:
    """Return how DuckDB calls the types of numbers that have several names or widths; others need none."""
    hidden = (DELETED_COLUMN, WEIGHT_COLUMN)
    types = {
        field.name: "DECIMAL" if pa.types.is_decimal(field.type) else _NUMBERS.get(field.type, "") for field in schema
    }
    return {name: type_ for name, type_ in types.items() if name not in hidden}


def _table(captured: Captured, node: str, schema: pa.Schema) -> pa.Table:
    found = captured.table(node)
    if found is not None:
        return found
    more = [pa.field(name, pa.int64()) for name in (EPOCH, STAMP, ORDER)]
    return pa.schema([*schema, *more]).empty_table()


def _marks(
    watermarks: Watermarks, graph: JobGraph, lineages: Mapping[int, tuple[int, ...]], columns: tuple[str, str, str]
) -> pa.Table:
    found = [
        (node.uid, number, watermarks.of_node(node.uid, lineage))
        for node in graph.stateful
        for number, lineage in lineages.items()
    ]
    types = (pa.string(), pa.int64(), pa.int64())
    return pa.table(
        [pa.array([row[place] for row in found], type_) for place, type_ in enumerate(types)], names=list(columns)
    )


def _lineage(checkpoints: Mapping[int, tuple[int, ...]], first: int) -> pa.Table:
    """Return which epochs led to each checkpoint, but for those before the first that counts."""
    pairs = ((at, epoch) for at, epochs in checkpoints.items() for epoch in epochs if epoch >= first)
    return pa.table([*_pairs(pairs)], names=["upto", EPOCH])


def _pairs(pairs: Iterable[tuple[int, int]]) -> Iterator[pa.Array]:
    found = list(pairs)
    for place in (0, 1):
        yield pa.array([pair[place] for pair in found], pa.int64())
