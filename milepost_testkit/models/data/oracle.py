"""Check every claim of each operator's law, at checkpoints without rows in flight."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import cache, reduce
from itertools import chain

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from milepost.jobspec.graph.graph import JobGraph, Node
from milepost.jobspec.job.spec import JobSpec, RowWiseSpec
from milepost.operators.base.edges import DELETED_COLUMN, edge_names, late_output
from milepost.operators.lookup.spec import LookupOperator
from milepost.operators.sql.spec import SelectSpec
from milepost.protocol.exchange.watermarks import END_OF_TIME_US, latest, operator_watermark, output_watermark
from milepost.protocol.records.state_columns import WEIGHT_COLUMN
from milepost_testkit.models.data.aggregate_calls import digits
from milepost_testkit.models.data.batch import (
    Claim,
    Place,
    differing,
    late_claims,
    microseconds,
    retraction_claims,
    there,
)
from milepost_testkit.models.data.captured import EPOCH, ORDER, STAMP, Begin, Captured
from milepost_testkit.models.data.kinds.lookups import LookupLaw
from milepost_testkit.models.data.kinds.sql_law import SqlLaw
from milepost_testkit.models.data.kinds.window_law import SlidingLaw
from milepost_testkit.models.data.laws import law_of

_SHOWN = 5
_TYPES = {
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
}


class Broken(AssertionError):
    """A node's rows violate its law."""


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
    """Raise Broken if a claim does not hold.

    Args:
        schemas: of every node's rows, including possible late rows.
        checkpoints: those without rows in flight, with the epochs that led to each, in order.
        ended: epochs that ended event time.
        since: first epoch of operators that were added later, without state.
    """
    since = since or {}
    for node in graph.stateful:
        if node.output_kind == "updates" and node.deletes != (DELETED_COLUMN in schemas[node.uid].names):
            raise Broken(
                f"{node.kind} {node.uid}: by the graph it {'may' if node.deletes else 'never does'} delete rows"
            )
    watermarks = Watermarks(spec, graph, captured, ended)
    for lineage in {one[: place + 1] for one in checkpoints.values() for place in range(len(one))}:
        for beyond in watermarks.beyond(lineage):
            raise Broken(beyond)
    checkpoints = {at: lineage for at, lineage in checkpoints.items() if watermarks.is_even(lineage)}
    uids = [node.uid for node in graph.stateful]
    marks = ((uid, at, watermarks.of_node(uid, lineage)) for uid in uids for at, lineage in checkpoints.items())
    every = {
        **_tables(graph, captured, schemas, checkpoints),
        "began": _began(graph, watermarks, checkpoints),
        "mark": _marks(marks, ("node", "upto", "watermark_us")),
    }
    with _registered(every) as db:
        for node in graph.stateful:
            operator = spec.operator(node.uid)
            assert not isinstance(operator, RowWiseSpec)
            law, edges = law_of(operator), edge_names(node.inputs)
            places = _places(graph, node, schemas)
            claims = [law.claims(places[0])]
            if node.retracts:
                claims.append(retraction_claims(places[0]))
            for place in places:
                late = late_output(node.uid, edges, place.position)
                claims.append(
                    late_claims(law, place, late, schemas.get(late, schemas[graph.nodes[place.input].read]).names)
                )
            db.register("lineage", _lineage(checkpoints, since.get(node.uid, 0)))
            for claim in chain.from_iterable(claims):
                _hold(db, node, claim)
            db.register("lineage", every["lineage"])
        for sql in (one for one in spec.operators if isinstance(one, SelectSpec)):
            if graph.nodes[sql.uid].output_kind != "append":
                for claim in SqlLaw(spec, sql).claims(Place(graph, sql.uid, {})):
                    _hold(db, graph.nodes[sql.uid], claim)
        for lookup in (one for one in spec.operators if isinstance(one, LookupOperator)):
            for claim in LookupLaw(lookup, schemas[lookup.uid].names).claims(Place(graph, lookup.uid, {})):
                _hold(db, graph.nodes[lookup.uid], claim)


