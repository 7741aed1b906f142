"""Row-wise steps: how the SQL and the lookups of a level follow each other, in one stage and without an exchange.

SQL is Spark's, lookups run in Python. A level without lookups is one projection between its operator stage and its
output stage. A lookup runs where its rows are: behind the operator stage, or behind the SQL that makes them; SQL over
what a lookup gives is a further projection behind that one. ``place`` is how many projections a node's rows passed::

    source -> sql a -> lookup b -> sql c      place  0  1  1  2
    source -> lookup d -> sql e               place  0  0  1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from milepost.epoch.plan import EpochPlan
from milepost.spark.task.lookup_stage import LookupPlan, LookupStage
from milepost.spark.task.outputs import Output, readers
from milepost.spark.task.sql_expression import SqlExpression, column_of, level_sql
from milepost.spec.graph.edges import marked_output
from milepost.spec.graph.graph import JobGraph


@dataclass(frozen=True, slots=True)
class SqlStep:
    """One Spark projection of one level, and what follows it.

    Attributes:
        produced: schema of each node whose rows come to it and are read by SQL or behind it.
        expressions: of its SQL operators, in topological order.
        kept: schema of each node that is read behind it. columns: of the wide frame that have its rows.
        lookups: over its rows, and over those that came to it. then: the projection behind those; None: it is the last.
    """

    produced: Mapping[str, pa.Schema]
    expressions: tuple[SqlExpression, ...]
    kept: Mapping[str, pa.Schema]
    columns: Mapping[str, tuple[str, ...]]
    lookups: LookupStage
    then: SqlStep | None = None


@dataclass(frozen=True, slots=True)
class RowWise:
    """What happens to rows between a level's operator stage and its output stage.

    Attributes:
        lookups: over what the operator stage puts out. sql: the first projection; None: there is none.
    """

    lookups: LookupStage
    sql: SqlStep | None

    @property
    def steps(self) -> Iterator[SqlStep]:
        """The projections, in order."""
        step = self.sql
        while step is not None:
            yield step
            step = step.then


def row_wise(
    plan: EpochPlan,
    level: int,
    outputs: Iterable[Output],
    schemas: Mapping[str, pa.Schema],
    lookups: Mapping[str, LookupPlan],
) -> RowWise:
    """Return the steps of one level.

    Args:
        outputs: of the level. schemas: of every node's rows. lookups: by uid.
    """
    nodes, every = plan.graph.nodes, list(outputs)
    places = _places(plan.graph, level)
    marks = {marked_output(node.uid): node for node in nodes.values() if node.reads_marked}
    inputs = {name: (marks.get(name) or nodes[name]).inputs for name in places}
    sent = {name for name, node, sinks in every if sinks or readers(plan, name, node)}

    def of_kind(kind: str, passes: Callable[[int], bool]) -> list[str]:
        """SQL is also what tells of an operator's input which rows are deletes."""
        kinds = {name: "sql" if name in marks else nodes[name].kind for name in places}
        return [name for name, place in places.items() if kinds[name] == kind and passes(place)]

    def stage(place: int) -> LookupStage:
        own = tuple(lookups[uid] for uid in of_kind("lookup", lambda one: one == place))
        return LookupStage(plan.checkpoint_id, plan.token, level, plan.job_store, own)

    def read_from(sql: int, lookup: int) -> set[str]:
        further = of_kind("sql", lambda place: place >= sql) + of_kind("lookup", lambda place: place >= lookup)
        return sent.union(name for reader in further for name in inputs[reader])

    step: SqlStep | None = None
    for number in range(max((places[uid] for uid in of_kind("sql", lambda _: True)), default=0), 0, -1):
        made = of_kind("sql", lambda place, own=number: place == own)  # type: ignore[misc]
        sql = level_sql(plan.spec, plan.graph, level, schemas, made)
        before = {name for name, _, _ in every if places.get(name, 0) < number}
        behind = before.union(made) & read_from(number + 1, number)
        kept = {name: schemas[name] for name, _, _ in every if name in behind}
        step = SqlStep(
            {name: schemas[name] for name, _, _ in every if name in before & read_from(number, number)},
            sql.expressions,
            kept,
            {name: sql.columns.get(name, (column_of(name),)) for name in kept},
            stage(number),
            step,
        )
    return RowWise(stage(0), step)


def _places(graph: JobGraph, level: int) -> dict[str, int]:
    """Return how many projections the rows of each node of a level have passed when they are made."""
    places: dict[str, int] = {}
    for node in graph.nodes.values():
        if level not in node.levels:
            continue
        inputs = [name for name in node.inputs if name in places]
        if node.kind == "lookup":
            places[node.uid] = places[inputs[0]]
        elif node.kind == "sql":
            places[node.uid] = max(places[name] + (graph.nodes[name].kind != "sql") for name in inputs)
        else:
            places[node.uid] = 0
    for node in graph.nodes.values():
        if node.reads_marked and node.inputs[0] in places:
            (name,) = node.inputs
            places[marked_output(node.uid)] = places[name] + (graph.nodes[name].kind != "sql")
    return places
