"""Order the SQL and the lookups of a level, without an exchange.

SQL runs in Spark, lookups in Python. A level without lookups has one projection between its operator stage and its
output stage. A lookup runs after the step that produces its rows: the operator stage or a projection. SQL that reads a
lookup needs a further projection. ``depth`` is the number of projections that a node's rows have passed::

    source -> sql a -> lookup b -> sql c      depth  0  1  1  2
    source -> lookup d -> sql e               depth  0  0  1
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from milepost.epoch import EpochPlan
from milepost.jobspec.graph import JobGraph
from milepost.spark.task.outputs import (
    FILL,
    WHOLE,
    Output,
    SqlOutput,
    nodes_with_fill_output,
    nodes_with_whole_output,
    readers,
    sql_outputs,
)
from milepost.spark.task.row_steps.lookup_stage import LookupPlan, LookupStage
from milepost.spark.task.row_steps.sql_expression import SqlExpression, column_of, level_sql


@dataclass(frozen=True, slots=True)
class SqlStep:
    """One Spark projection of a level, with the lookups after it.

    Attributes:
        input_schemas: node -> schema, for each input that its SQL or a downstream step reads.
        expressions: expressions of its SQL operators, in topological order.
        output_schemas: node -> schema, for each output that a downstream step reads.
        columns: node -> columns of the wide frame that hold its rows.
        lookups: lookups on its outputs.
        next_step: the next projection; None: this is the last.
    """

    input_schemas: Mapping[str, pa.Schema]
    expressions: tuple[SqlExpression, ...]
    output_schemas: Mapping[str, pa.Schema]
    columns: Mapping[str, tuple[str, ...]]
    lookups: LookupStage
    next_step: SqlStep | None


@dataclass(frozen=True, slots=True)
class RowWise:
    """The steps between a level's operator stage and its output stage.

    Attributes:
        lookups: lookups on the rows of the operator stage.
        sql: the first projection; None: there is none.
    """

    lookups: LookupStage
    sql: SqlStep | None

    @property
    def steps(self) -> Iterator[SqlStep]:
        """The projections, in order."""
        step = self.sql
        while step is not None:
            yield step
            step = step.next_step


def row_wise(
    plan: EpochPlan,
    level: int,
    outputs: Iterable[Output],
    schemas: Mapping[str, pa.Schema],
    lookups: Mapping[str, LookupPlan],
    *,
    emits_sql: bool = False,
) -> RowWise:
    """Return the steps of one level.

    Args:
        outputs: outputs of the level.
        schemas: output -> schema of its rows.
        lookups: uid -> lookup.
        emits_sql: whether the steps also emit the rows of SQL that only other SQL reads.
    """
    every = list(outputs)
    outputs_by_name = {
        one.name: one
        for one in sql_outputs(plan.graph, nodes_with_whole_output(plan), nodes_with_fill_output(plan), plan.begin)
        if any(level in plan.graph.nodes[uid].levels for uid in one.inputs)
    }
    depths = _projection_depths(plan.graph, level, outputs_by_name)
    sent = {
        name
        for name, node, sinks in every
        if sinks or readers(plan, name, node) or (emits_sql and name in outputs_by_name)
    }
    inputs: dict[str, Collection[str]] = {name: one.inputs.values() for name, one in outputs_by_name.items()}
    inputs |= {uid: plan.graph.nodes[uid].inputs for uid in lookups}

    def of_kind(kind: Container[str], passes: Callable[[int], bool]) -> list[str]:
        return [name for name, depth in depths.items() if name in kind and passes(depth)]

    def stage(depth: int) -> LookupStage:
        own = tuple(lookups[uid] for uid in of_kind(lookups, lambda one: one == depth))
        return LookupStage(plan.checkpoint_id, plan.token, level, plan.job_store, own)

    def read_from(sql: int, lookup: int) -> set[str]:
        further = of_kind(outputs_by_name, lambda depth: depth >= sql) + of_kind(lookups, lambda depth: depth >= lookup)
        return sent.union(name for reader in further for name in inputs[reader])

    step: SqlStep | None = None
    for number in range(max((depths[uid] for uid in of_kind(outputs_by_name, lambda _: True)), default=0), 0, -1):
        own = of_kind(outputs_by_name, lambda depth, own=number: depth == own)  # type: ignore[misc]
        available = {name: (column_of(name),) for name, depth in depths.items() if depth < number}
        sql = level_sql(plan.spec, [outputs_by_name[name] for name in own], available, schemas)
        before = {name for name, _, _ in every if depths.get(name, 0) < number}
        read_later = before.union(own) & read_from(number + 1, number)
        output_schemas = {name: schemas[name] for name, _, _ in every if name in read_later}
        step = SqlStep(
            {name: schemas[name] for name, _, _ in every if name in before & read_from(number, number)},
            sql.expressions,
            output_schemas,
            {name: sql.columns.get(name, (column_of(name),)) for name in output_schemas},
            stage(number),
            step,
        )
    return RowWise(stage(0), step)


def _projection_depths(graph: JobGraph, level: int, outputs_by_name: Mapping[str, SqlOutput]) -> dict[str, int]:
    """Return the depth of each output of a level.

    Args:
        outputs_by_name: the SQL outputs, in topological order.
    """
    depths: dict[str, int] = {}
    for node in graph.nodes.values():
        if level not in node.levels:
            continue
        if node.kind == "lookup":
            depths[node.uid] = depths[node.inputs[0]]
        elif not node.is_select:
            depths |= dict.fromkeys((node.uid, node.read, node.uid + WHOLE, node.uid + FILL), 0)
        else:
            depths |= {
                output.name: _sql_depth(graph, output, depths)
                for output in outputs_by_name.values()
                if output.node == node
            }
    return {output.name: _sql_depth(graph, output, depths) for output in outputs_by_name.values()} | depths


def _sql_depth(graph: JobGraph, output: SqlOutput, depths: Mapping[str, int]) -> int:
    """Return the depth of a SQL output: the depth of SQL that it reads, or one more than that of any other input."""
    read = [(uid, name) for uid, name in output.inputs.items() if name in depths]
    return max(depths[name] + (not graph.nodes[uid].is_select) for uid, name in read)
