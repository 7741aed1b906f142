"""Order the row-wise operators of a level, without an exchange.

Spark runs SQL, and Python runs lookups. Python also runs a SELECT of unchanged columns, unless Spark computes its input
in the same level. A level with SQL for Spark has a projection between its operator stage and its output stage. A Python
step follows the step that produces its input: the operator stage or a projection. SQL that reads a lookup of SQL needs
another projection. ``depth`` is the number of projections that a node's rows have passed::

    source -> sql a -> lookup b -> sql c      depth  0  1  1  2
    source -> lookup d -> sql e               depth  0  0  1
    source -> columns f -> sql g              depth  0  0  1
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
from milepost.spark.task.row_steps.column_selection import ColumnSelection, column_selection
from milepost.spark.task.row_steps.lookup_plan import LookupPlan
from milepost.spark.task.row_steps.python_stage import PythonStage
from milepost.spark.task.row_steps.sql_expression import SqlExpression, column_of, level_sql


@dataclass(frozen=True, slots=True)
class SqlStep:
    """One Spark projection of a level, and the Python stage after it.

    Attributes:
        input_schemas: node -> schema, for each input that its SQL reads.
        unread_schemas: node -> schema, for each other node with rows that a downstream step reads.
        expressions: expressions of its SQL operators, in topological order.
        output_schemas: node -> schema, for each output of the projection that a downstream step reads.
        columns: node -> columns of the wide frame that hold its rows.
        python_stage: the Python stage after the projection.
        next_step: the next projection; None: this is the last.
    """

    input_schemas: Mapping[str, pa.Schema]
    unread_schemas: Mapping[str, pa.Schema]
    expressions: tuple[SqlExpression, ...]
    output_schemas: Mapping[str, pa.Schema]
    columns: Mapping[str, tuple[str, ...]]
    python_stage: PythonStage
    next_step: SqlStep | None

    @property
    def nodes_after(self) -> frozenset[str]:
        """The nodes with rows after the projection."""
        return frozenset((*self.output_schemas, *self.unread_schemas))


@dataclass(frozen=True, slots=True)
class RowWise:
    """The steps between a level's operator stage and its output stage.

    Attributes:
        python_stage: the Python stage after the operator stage.
        sql: the first projection; None: there is none.
    """

    python_stage: PythonStage
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
    selects = {
        one.name: one
        for one in sql_outputs(plan.graph, nodes_with_whole_output(plan), nodes_with_fill_output(plan), plan.begin)
        if any(level in plan.graph.nodes[uid].levels for uid in one.inputs)
    }
    selections = _selections(plan, selects, schemas)
    by_spark = {name: one for name, one in selects.items() if name not in selections}
    by_python: dict[str, LookupPlan | ColumnSelection] = {**lookups, **selections}
    depths = _projection_depths(plan.graph, level, selects, by_spark)
    sent = {
        name for name, node, sinks in every if sinks or readers(plan, name, node) or (emits_sql and name in selects)
    }
    inputs: dict[str, Collection[str]] = {name: one.inputs.values() for name, one in by_spark.items()}
    inputs |= {name: (one.input,) for name, one in by_python.items()}

    def of_kind(kind: Container[str], passes: Callable[[int], bool]) -> list[str]:
        return [name for name, depth in depths.items() if name in kind and passes(depth)]

    def stage(depth: int) -> PythonStage:
        own = tuple(by_python[name] for name in of_kind(by_python, lambda one: one == depth))
        return PythonStage(plan.checkpoint_id, plan.token, level, plan.job_store, own)

    def read_from(sql: int, python: int) -> set[str]:
        further = of_kind(by_spark, lambda depth: depth >= sql) + of_kind(by_python, lambda depth: depth >= python)
        return sent.union(name for reader in further for name in inputs[reader])

    step: SqlStep | None = None
    for number in range(max((depths[name] for name in of_kind(by_spark, lambda _: True)), default=0), 0, -1):
        own = of_kind(by_spark, lambda depth, own=number: depth == own)  # type: ignore[misc]
        available = {name: (column_of(name),) for name, depth in depths.items() if depth < number}
        sql = level_sql(plan.spec, [by_spark[name] for name in own], available, schemas)
        before = {name for name, _, _ in every if depths.get(name, 0) < number}
        read_by_sql = {name for reader in own for name in inputs[reader]}
        needed = before & read_from(number, number)
        unread = needed - read_by_sql
        read_later = (before.union(own) & read_from(number + 1, number)) - unread
        output_schemas = {name: schemas[name] for name, _, _ in every if name in read_later}
        step = SqlStep(
            {name: schemas[name] for name, _, _ in every if name in needed & read_by_sql},
            {name: schemas[name] for name, _, _ in every if name in unread},
            sql.expressions,
            output_schemas,
            {name: sql.columns.get(name, (column_of(name),)) for name in output_schemas},
            stage(number),
            step,
        )
    return RowWise(stage(0), step)


def _selections(
    plan: EpochPlan, selects: Mapping[str, SqlOutput], schemas: Mapping[str, pa.Schema]
) -> dict[str, ColumnSelection]:
    """Return the SQL outputs that Python computes. A SELECT stays in the projection that computes its input.

    Args:
        selects: the SQL outputs, in topological order.
    """
    selections: dict[str, ColumnSelection] = {}
    for name, output in selects.items():
        spark_inputs = [
            read for uid, read in output.inputs.items() if plan.graph.nodes[uid].is_select and read not in selections
        ]
        selection = None if spark_inputs else column_selection(plan.spec, output, schemas)
        if selection is not None:
            selections[name] = selection
    return selections


def _projection_depths(
    graph: JobGraph, level: int, selects: Mapping[str, SqlOutput], by_spark: Container[str]
) -> dict[str, int]:
    """Return the depth of each output of a level.

    Args:
        selects: the SQL outputs, in topological order. by_spark: those that Spark computes.
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
            depths |= {one.name: _sql_depth(one, depths, by_spark) for one in selects.values() if one.node == node}
    return {one.name: _sql_depth(one, depths, by_spark) for one in selects.values()} | depths


def _sql_depth(output: SqlOutput, depths: Mapping[str, int], by_spark: Container[str]) -> int:
    """Return the depth of a SQL output.

    An output that Spark computes has the depth of an input that Spark computes, or one more than that of any other
    input. The maximum counts. An output that Python computes has the depth of its input.
    """
    starts_projection = output.name in by_spark
    return max(
        depths[name] + (starts_projection and name not in by_spark) for name in output.inputs.values() if name in depths
    )
