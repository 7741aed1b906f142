"""Compile the SQL file of a job into operators and sinks, in dependency order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from milepost.jobspec.graph.output_checks import source_rows
from milepost.jobspec.job import JobSpec
from milepost.jobspec.sql.emit import Emitter, shown_text
from milepost.jobspec.sql.flows import Flow, FlowCompiler
from milepost.jobspec.sql.queries import QueryCompiler, Table
from milepost.jobspec.sql.renames import first_name
from milepost.jobspec.sql.statements import TABLE, TEMPORARY, Statement, split_statements
from milepost.jobspec.sql.text import Tokens
from milepost.language import did_you_mean
from milepost.language.sql import SqlProblem, problem_from
from milepost.operators.base import APPEND, RETRACTIONS, UPDATES, OutputRows

NAME = "{name}"
"""In `tables`, the name of the statement."""


@dataclass(frozen=True, slots=True)
class CompiledStatement:
    """One statement of a compiled job.

    Attributes:
        name, kind: as in `Statement`. text: its tokens, as recorded. line, column: position in the file.
        operators: its compiled operators, in order; the last has its name. warnings: (line, column, text).
        labels: column that the compiler names -> the user's expression, for messages.
    """

    name: str
    kind: str
    text: str
    line: int
    column: int
    operators: tuple[str, ...]
    warnings: tuple[tuple[int, int, str], ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, compare=False)


@dataclass
class CompiledJob:
    """Operators and sinks as a spec writes them, or the problems of the file.

    Attributes:
        positions: compiled operator -> (line, column) in the SQL file.
    """

    operators: list[dict[str, Any]] = field(default_factory=list)
    sinks: list[dict[str, Any]] = field(default_factory=list)
    statements: dict[str, CompiledStatement] = field(default_factory=dict)
    positions: dict[str, tuple[int, int]] = field(default_factory=dict)
    problems: list[SqlProblem] = field(default_factory=list)


def compile_sql(spec: JobSpec, sql: str) -> CompiledJob:
    """Return the compiled statements of a SQL file, or its problems, one per statement.

    Args:
        spec: the spec with the sources and operators that statements may read; its `tables` locate their tables.
    """
    statements, problems = split_statements(sql)
    return _JobCompiler(spec, sql, {one.name: one for one in statements}, problems).compile()


class _Unavailable(Exception):
    """A statement that another one reads has a problem of its own."""


class _JobCompiler:
    def __init__(
        self, spec: JobSpec, sql: str, statements: Mapping[str, Statement], problems: list[SqlProblem]
    ) -> None:
        self._spec, self._sql, self._statements = spec, sql, statements
        self._job = CompiledJob(problems=list(problems))
        self._incomplete = bool(problems)
        rows: dict[str, OutputRows] = {name: source_rows(source) for name, source in spec.sources.items()}
        self._emitter = Emitter(rows)
        self._operators = {operator.uid: operator for operator in spec.operators}
        self._open: list[str] = []
        self._failed: set[str] = set()

    def compile(self) -> CompiledJob:
        for name, statement in self._statements.items():
            try:
                if name in self._spec.sources or name in self._operators:
                    taken = "a source" if name in self._spec.sources else "an operator"
                    self._failed.add(name)
                    raise statement.whole.problem(f"the name {name} is already used by {taken} of the spec")
                self._compile(statement)
                self._sink(statement)
            except SqlProblem as problem:
                self._job.problems.append(problem)
            except _Unavailable:
                continue
        self._job.operators = self._emitter.operators
        self._job.positions = {uid: self._position(offset) for uid, offset in self._emitter.positions.items()}
        self._job.problems.sort(key=lambda problem: (problem.line, problem.column))
        self._job.statements = {
            name: self._job.statements[name] for name in self._statements if name in self._job.statements
        }
        return self._job

    def _position(self, offset: int) -> tuple[int, int]:
        problem = problem_from(self._sql, offset, "")
        return problem.line, problem.column

    def _compile(self, statement: Statement) -> None:
        """Compile a statement and those that it reads, once."""
        name = statement.name
        if name in self._job.statements:
            return
        if name in self._failed:
            raise _Unavailable
        if name in self._open:
            self._failed.update(self._open)
            cycle = " <- ".join([*self._open[self._open.index(name) :], name])
            raise statement.whole.problem(f"a cycle: {cycle}")
        self._open.append(name)
        known = [*self._statements, *self._spec.sources, *self._operators]
        compiler = QueryCompiler(statement, self._emitter, self._find, known, self._spec.renamed)
        before = len(self._emitter.operators)
        try:
            if statement.flow is None:
                compiler.compile()
            else:
                self._compile_flow(statement, statement.flow, known)
        except SqlProblem:
            self._failed.add(name)
            raise
        except _Unavailable:
            self._failed.add(name)
            raise
        finally:
            self._open.pop()
        line, column = self._position(statement.whole.start)
        own = [str(one["uid"]) for one in self._emitter.operators[before:]]
        self._job.statements[name] = CompiledStatement(
            name,
            statement.kind,
            statement.tokens_text,
            line,
            column,
            tuple(uid for uid in own if uid == name or uid.startswith(f"{name}__")),
            tuple((*self._position(at.start), text) for at, text in compiler.warnings),
            dict(self._emitter.labels),
        )

    def _compile_flow(self, statement: Statement, flow: Flow, known: Sequence[str]) -> None:
        run = flow.source.tokens
        name = run.name().lower()
        found = self._find(name)
        if found is None:
            raise run.problem(f"there is no source or statement {name}; {did_you_mean(name, known)}")
        if found.is_static:
            raise run.problem(f"{name} is static: a flow reads changes that arrive")
        for option, (_, entry) in statement.properties.items():
            if option != "milepost.ttl":
                raise entry.problem(f"{option} has no effect: no step of this statement takes it")
        if statement.partition_by:
            raise statement.whole.problem("PARTITIONED BY applies to tables of appended rows")
        FlowCompiler(statement.name, flow, found.node, statement.duration("milepost.ttl"), self._emitter).compile()

    def _find(self, name: str) -> Table | None:
        if name in self._statements:
            reader = self._open[-1]
            try:
                self._compile(self._statements[name])
            except SqlProblem as problem:
                if name not in self._open and reader != name:  # it is reported with its own statement
                    self._job.problems += [problem] if problem not in self._job.problems else []
                    raise _Unavailable from None
                raise
            return Table(name)
        if name in self._spec.sources:
            return Table(name, self._spec.sources[name].is_static)
        if name in self._operators:
            return self._operator(name)
        if self._incomplete:
            raise _Unavailable  # a statement that cannot be read may define it
        return None

    def _operator(self, name: str) -> Table | None:
        """Return an operator of the spec, after deriving the rows of its inputs."""
        if name not in self._emitter.rows:
            operator = self._operators[name]
            if name in self._open:
                raise _Unavailable  # a cycle of the spec, which the checks of the spec report
            self._open.append(name)
            try:
                if any(self._find(one) is None for one in operator.inputs):
                    return None
            finally:
                self._open.pop()
            rows = operator.output_rows([self._emitter.read(one) for one in operator.inputs], (), None)
            if isinstance(rows, list):
                raise _Unavailable  # the checks of the spec report it
            self._emitter.rows[name] = rows
        return Table(name)

    def _sink(self, statement: Statement) -> None:
        if statement.kind == TEMPORARY:
            return
        rows, name = self._emitter.rows[statement.name], statement.name
        at: Tokens = statement.whole
        if statement.kind == TABLE and rows.kind != APPEND and statement.flow is None:
            raise at.problem(f"the rows of {name} are replaced or deleted; write CREATE MATERIALIZED VIEW {name}")
        if rows.kind == RETRACTIONS:
            raise at.problem(f"the rows of {name} have no key by which a table could be updated: {self._keyless(name)}")
        mode = "upsert" if rows.kind == UPDATES else "append"
        tables = self._spec.tables
        if tables is None:
            raise at.problem(f"{name} is a table, and the spec has no `tables`: add tables: {{format: …, path: …}}")
        table = first_name(name, self._spec.renamed)  # a renamed statement keeps its table
        sink: dict[str, Any] = {"name": table, "input": name, "mode": mode}
        sink |= tables.model_dump(mode="json", by_alias=True, exclude_unset=True)
        for key in ("path", "table"):
            if isinstance(sink.get(key), str):
                sink[key] = sink[key].replace(NAME, table)
        if statement.partition_by:
            sink["partition_by"] = list(statement.partition_by)
        self._job.sinks.append(sink)

    def _keyless(self, name: str) -> str:
        """Return which columns to select, as a clause."""
        operators = {one["uid"]: one for one in self._emitter.operators}
        at = name
        while at in operators and len(operators[at]["inputs"]) == 1:  # a projection before a ranking drops the key too
            if self._emitter.repeats_rows(at):
                break
            (at,) = operators[at]["inputs"]
            if unique := self._emitter.unique_of(at):
                return f"select {', '.join(map(self._shown, unique))}"
        return (
            "group them, select row_number() OVER (…) as a column, or take the newest row per key on each side of a "
            "join: QUALIFY row_number() OVER (PARTITION BY … ORDER BY … DESC) = 1"
        )

    def _shown(self, column: str) -> str:
        """Return a column as the query may state it: `r.who` for `sums__who`."""
        return self._emitter.labels.get(column, shown_text(column, self._emitter.labels).replace("__", "."))
