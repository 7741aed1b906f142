"""Collect the compiled operators, and derive the rows of each as the graph does."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from milepost.jobspec.sql.emit.derived import Derived
from milepost.jobspec.sql.text import Fragment, Tokens, digest
from milepost.language import Problem
from milepost.language.sql import SqlProblem, branches, problem_from, quote
from milepost.operators import AnyOperator
from milepost.operators.base import APPEND, UPDATES, OutputRows, RowWiseSpec, StatefulSpec

_POSITION = re.compile(r"line (\d+), column (\d+): (.*)", re.DOTALL)
_OPERATOR: TypeAdapter[RowWiseSpec | StatefulSpec] = TypeAdapter(AnyOperator)
_IN_AN_OPERATOR = re.compile(
    r" in an? (?:upstream )?`sql` operator(?: of each input| upstream| before (?:it|the \w+))?"
)

_NAMED = re.compile(r"\b(?:key|arg|where|order|over|bound)_[0-9a-f]{8}\b|\b[a-z]\w*?__\w+")
_MAX_UID = 200


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a `sql` step: its name, and the expression, with its position in the file."""

    name: str
    text: Fragment

    @classmethod
    def plain(cls, name: str, at: int, input_column: str | None = None) -> Column:
        """Return an unchanged input column, perhaps under another name."""
        return cls(name, Fragment(((quote(input_column or name), at),)))

    @property
    def is_plain(self) -> bool:
        """Whether it is an input column under its own name."""
        return str(self.text) == quote(self.name)

    def renamed(self, name: str) -> Column:
        """Return its value under another name."""
        return Column(name, self.text)

    def cast(self, type_: str) -> Column:
        """Return its value in another type, under a name of its own."""
        at = self.text.start
        text = Fragment((("CAST(", at), *self.text.pieces, (f" AS {type_})", at)))
        return Column(f"key_{digest([str(text)])}", text)


