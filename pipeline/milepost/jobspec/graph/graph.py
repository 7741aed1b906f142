"""Build the job graph: nodes with inputs, level, columns, event time and output mode.

The graph is the only interpretation of a spec; everything that runs uses it. There is one exchange and one stage per
level. A stateful operator is one level above its inputs; row-wise operators are on the level of their input (DESIGN
4.2):

    visits (source, 0) -> clean (sql, 0) -> totals (aggregate, 1) -> big (sql, 1) -> ranks (top, 2)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from milepost.jobspec.graph.checks import late_outputs, structure_problems
from milepost.jobspec.graph.output_checks import (
    CHANGELOG_COLUMNS,
    bad_columns,
    early_window_problems,
    input_problems,
    partition_problems,
    source_rows,
    suite_problems,
)
from milepost.jobspec.graph.row_rule_checks import rejected_outputs, row_rule_type_problems
from milepost.jobspec.graph.sink_input import SinkInput
from milepost.jobspec.graph.static_rules import unread_problems
from milepost.jobspec.job.spec import JobSpec, SinkSpec
from milepost.language import ColumnType, Path, Problem
from milepost.operators import KINDS, STATEFUL_KINDS
from milepost.operators.base import (
    APPEND,
    BAD,
    LATE,
    REJECTED,
    REJECTED_COLUMNS,
    RETRACT,
    RETRACTIONS,
    UPDATES,
    OutputRows,
    RowWiseSpec,
    StatefulSpec,
)
from milepost.operators.sql import SelectSpec

Outputs = Mapping[str, Mapping[str, ColumnType]]
"""Process operator -> columns that its class declares. Without an entry its columns are not known."""


@dataclass(frozen=True, slots=True)
class Node:
    """One source or operator.

    Attributes:
        uid: its name. kind: source, static (a source that lookups read), or the kind of an operator.
        level: 0 for sources; one above its inputs for a stateful operator; the maximum of its inputs for others.
        levels: the levels at which rows arrive: those of all inputs for sql and lookup, none for a static source.
        inputs: names of the nodes it reads.
        consumers: operators that read its rows, in the order of the spec.
        sinks, late_sinks, bad_sinks: sinks of its rows, of its late rows, and of its unreadable records.
        columns: output column -> type, in order; None: a type that only Spark knows.
        event_time: event time column of its rows, or None.
        shift_us: offset to add to the event time: -1 for the end of a window, which is exclusive.
        holdback_us: how much older than the stamp they are emitted with its rows may be.
        output_kind: append (rows are final), updates (a row replaces the previous one with its key), or retract (rows
            are retracted and have no key).
        key: key columns of its output; () if there is no key.
        deletes: whether rows may be deleted. Its updates then have `DELETED_COLUMN` after `columns`.
        repeats_keys: as in `OutputRows`.
        retracts: whether operators read its updates, directly or through SQL, together with the rows they replace.
        shown: whether a sink reads its rows, directly or through SQL.
        conditions: (column name, SQL condition) that Spark adds to its input, see `OperatorSpec.conditions`.
        sources: the sources it descends from, which determine its watermark.
        columns_known: whether `columns` is known. It is not downstream of a process operator without a loaded class.
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
    columns_known: bool = True
    shift_us: int = 0
    holdback_us: int = 0
    deletes: bool = False
    repeats_keys: bool = False
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
    def publishes_state(self) -> bool:
        """Whether its updates are a function of its state, so that a new sink can be filled from it."""
        return self.is_stateful and STATEFUL_KINDS[self.kind].publishes_state

    @property
    def is_row_wise(self) -> bool:
        """Whether it is an operator without state, which runs where the rows of its input are."""
        return bool(self.inputs) and not self.is_stateful

    @property
    def is_select(self) -> bool:
        """Whether its rows are a query."""
        return self.kind in KINDS and issubclass(KINDS[self.kind], SelectSpec)

    @property
    def stable_key(self) -> tuple[str, ...] | None:
        """Its key, if rows are replaced but never deleted; otherwise None."""
        return None if self.deletes else self.key

    @property
    def rows(self) -> OutputRows:
        """Its rows as the operators that read them see them."""
        return OutputRows(
            self.columns,
            self.event_time,
            self.output_kind,
            self.key,
            columns_known=self.columns_known,
            shift_us=self.shift_us,
            deletes=self.deletes,
            retracts=self.output_kind != APPEND,
            repeats_keys=self.repeats_keys,
        )

    @property
    def read(self) -> str:
        """The name of the output that operators read: its rows, or for updates their retractions and additions."""
        return f"{self.uid}{RETRACT}" if self.retracts else self.uid

    @property
    def has_conditions(self) -> bool:
        """Whether Spark adds condition columns to its input before the exchange."""
        return bool(self.conditions)


