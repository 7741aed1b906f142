"""The job graph: which node reads which, in which stage, with which columns, event time and kind of output.

One exchange and one stage per level: a stateful operator is one level above its input, sources and sql cost none
(DESIGN 4.2). What a spec means is decided here, once; everything that runs reads it from here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from milepost.spec.graph.checks import late_outputs, structure_problems
from milepost.spec.graph.condition_columns import condition_columns
from milepost.spec.graph.edges import BAD, LATE, RETRACT
from milepost.spec.graph.rules.asof import asof_rows
from milepost.spec.graph.rules.join import join_rows
from milepost.spec.graph.rules.latest import latest_rows
from milepost.spec.graph.rules.lookup import lookup_rows
from milepost.spec.graph.rules.node import (
    APPEND,
    BAD_COLUMNS,
    CHANGELOG_COLUMNS,
    RETRACTIONS,
    UPDATES,
    OutputRows,
    aggregate_rows,
    deduplicate_rows,
    partition_problems,
    sink_problems,
    source_rows,
    suite_problems,
)
from milepost.spec.graph.rules.process import process_rows
from milepost.spec.graph.rules.sql import sql_rows
from milepost.spec.graph.rules.top import top_rows
from milepost.spec.graph.rules.window import early_window_problems, window_rows
from milepost.spec.graph.static_rules import unread_problems
from milepost.spec.job.operators.asof import AsofOperator
from milepost.spec.job.operators.join import JoinOperator
from milepost.spec.job.operators.latest import LatestOperator
from milepost.spec.job.operators.lookup import LookupOperator
from milepost.spec.job.operators.top import TopOperator
from milepost.spec.job.spec import (
    AggregateOperator,
    JobSpec,
    ProcessOperator,
    RowWiseSpec,
    SqlOperator,
    StatefulSpec,
    WindowOperator,
    key_texts,
)
from milepost.spec.values.problems import Path, Problem
from milepost.spec.values.types import ColumnType

STATEFUL_KINDS = ("aggregate", "window", "deduplicate", "process", "join", "asof", "top", "latest")

Outputs = Mapping[str, Mapping[str, ColumnType]]
"""Per process operator what its class declares; without an entry its columns are not known."""


@dataclass(frozen=True, slots=True)
class Node:
    """One source or operator in its place.

    Attributes:
        uid: its name. kind: source, static (a source whose rows are looked up), or that of an operator.
        level: 0 for sources; one above its inputs for a stateful operator; the highest of its inputs' for others.
        levels: at which its rows come: of sql and lookup each at which rows of an input do; of a static source none,
            of any other its own.
        inputs: names of the nodes it reads.
        consumers: operators that read its rows, in the order of the spec.
        sinks, late_sinks, bad_sinks: sinks that read its rows, its late rows, and its records that cannot be read.
        columns: output column -> type, in order; None = a type that only Spark knows.
        event_time: output column that times its rows, or None.
        shift_us: what is added to it: -1 where it is the end of a window, which is the first moment after it.
        holdback_us: how much older than the stamp they are emitted with its rows may be.
        output_kind: append (a row is final), updates (a row replaces the last one with its key), or retract (a row is
            there until it is taken back).
        key: key columns of its output; () for rows without one.
        deletes: whether a row of it may go: then its updates have `DELETED_COLUMN` behind `columns`.
        retracts: whether operators read its updates, itself or through SQL, with the rows that they replace.
        shown: whether a sink reads its rows, itself or through SQL.
        conditions: as of `condition_columns`.
        sources: the sources it descends from, which make its watermark.
        known: whether `columns` is: not below a process operator whose class was not loaded.
    """

    uid: str
    kind: str
    level: int
    inputs: tuple[str, ...]
    columns: dict[str, ColumnType | None]
    event_time: str | None
    output_kind: str
    key: tuple[str, ...]
    sources: tuple[str, ...]
    levels: tuple[int, ...]
    known: bool = True
    shift_us: int = 0
    holdback_us: int = 0
    deletes: bool = False
    retracts: bool = False
    conditions: tuple[tuple[str, str], ...] = ()
    shown: bool = False
    consumers: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    late_sinks: tuple[str, ...] = ()
    bad_sinks: tuple[str, ...] = ()

    @property
    def is_stateful(self) -> bool:
        return self.kind in STATEFUL_KINDS

    @property
    def is_row_wise(self) -> bool:
        """Whether it is an operator without state, which works where its input's rows are."""
        return bool(self.inputs) and not self.is_stateful

    @property
    def stable_key(self) -> tuple[str, ...]:
        """Columns by which a row that is there never goes: those of its key, unless there are deletes."""
        return () if self.deletes else self.key

    @property
    def read(self) -> str:
        """The name of the output that operators read: its rows, or of updates what they change."""
        return f"{self.uid}{RETRACT}" if self.retracts else self.uid

    @property
    def has_conditions(self) -> bool:
        """Whether SQL adds columns to its input, before it is exchanged."""
        return bool(self.conditions)


