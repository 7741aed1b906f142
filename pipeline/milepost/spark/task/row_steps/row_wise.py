"""Row-wise steps: how the SQL and the lookups of a level follow each other, in one stage and without an exchange.

SQL is Spark's, lookups run in Python. A level without lookups is one projection between its operator stage and its
output stage. A lookup runs where its rows are: behind the operator stage, or behind the SQL that makes them; SQL over
what a lookup gives is a further projection behind that one. ``place`` is how many projections a node's rows passed::

    source -> sql a -> lookup b -> sql c      place  0  1  1  2
    source -> lookup d -> sql e               place  0  0  1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from milepost.epoch.plan import EpochPlan
from milepost.jobspec.graph.graph import JobGraph
from milepost.spark.task.outputs import (
    FILL,
    WHOLE,
    Output,
    SqlOutput,
    fill_outputs,
    readers,
    sql_outputs,
    whole_outputs,
)
from milepost.spark.task.row_steps.lookup_stage import LookupPlan, LookupStage
from milepost.spark.task.row_steps.sql_expression import SqlExpression, column_of, level_sql


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
    then: SqlStep | None


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
    every = list(outputs)
    made = {
        one.name: one
        for one in sql_outputs(plan.graph, whole_outputs(plan), fill_outputs(plan), plan.begin)
        if any(level in plan.graph.nodes[uid].levels for uid in one.inputs)
    }
    places = _places(plan.graph, level, made)
    sent = {name for name, node, sinks in every if sinks or readers(plan, name, node)}
    inputs: dict[str, Collection[str]] = {name: one.inputs.values() for name, one in made.items()}
    inputs |= {uid: plan.graph.nodes[uid].inputs for uid in lookups}

    def of_kind(kind: Container[str], passes: Callable[[int], bool]) -> list[str]:
        return [name for name, place in places.items() if name in kind and passes(place)]

    def stage(place: int) -> LookupStage:
        own = tuple(lookups[uid] for uid in of_kind(lookups, lambda one: one == place))
        return LookupStage(plan.checkpoint_id, plan.token, level, plan.job_store, own)

    def read_from(sql: int, lookup: int) -> set[str]:
        further = of_kind(made, lambda place: place >= sql) + of_kind(lookups, lambda place: place >= lookup)
        return sent.union(name for reader in further for name in inputs[reader])

    step: SqlStep | None = None
    for number in range(max((places[uid] for uid in of_kind(made, lambda _: True)), default=0), 0, -1):
        own = of_kind(made, lambda place, own=number: place == own)  # type: ignore[misc]
        there = {name: (column_of(name),) for name, place in places.items() if place < number}
        sql = level_sql(plan.spec, [made[name] for name in own], there, schemas)
        before = {name for name, _, _ in every if places.get(name, 0) < number}
        behind = before.union(own) & read_from(number + 1, number)
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


def _places(graph: JobGraph, level: int, made: Mapping[str, SqlOutput]) -> dict[str, int]:
    """Return how many projections the rows of each output of a level have passed when they are made.

    Args:
        made: the outputs of SQL, in the order in which they are made.
    """
    places: dict[str, int] = {}
    for node in graph.nodes.values():
        if level not in node.levels:
            continue
        if node.kind == "lookup":
            places[node.uid] = places[node.inputs[0]]
        elif node.kind != "sql":
            places |= dict.fromkeys((node.uid, node.read, node.uid + WHOLE, node.uid + FILL), 0)
        else:
            places |= {one.name: _behind(graph, one, places) for one in made.values() if one.node == node}
    return {one.name: _behind(graph, one, places) for one in made.values()} | places


def _behind(graph: JobGraph, one: SqlOutput, places: Mapping[str, int]) -> int:
    """Return the place of an output of SQL: of the same projection as SQL that it reads, behind any other's rows."""
    read = [(uid, name) for uid, name in one.inputs.items() if name in places]
    return max(places[name] + (graph.nodes[uid].kind != "sql") for uid, name in read)