@dataclass(frozen=True, slots=True)
class JobGraph:
    """All nodes of a job in topological order, and what its sinks read."""

    nodes: dict[str, Node]
    sink_inputs: dict[str, SinkInput]

    @property
    def levels(self) -> int:
        """The number of exchanges of an epoch: the highest level, 0 without stateful operators."""
        return max(node.level for node in self.nodes.values())

    @property
    def sources(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if node.kind == "source")

    @property
    def stateful(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes.values() if node.is_stateful)

    def keyed_by(self, uid: str) -> str:
        """Return the stateful operator that determines the key of a node's rows: itself, or the one upstream of SQL."""
        node = self.nodes[uid]
        return uid if node.is_stateful else self.keyed_by(node.inputs[0])

    def at_level(self, level: int) -> tuple[Node, ...]:
        """Return the stateful operators that the subtasks of one level run."""
        return tuple(node for node in self.stateful if node.level == level)


def analyse(spec: JobSpec, outputs: Outputs | None = None) -> tuple[JobGraph | None, list[Problem]]:
    """Return (graph, []) or (None, all problems)."""
    problems = structure_problems(spec)
    if problems:
        return None, problems
    builder = _Builder(spec, outputs or {})
    builder.run()
    return (None, builder.problems) if builder.problems else (builder.graph(), [])