@dataclass(frozen=True, slots=True)
class SinkInput:
    """What one sink reads.

    Attributes:
        sink: its name. uid: the node. part: "": its rows; LATE, with an input where there are two, or BAD.
        mode: append, upsert or changelog. key: the upsert key; () for the others.
        routing_key: the columns of it by which rows come to subtasks, in the order in which they are hashed; None: all.
        columns, known: as in `Node`; of a changelog with what it adds.
        op: what a row is to a changelog: `insert`, or `upsert` of a row by its key.
        deletes: as in `Node`; never of a part.
    """

    sink: str
    uid: str
    part: str
    mode: str
    key: tuple[str, ...]
    columns: dict[str, ColumnType | None]
    known: bool = True
    op: str = "insert"
    deletes: bool = False
    routing_key: tuple[str, ...] | None = None

    @property
    def output(self) -> str:
        """The name of what it reads: of a node, or of a part of it."""
        return self.uid + self.part


@dataclass(frozen=True, slots=True)
class JobGraph:
    """All nodes of a job in topological order, and what its sinks read."""

    nodes: dict[str, Node]
    sink_inputs: dict[str, SinkInput]

    @property
    def levels(self) -> int:
        """The highest level: the number of exchanges of an epoch; 0 without stateful operators."""
        return max(node.level for node in self.nodes.values())

    @property
    def sources(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if node.kind == "source")

    @property
    def stateful(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if node.is_stateful)

    def keyed_by(self, uid: str) -> str:
        """Return the stateful operator that gives a node's rows their key: itself, or the one behind its SQL."""
        node = self.nodes[uid]
        return uid if node.is_stateful else self.keyed_by(node.inputs[0])

    def at_level(self, level: int) -> tuple[Node, ...]:
        """Return the stateful operators that the subtasks of one level host."""
        return tuple(node for node in self.stateful if node.level == level)


def analyse(spec: JobSpec, outputs: Outputs | None = None) -> tuple[JobGraph | None, list[Problem]]:
    """Return the graph and no problem, or None and all problems."""
    problems = structure_problems(spec)
    if problems:
        return None, problems
    builder = _Builder(spec, outputs or {})
    builder.run()
    return (None, builder.problems) if builder.problems else (builder.graph(), [])