@dataclass
class Emitter:
    """The operators compiled so far, in order, and the rows of all nodes that a query can read.

    Attributes:
        rows: name of a node -> its rows. operators: the compiled operators as a spec writes them.
        positions: compiled operator -> offset in the SQL file.
        unique: node -> columns that no two of its current rows have in common; () for a single row. A node that is not
            in it may have equal rows.
        labels: column that the compiler names -> the user's expression, for messages.
    """

    rows: dict[str, OutputRows]
    operators: list[dict[str, Any]] = field(default_factory=list)
    positions: dict[str, int] = field(default_factory=dict)
    unique: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    derived: Derived = field(init=False)

    def __post_init__(self) -> None:
        self.derived = Derived(self.rows)

    def label(self, name: str, run: Tokens) -> str:
        """Note the expression that a column holds; return the column."""
        self.labels.setdefault(name, " ".join(run.text.split()))
        return name

    def read(self, name: str) -> OutputRows:
        """Return a node's rows as its consumers see them."""
        rows = self.rows[name]
        return replace(rows, holdback_us=0, retracts=rows.kind != APPEND)

    def sql(self, uid: str, source: str, columns: Sequence[Column], where: Sequence[Fragment], at: Tokens) -> str:
        """Add a `sql` operator over one input; return its uid. Raises SqlProblem."""
        return self.select_all(uid, [(source, columns, where)], at)

    def select_all(
        self,
        uid: str,
        selects: Sequence[tuple[str, Sequence[Column], Sequence[Fragment]]],
        at: Tokens,
    ) -> str:
        """Add a `sql` operator of SELECTs combined by UNION ALL; return its uid. Raises SqlProblem."""
        pieces: list[tuple[str, int]] = []
        for number, (source, columns, where) in enumerate(selects):
            pieces.append(("\nUNION ALL\nSELECT\n  " if number else "SELECT\n  ", at.start))
            for index, column in enumerate(columns):
                pieces += [(",\n  ", column.text.start)] if index else []
                pieces += column.text.pieces
                if str(column.text) != quote(column.name):
                    pieces.append((f" AS {quote(column.name)}", column.text.start))
            pieces.append((f"\nFROM {quote(source)}", at.start))
            for index, condition in enumerate(where):
                pieces.append(("\nWHERE (" if index == 0 else "\n  AND (", condition.start))
                pieces += [*condition.pieces, (")", condition.start)]
        text = Fragment(tuple(pieces))
        inputs = list(dict.fromkeys(source for source, _, _ in selects))
        self.add({"uid": uid, "kind": "sql", "inputs": inputs, "sql": str(text)}, at, text)
        if len(selects) == 1:
            texts = {column.name: str(column.text) for column in selects[0][1]}
            self.derived.selects[uid] = texts, [str(condition) for condition in selects[0][2]]
        if uid not in self.unique and not self.repeats_rows(uid):
            source, columns, _ = selects[0]
            names = {str(column.text): column.name for column in reversed(columns)}
            kept = [names.get(quote(column)) for column in self.unique_of(source) or ()]
            if self.unique_of(source) is not None and all(kept):
                self.unique[uid] = tuple(name for name in kept if name is not None)
        return uid

    def repeats_rows(self, uid: str) -> bool:
        """Return whether an operator is SQL that may emit several rows for one: an explode, or several SELECTs."""
        operator = self.derived.operators[uid]
        if operator["kind"] != "sql":
            return False
        first, *others = branches(operator["sql"], operator["inputs"])
        return bool(others) or first.plan([*self.rows[first.input].columns]).exploded is not None

    def unique_of(self, name: str) -> tuple[str, ...] | None:
        """Return the unique columns of a node's current rows, () for a single row; None: there are none."""
        return self.unique.get(name, self.rows[name].unique_key)

    def remove_last(self) -> tuple[dict[str, Any], OutputRows]:
        """Remove the operator that was added last; return it and its rows."""
        operator = self.operators.pop()
        del self.positions[operator["uid"]]
        return operator, self.rows.pop(operator["uid"])

    def add(self, operator: Mapping[str, Any], at: Tokens, text: Fragment | None = None) -> str:
        """Add an operator; return its uid.

        Args:
            at: where the query states it. text: its SQL.
        Raises:
            SqlProblem: it cannot read its inputs.
        """
        uid = str(operator["uid"])
        if uid in self.rows:
            raise at.problem(f"two steps of this statement would have the name {uid}; give one relation an alias")
        if len(uid) > _MAX_UID:
            raise at.problem(f"the step {uid[:60]}… would have a name of {len(uid)} characters; use shorter names")
        try:
            spec = _OPERATOR.validate_python(dict(operator))
        except ValidationError as failure:
            error = failure.errors(include_url=False)[0]
            reason = str(error.get("ctx", {}).get("error", error["msg"]))
            raise at.problem(reason) from None
        rows = spec.output_rows([self.read(name) for name in spec.inputs], (), None)
        if isinstance(rows, list):
            problem = _located(rows[0], at, text)
            raise SqlProblem(for_statements(shown_text(problem.reason, self.labels)), problem.line, problem.column)
        self.rows[uid] = rows
        self.operators.append(dict(operator))
        self.derived.operators[uid] = operator
        self.positions[uid] = at.start
        return uid


def _located(problem: Problem, at: Tokens, text: Fragment | None) -> SqlProblem:
    """Return a problem of an operator at its position in the SQL file."""
    match = _POSITION.fullmatch(problem.message)
    if match is None or text is None:
        return at.problem(problem.message if match is None else match[3])
    lines = str(text).split("\n")
    position = sum(len(line) + 1 for line in lines[: int(match[1]) - 1]) + int(match[2]) - 1
    return problem_from(at.sql, text.offset(position), match[3])


def shown_text(text: str, labels: Mapping[str, str]) -> str:
    """Return a text with the user's expressions instead of the columns that the compiler names."""
    # distinct key_9aa695cd  ->  distinct lower(customer);  sums__who  ->  s.who
    return _NAMED.sub(lambda match: labels.get(match[0], match[0]), text) if labels else text


def for_statements(message: str) -> str:
    """Return a message about an operator for a job whose steps are statements: each of them can compute columns."""
    # "CAST one of them in a `sql` operator before the join" -> "CAST one of them"
    return _IN_AN_OPERATOR.sub("", message)


def described(rows: OutputRows) -> str:
    """Return the mode of rows for a message."""
    if rows.kind == UPDATES:
        return f"updates by {', '.join(rows.key) or 'one row'}"
    return "append" if rows.kind == APPEND else "retractions without a key"