@dataclass(slots=True)
class _Builder:
    """Visits operators after their inputs. A node with a problem is left out, and so is everything downstream."""

    spec: JobSpec
    outputs: Outputs
    problems: list[Problem] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)
    sink_inputs: dict[str, SinkInput] = field(default_factory=dict)

    def run(self) -> None:
        for name, source in self.spec.sources.items():
            kind, levels, sources = ("static", (), ()) if source.is_static else ("source", (0,), (name,))
            self._add(name, kind, levels, (), source_rows(source), sources)
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
        self._idle_timeouts()
        self.problems += unread_problems(self.spec)

    def graph(self) -> JobGraph:
        operators = self.spec.operators
        conditions = {operator.uid: operator.conditions for operator in operators}
        nodes = {
            uid: replace(
                node,
                retracts=node.output_kind != APPEND and self._is_retracted(uid),
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
        """Return whether a sink reads a node's rows, directly or through SQL."""
        operators = self.spec.operators
        sql = (operator.uid for operator in operators if isinstance(operator, SelectSpec) and uid in operator.inputs)
        return bool(self._sinks_of(uid)) or any(map(self._is_shown, sql))

    def _is_retracted(self, uid: str) -> bool:
        """Return whether a node's rows have no key, or a stateful operator reads them, directly or through SQL."""
        return self.nodes[uid].output_kind == RETRACTIONS or any(
            not isinstance(operator, SelectSpec) or self._is_retracted(operator.uid)
            for operator in self.spec.operators
            if uid in operator.inputs
        )

    def _keyed_by(self, node: Node) -> Node:
        return node if node.is_stateful or not node.inputs else self._keyed_by(self.nodes[node.inputs[0]])

    def _sinks_of(self, output: str) -> tuple[str, ...]:
        return tuple(rows.sink for rows in self.sink_inputs.values() if rows.output == output)

    def _visit(self, path: Path, operator: RowWiseSpec | StatefulSpec) -> None:
        sources = [self.nodes[name] for name in operator.inputs]
        inputs = [node.rows for node in sources]
        result = operator.output_rows(inputs, path, self.outputs.get(operator.uid))
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
            columns_known=rows.columns_known,
            shift_us=rows.shift_us,
            holdback_us=rows.holdback_us,
            deletes=rows.deletes,
            repeats_keys=rows.repeats_keys,
        )

    def _sinks(self) -> None:
        rejected, late_rows = rejected_outputs(self.spec), late_outputs(self.spec)
        sinks = sorted(enumerate(self.spec.sinks), key=lambda item: item[1].input in rejected)  # after those they read
        for index, sink in sinks:
            path: Path = ("sinks", index)
            if sink.input in rejected:
                self._rejected_sink(sink, rejected[sink.input], path)
            else:
                self._sink(sink, path, late_rows)
        in_order = [sink.name for sink in self.spec.sinks if sink.name in self.sink_inputs]
        self.sink_inputs = {name: self.sink_inputs[name] for name in in_order}

    def _sink(self, sink: SinkSpec, path: Path, late_rows: Mapping[str, tuple[str, int]]) -> None:
        uid, position = late_rows.get(sink.input, (sink.input.removesuffix(BAD), 0))
        part = sink.input.removeprefix(uid)
        node = self.nodes.get(uid)
        if node is None:
            return
        origin = self.nodes[node.inputs[position]] if sink.input in late_rows else node
        rows = OutputRows(origin.columns, origin.event_time, node.output_kind, node.key, deletes=node.deletes)
        if part:
            columns = bad_columns(self.spec.sources[uid]) if part == BAD else rows.columns
            rows = replace(rows, columns=columns, kind=APPEND, key=(), deletes=False)
        problems = input_problems(sink, rows, path)
        if sink.by_buckets:
            problems += early_window_problems(self.spec, self._keyed_by(node).uid, sink, path)
        if origin.columns_known:
            problems += partition_problems(sink, rows.columns, path)
        self.problems += problems
        if not problems:
            key = rows.key if sink.mode == "upsert" else ()
            columns = rows.columns | (CHANGELOG_COLUMNS if sink.mode == "changelog" else {})
            op = "upsert" if rows.kind == UPDATES else "insert"
            routing_key = self._routing_key(node) if sink.by_buckets else None
            self.sink_inputs[sink.name] = SinkInput(
                sink.name, uid, part, sink.mode, key, columns, origin.columns_known, op, rows.deletes, routing_key
            )

    def _rejected_sink(self, sink: SinkSpec, of: str, path: Path) -> None:
        """Add a sink that publishes the quarantined rows of another one."""
        whole = self.sink_inputs.get(of)
        if whole is None:
            return
        columns = whole.columns | dict.fromkeys(REJECTED_COLUMNS, ColumnType("string"))
        rows = OutputRows(columns, None, APPEND, ())
        problems = input_problems(sink, rows, path)
        if whole.columns_known:
            problems += partition_problems(sink, columns, path)
        self.problems += problems
        if not problems:
            self.sink_inputs[sink.name] = SinkInput(
                sink.name, whole.uid, REJECTED, sink.mode, (), columns, whole.columns_known, rejected_by=of
            )

    def _routing_key(self, node: Node) -> tuple[str, ...]:
        """Return the columns of a node's key that route its rows to subtasks, under the node's names for them."""
        keyed = self._keyed_by(node)
        names = dict(zip(keyed.key, node.key, strict=True))
        return tuple(names[column] for column in self.spec.operator(keyed.uid).key_texts)

    def _idle_timeouts(self) -> None:
        """Refuse `idle_timeout` of a source that no operator reads together with another: it has no effect."""
        timed = {name for name, source in self.spec.sources.items() if source.event_time is not None}
        combined = {
            name
            for node in self.nodes.values()
            if node.is_stateful and len(timed.intersection(node.sources)) > 1
            for name in node.sources
        }
        for name, source in self.spec.sources.items():
            if source.idle_timeout is not None and name in timed - combined:
                message = "it has no effect: no stateful operator reads this source and another one with event time"
                self.problems.append(Problem(("sources", name, "idle_timeout"), message))

    def _quality(self) -> None:
        for index, suite in enumerate(self.spec.quality):
            if suite.sink in self.sink_inputs and self.sink_inputs[suite.sink].columns_known:
                columns = self.sink_inputs[suite.sink].columns
                self.problems += suite_problems(suite, columns, ("quality", index))
                self.problems += row_rule_type_problems(suite, columns, ("quality", index))