@dataclass(slots=True)
class _Builder:
    """Visits operators after their inputs. A node with a problem of its own is left out, with all that read it."""

    spec: JobSpec
    outputs: Outputs
    problems: list[Problem] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    sink_inputs: dict[str, SinkInput] = field(default_factory=dict)

    def run(self) -> None:
        for name, source in self.spec.sources.items():
            stream = not source.static
            kind, levels, own = ("source", (0,), (name,)) if stream else ("static", (), ())
            self._add(name, kind, levels, (), source_rows(source), own)
        waiting = dict(enumerate(self.spec.operators))
        visited = set(self.spec.sources)
        while waiting:
            ready = [index for index, operator in waiting.items() if visited.issuperset(operator.inputs)]
            for index in ready:
                operator = waiting.pop(index)
                visited.add(operator.uid)
                if all(name in self.nodes for name in operator.inputs):
                    self._visit(("operators", index), operator)
        self._sinks()
        self._quality()
        self._idle()
        self.problems += unread_problems(self.spec)

    def graph(self) -> JobGraph:
        operators = self.spec.operators
        conditions = {operator.uid: condition_columns(operator) for operator in operators}
        nodes = {
            uid: replace(
                node,
                retracts=node.output_kind != APPEND and self._is_taken_back(uid),
                shown=self._is_shown(uid),
                conditions=conditions.get(uid, ()),
                consumers=tuple(operator.uid for operator in operators if uid in operator.inputs),
                sinks=self._sinks_of(uid),
                late_sinks=tuple(
                    rows.sink for rows in self.sink_inputs.values() if rows.uid == uid and rows.part.startswith(LATE)
                ),
                bad_sinks=self._sinks_of(uid + BAD),
            )
            for uid, node in self.nodes.items()
        }
        return JobGraph(nodes, self.sink_inputs)

    def _is_shown(self, uid: str) -> bool:
        """Return whether a sink reads a node's rows, itself or through SQL."""
        through = (one.uid for one in self.spec.operators if isinstance(one, SqlOperator) and uid in one.inputs)
        return bool(self._sinks_of(uid)) or any(map(self._is_shown, through))

    def _is_taken_back(self, uid: str) -> bool:
        """Return whether an operator with state reads a node, itself or through SQL, or is to: rows without a key."""
        return self.nodes[uid].output_kind == RETRACTIONS or any(
            not isinstance(one, SqlOperator) or self._is_taken_back(one.uid)
            for one in self.spec.operators
            if uid in one.inputs
        )

    def _keyed_by(self, node: Node) -> Node:
        return node if node.is_stateful or not node.inputs else self._keyed_by(self.nodes[node.inputs[0]])

    def _sinks_of(self, output: str) -> tuple[str, ...]:
        return tuple(rows.sink for rows in self.sink_inputs.values() if rows.output == output)

    def _visit(self, path: Path, operator: RowWiseSpec | StatefulSpec) -> None:
        sources = [self.nodes[name] for name in operator.inputs]
        inputs = [_rows_of(node) for node in sources]
        source, rows = sources[0], inputs[0]
        if isinstance(operator, JoinOperator):
            result = join_rows(operator, inputs, path)
        elif isinstance(operator, AsofOperator):
            result = asof_rows(operator, inputs, path)
        elif isinstance(operator, SqlOperator):
            result = sql_rows(operator, dict(zip(operator.inputs, inputs, strict=True)), path)
        elif isinstance(operator, LookupOperator):
            result = lookup_rows(operator, inputs, path)
        elif isinstance(operator, AggregateOperator):
            result = aggregate_rows(operator, source.uid, rows, path)
        elif isinstance(operator, WindowOperator):
            result = window_rows(operator, source.uid, rows, path)
        elif isinstance(operator, ProcessOperator):
            result = process_rows(operator, inputs, path, self.outputs.get(operator.uid))
        elif isinstance(operator, TopOperator):
            result = top_rows(operator, source.uid, rows, path)
        elif isinstance(operator, LatestOperator):
            result = latest_rows(operator, source.uid, rows, path)
        else:
            result = deduplicate_rows(operator, source.uid, rows, path)
        if isinstance(result, list):
            self.problems += result
        else:
            levels = tuple(sorted({level for node in sources for level in node.levels}))
            if not isinstance(operator, RowWiseSpec):
                levels = (levels[-1] + 1,)
            descends_from = tuple(dict.fromkeys(name for node in sources for name in node.sources))
            self._add(operator.uid, operator.kind, levels, operator.inputs, result, descends_from)

    def _add(
        self,
        uid: str,
        kind: str,
        levels: tuple[int, ...],
        inputs: tuple[str, ...],
        rows: OutputRows,
        sources: tuple[str, ...],
    ) -> None:
        self.nodes[uid] = Node(
            uid=uid,
            kind=kind,
            level=max(levels, default=0),
            inputs=inputs,
            columns=rows.columns,
            event_time=rows.event_time,
            output_kind=rows.kind,
            key=rows.key,
            sources=sources,
            levels=levels,
            known=rows.known,
            shift_us=rows.shift_us,
            holdback_us=rows.holdback_us,
            deletes=rows.deletes,
        )

    def _sinks(self) -> None:
        late_rows = late_outputs(self.spec)
        for index, sink in enumerate(self.spec.sinks):
            uid, position = late_rows.get(sink.input, (sink.input.removesuffix(BAD), 0))
            part = sink.input.removeprefix(uid)
            node = self.nodes.get(uid)
            if node is None:
                continue
            origin = self.nodes[node.inputs[position]] if sink.input in late_rows else node
            rows = OutputRows(origin.columns, origin.event_time, node.output_kind, node.key, deletes=node.deletes)
            if part:
                columns = BAD_COLUMNS if part == BAD else rows.columns
                rows = replace(rows, columns=columns, kind=APPEND, key=(), deletes=False)
            problems = sink_problems(sink, rows, ("sinks", index))
            if sink.by_buckets:
                problems += early_window_problems(self.spec, self._keyed_by(node).uid, sink, ("sinks", index))
            if origin.known:
                problems += partition_problems(sink, rows.columns, ("sinks", index))
            self.problems += problems
            if not problems:
                key = rows.key if sink.mode == "upsert" else ()
                columns = rows.columns | (CHANGELOG_COLUMNS if sink.mode == "changelog" else {})
                op = "upsert" if rows.kind == UPDATES else "insert"
                routing_key = self._routing_key(node) if sink.by_buckets else None
                self.sink_inputs[sink.name] = SinkInput(
                    sink.name, uid, part, sink.mode, key, columns, origin.known, op, rows.deletes, routing_key
                )

    def _routing_key(self, node: Node) -> tuple[str, ...]:
        """Return the columns of a node's key by which its rows came to the subtask that has them, as it calls them."""
        keyed = self._keyed_by(node)
        names = dict(zip(keyed.key, node.key, strict=True))
        return tuple(names[column] for column in key_texts(self.spec.operator(keyed.uid)))

    def _idle(self) -> None:
        """A source that no operator reads beside another one holds nobody back: to time it out would do nothing."""
        timed = {name for name, source in self.spec.sources.items() if source.event_time is not None}
        met = {
            name
            for node in self.nodes.values()
            if node.is_stateful and len(timed.intersection(node.sources)) > 1
            for name in node.sources
        }
        for name, source in self.spec.sources.items():
            if source.idle_timeout is not None and name in timed - met:
                message = "no operator with state reads it beside another source with event time: it holds nobody back"
                self.problems.append(Problem(("sources", name, "idle_timeout"), message))

    def _quality(self) -> None:
        for index, suite in enumerate(self.spec.quality):
            if suite.sink in self.sink_inputs and self.sink_inputs[suite.sink].known:
                self.problems += suite_problems(suite, self.sink_inputs[suite.sink].columns, ("quality", index))


def _rows_of(node: Node) -> OutputRows:
    return OutputRows(
        node.columns,
        node.event_time,
        node.output_kind,
        node.key,
        known=node.known,
        shift_us=node.shift_us,
        deletes=node.deletes,
        retracts=node.output_kind != APPEND,
    )