def hold_same(
    spec: JobSpec,
    graph: JobGraph,
    captured: Captured,
    schemas: Mapping[str, pa.Schema],
    lineages: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    """Check that two histories have equal rows, including late ones, at every node that is not a source.

    Raises: Broken.
    """
    with _registered(_tables(graph, captured, schemas, dict(enumerate(lineages)))) as db:
        for operator in spec.operators:
            node, place = graph.nodes[operator.uid], Place(graph, operator.uid, {})
            if node.output_kind != "retract" or node.retracts:
                rows, says = there(place, node.uid), "two histories come to the same rows"
                schema = schemas.get(node.uid, schemas.get(node.read))  # a SELECT may have only one for retractions
                assert schema is not None
                _hold(db, node, Claim(says, _at_both(rows, _comparable(schema, node.columns))))
            for late in (name for name in schemas if name.startswith(f"{node.uid}.late")):
                rows, says = place.at_each(f'SELECT * FROM "{late}"'), "two histories have the same late rows"
                _hold(db, node, Claim(says, _at_both(rows, _comparable(schemas[late], schemas[late].names))))


def has_late_rows(
    spec: JobSpec,
    graph: JobGraph,
    captured: Captured,
    schemas: Mapping[str, pa.Schema],
    lineage: tuple[int, ...],
    ended: frozenset[int],
) -> bool:
    """Return whether a row of these epochs was late, for all of its windows or for some."""
    late = [node for node in captured.pieces if ".late" in node]
    if any(epoch in lineage for node in late for epoch, *_ in captured.pieces[node]):
        return True
    checkpoints = {0: lineage}
    began = _began(graph, Watermarks(spec, graph, captured, ended), checkpoints)
    laws = [(node, law_of(spec.operator(node.uid))) for node in graph.stateful]
    sliding = [
        (law, place) for node, law in laws if isinstance(law, SlidingLaw) for place in _places(graph, node, schemas)
    ]
    with _registered({**_tables(graph, captured, schemas, checkpoints), "began": began}) as db:
        return any(db.execute(place.at_each(law.late_for_some(place))).fetchall() for law, place in sliding)


def _comparable(schema: pa.Schema, columns: Collection[str]) -> str:
    """Return the columns, with the digits of floats: a variance is added up in the order of the epochs."""
    floats = {field.name for field in schema if pa.types.is_floating(field.type)}
    shown = (digits(f'("{name}" + 0.0)') if name in floats else f'"{name}"' for name in columns)  # -0.0 is 0.0
    return ", ".join(f'{value} AS "{name}"' for name, value in zip(columns, shown, strict=True))


def _at_both(rows: str, columns: str) -> str:
    first, second = (f"SELECT {columns} FROM ({rows}) WHERE upto = {place}" for place in (0, 1))
    return differing(first, second)


def _hold(db: duckdb.DuckDBPyConnection, node: Node, claim: Claim) -> None:
    rows = db.execute(claim.query).fetchall()
    if rows:
        columns = ", ".join(column[0] for column in db.description or ())
        shown = "".join(f"\n  {row}" for row in rows[:_SHOWN])
        raise Broken(f"{node.kind} {node.uid}: {claim.says}: it does not hold\n  ({columns}){shown}")


class Watermarks:
    """The watermarks of sources, computed from their rows, and of the nodes downstream of them."""

    def __init__(self, spec: JobSpec, graph: JobGraph, captured: Captured, ended: frozenset[int]) -> None:
        self._graph, self._ended, self._begins = graph, ended, captured.begins
        self._delay_us = {
            name: microseconds(source.watermark_delay)
            for name, source in spec.sources.items()
            if source.time_column is not None
        }
        self._newest_us: dict[tuple[str, int], int] = {}
        for name in self._delay_us:
            for epoch, _, rows in captured.pieces.get(name, ()):
                newest = pc.max(rows.column(spec.sources[name].time_column).cast(pa.int64())).as_py()
                if newest is not None:
                    self._newest_us[name, epoch] = max(newest, self._newest_us.get((name, epoch), newest))

    def after(self, source: str, lineage: Iterable[int]) -> int | None:
        """Return a source's watermark after these epochs; None without rows."""
        newest = [self._newest_us[source, epoch] for epoch in lineage if (source, epoch) in self._newest_us]
        return max(newest) - self._delay_us[source] if newest else None

    def of_node(self, uid: str, lineage: tuple[int, ...]) -> int | None:
        """Return the time up to which a node has fired after these epochs; None if it has not.

        The last epoch must have left no rows in flight.
        """
        return latest(self._reached(uid, lineage), self._fired(uid, lineage))

    def at_begin(self, uid: str, lineage: tuple[int, ...], epoch: int) -> tuple[int | None, int | None, int | None]:
        """Return the time by which rows of sources are late for a node, in an epoch that continues the lineage.

        It is the later of two times, which follow it: the watermark of the inputs, and the time the node had fired to.
        """
        input_us, fired_us = self.of_inputs(uid, lineage, epoch), self._fired(uid, (epoch,))
        return latest(input_us, fired_us), input_us, fired_us

    def of_inputs(self, uid: str, lineage: tuple[int, ...], epoch: int) -> int | None:
        """Return the least watermark of a node's inputs at the start of an epoch, without idle ones."""
        begin, ended = self._begin(epoch), self._ended.intersection(lineage)
        return operator_watermark(
            END_OF_TIME_US if ended
            else self.after(name, lineage) if name in self._delay_us
            else output_watermark(operator_watermark(begin.fired.get(name, ())), self._graph.nodes[name].holdback_us)
            for name in self._waited_for(uid, begin.idle_before)
        )  # fmt: skip

    def is_even(self, lineage: tuple[int, ...]) -> bool:
        """Return whether all subtasks of a node have fired to the same time, after an epoch without rows in flight.

        If a source returned behind the others, subtasks that had fired further than the inputs are now stay there.
        """
        uids = [
            node.uid for node in self._graph.stateful if len({*self._begin(lineage[-1]).fired.get(node.uid, ())}) > 1
        ]
        return all(self._reached(uid, lineage) == self.of_node(uid, lineage) for uid in uids)

    def came_back_behind(self, lineage: tuple[int, ...]) -> bool:
        """Return whether a node had fired beyond the inputs that it waited for again, when an epoch began."""
        begins = [(node.uid, lineage[:at], epoch) for node in self._graph.stateful for at, epoch in enumerate(lineage)]
        return any(self.of_inputs(*begin) != self.at_begin(*begin)[0] for begin in begins)

    def beyond(self, lineage: tuple[int, ...]) -> Iterator[str]:
        """Yield the nodes that had fired beyond their inputs when the last of these epochs began."""
        before, epoch = lineage[:-1], lineage[-1]
        for node in self._graph.stateful:
            fired_us, most_us = self._fired(node.uid, (epoch,)), self.of_node(node.uid, before)
            if latest(fired_us, most_us) != most_us:
                yield f"operator {node.uid} had fired to {fired_us} when epoch {epoch} began, its input was {most_us}"

    def _reached(self, uid: str, lineage: tuple[int, ...]) -> int | None:
        """Return how far the last of these epochs lets a node fire: as far as what it waits for, or when it began."""
        if self._ended.intersection(lineage):
            return END_OF_TIME_US
        if not lineage:
            return None
        ends = operator_watermark(
            self.after(name, lineage) if name in self._delay_us
            else output_watermark(self.of_node(name, lineage), self._graph.nodes[name].holdback_us)
            for name in self._waited_for(uid, self._begin(lineage[-1]).idle)
        )  # fmt: skip
        return latest(ends, self.of_inputs(uid, lineage[:-1], lineage[-1]))

    def _fired(self, uid: str, lineage: tuple[int, ...]) -> int | None:
        """Return the latest time to which a subtask of a node had fired when the last of these epochs began."""
        return reduce(latest, self._begin(lineage[-1]).fired.get(uid, ()), None) if lineage else None

    def _begin(self, epoch: int) -> Begin:
        return self._begins.get(epoch, Begin())

    def _waited_for(self, uid: str, idle: Set[str]) -> list[str]:
        """Return the sources and operators with event time that a node waits for; all of them if all are idle."""
        timed = [name for name in self._inputs(uid) if self._sources(name)]
        return [name for name in timed if not self._sources(name) <= idle] or timed

    def _inputs(self, uid: str) -> Iterator[str]:
        """Yield the sources and stateful operators that a node's rows come from, each once."""
        nodes = self._graph.nodes
        for name in dict.fromkeys(nodes[uid].inputs):
            yield from self._inputs(name) if nodes[name].is_row_wise else (name,)

    def _sources(self, name: str) -> Set[str]:
        """Return the sources with event time that reach a node."""
        return self._delay_us.keys() & {*self._graph.nodes[name].sources}


@cache
def _database() -> duckdb.DuckDBPyConnection:
    db = duckdb.connect(config={"threads": 1})
    db.execute("SET TimeZone = 'UTC'")
    # In version 2.0 this optimizer drops rows where 0.0 and -0.0 meet.
    db.execute("SET disabled_optimizers = 'top_n_window_elimination'")
    return db


def _types(schema: pa.Schema) -> dict[str, str]:
    """Return the DuckDB types of numbers and texts. The laws of other columns do not depend on the type."""
    hidden = (DELETED_COLUMN, WEIGHT_COLUMN)
    types = {
        field.name: "DECIMAL" if pa.types.is_decimal(field.type) else _TYPES.get(field.type, "") for field in schema
    }
    return {name: type_ for name, type_ in types.items() if name not in hidden}


@contextmanager
def _registered(tables: Mapping[str, pa.Table]) -> Iterator[duckdb.DuckDBPyConnection]:
    db = _database()
    for name, table in tables.items():
        db.register(name, table)
    try:
        yield db
    finally:
        for name in tables:
            db.unregister(name)


def _tables(
    graph: JobGraph,
    captured: Captured,
    schemas: Mapping[str, pa.Schema],
    checkpoints: Mapping[int, tuple[int, ...]],
) -> dict[str, pa.Table]:
    """Return the tables of each node's rows, and of the epochs that led to each checkpoint."""
    deleting = {node.uid for node in graph.nodes.values() if node.deletes}
    rows = {node: _table(captured, node, schema, node in deleting) for node, schema in schemas.items()}
    return {**rows, "lineage": _lineage(checkpoints, 0)}


def _began(graph: JobGraph, watermarks: Watermarks, checkpoints: Mapping[int, tuple[int, ...]]) -> pa.Table:
    epochs = {epoch: lineage[:place] for lineage in checkpoints.values() for place, epoch in enumerate(lineage)}
    uids = [node.uid for node in graph.stateful]
    began = ((uid, epoch, *watermarks.at_begin(uid, before, epoch)) for uid in uids for epoch, before in epochs.items())
    return _marks(began, ("node", EPOCH, "stamp_us", "input_us", "fired_us"))


def _places(graph: JobGraph, node: Node, schemas: Mapping[str, pa.Schema]) -> list[Place]:
    """Return one `Place` per input of a stateful operator."""
    read = [graph.nodes[name].read for name in node.inputs]
    return [Place(graph, node.uid, _types(schemas[name]), at) for at, name in enumerate(read)]


def _table(captured: Captured, node: str, schema: pa.Schema, deletes: bool) -> pa.Table:
    """Return a node's rows; an empty table if it never had one."""
    found = captured.table(node)
    if found is not None:
        return found
    more = [pa.field(name, pa.int64()) for name in (EPOCH, STAMP, ORDER)]
    if deletes and DELETED_COLUMN not in schema.names:
        more.append(pa.field(DELETED_COLUMN, pa.bool_()))
    return pa.schema([*schema, *more]).empty_table()


def _marks(times: Iterable[tuple[str | int | None, ...]], columns: tuple[str, ...]) -> pa.Table:
    found, types = list(times), (pa.string(), *[pa.int64()] * (len(columns) - 1))
    return pa.table(
        [pa.array([row[place] for row in found], type_) for place, type_ in enumerate(types)], names=list(columns)
    )


def _lineage(checkpoints: Mapping[int, tuple[int, ...]], first: int) -> pa.Table:
    """Return the epochs that led to each checkpoint, from epoch `first` on."""
    pairs = ((at, epoch) for at, epochs in checkpoints.items() for epoch in epochs if epoch >= first)
    return pa.table([*_pairs(pairs)], names=["upto", EPOCH])


def _pairs(pairs: Iterable[tuple[int, int]]) -> Iterator[pa.Array]:
    found = list(pairs)
    for place in (0, 1):
        yield pa.array([pair[place] for pair in found], pa.int64())
