"""Read and compile CREATE FLOW … AUTO CDC INTO: the newest row or the versions of each key of a change feed.

The steps of a table `<s>` that a flow fills::

    <s>__rows   the columns of the changes, and their sequence
    <s>__cdc    the newest row (SCD TYPE 1) or the versions (SCD TYPE 2) of each key
    <s>         the columns of the table
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from milepost.jobspec.sql.emit import Column, Emitter, described
from milepost.jobspec.sql.names import Relation, Scope
from milepost.jobspec.sql.text import FromItem, Tokens, aggregate_calls, digest, read_relations, window_calls
from milepost.language import did_you_mean
from milepost.operators.base import APPEND

FLOW = "CREATE FLOW"

FLOW_CLAUSES = {
    "FROM": "the change feed: a source or an append statement",
    "KEYS": "`(columns)`: the key of the table",
    "IGNORE NULL UPDATES": "a null leaves the column of the table as it is; SCD TYPE 1 only",
    "APPLY AS DELETE WHEN": "a condition; a change for which it is true deletes its key, or ends its version",
    "SEQUENCE BY": "the expression that orders the changes of a key; with SCD TYPE 1 also `struct(…)` of several",
    "COLUMNS": "`(columns)` or `* EXCEPT (columns)`: the columns of the table; otherwise all",
    "STORED AS SCD TYPE": "`1`, the newest row per key (default), or `2`, a row per version with valid_from, valid_to "
    "and is_current",
    "TRACK HISTORY ON": "`(columns)` or `* EXCEPT (columns)`: only a change in them begins a version; SCD TYPE 2 only",
}
"""Clause of a flow -> its meaning, for the reference. They may be in any order."""

REFUSED_FLOW_CLAUSES = {
    "APPLY AS TRUNCATE WHEN": "APPLY AS TRUNCATE is not available in this version; deletes apply to one key each",
    "IGNORE NULL UPDATES ON": "a list of columns is not available here; IGNORE NULL UPDATES applies to all columns",
}
"""Clause of a flow -> why it is refused."""

_REQUIRED = ("FROM", "KEYS", "SEQUENCE BY")
_NAMES = ("VAR", "IDENTIFIER")


@dataclass(frozen=True, slots=True)
class Flow:
    """One CREATE FLOW statement.

    Attributes:
        name, target: in lower case. whole: its tokens. at: the token that names the target.
        clauses: clause of FLOW_CLAUSES -> its tokens after the keyword.
    """

    name: str
    target: str
    whole: Tokens
    at: Tokens
    clauses: dict[str, Tokens] = field(default_factory=dict)

    @property
    def source(self) -> FromItem:
        """The relation after FROM. Raises SqlProblem: it is not one name."""
        item, *others = read_relations(self.clauses["FROM"])
        if others or item.is_query or item.alias is not None:
            raise self.clauses["FROM"].problem("a flow reads one source or statement, without an alias")
        return item

    @property
    def keeps_versions(self) -> bool:
        """Whether the table has all versions. Raises SqlProblem: the type is neither 1 nor 2."""
        kind = self.clauses.get("STORED AS SCD TYPE")
        if kind is not None and (len(kind) != 1 or kind.name() not in ("1", "2")):
            raise kind.problem("expected STORED AS SCD TYPE 1 or STORED AS SCD TYPE 2")
        return kind is not None and kind.name() == "2"


def read_flow(run: Tokens) -> Flow:
    """Return the flow of a statement that begins with CREATE FLOW. Raises SqlProblem."""
    if run.kind(2) not in _NAMES:
        raise run.problem("expected CREATE FLOW name AS AUTO CDC INTO table FROM …", 2)
    if run.words(3, 3) == "AS INSERT INTO":
        raise run.problem("INSERT INTO is not available in this version; write UNION ALL in the query of the table", 4)
    if run.words(3, 4) != "AS AUTO CDC INTO":
        raise run.problem("expected AS AUTO CDC INTO table after the name of the flow", 3)
    if run.kind(7) not in _NAMES or run.kind(8) == "DOT":
        raise run.problem("expected the name of a CREATE STREAMING TABLE, which has one part", 7)
    cuts = list(_clauses(run, 8))
    if not cuts or cuts[0][1] != 8:
        raise run.problem(f"expected one of {', '.join(FLOW_CLAUSES)}", 8)
    clauses: dict[str, Tokens] = {}
    for number, (clause, at, begin) in enumerate(cuts):
        if clause in REFUSED_FLOW_CLAUSES:
            raise run.problem(REFUSED_FLOW_CLAUSES[clause], at)
        if clause in clauses:
            raise run.problem(f"{clause} occurs twice", at)
        clauses[clause] = run.part(begin, cuts[number + 1][1] if number + 1 < len(cuts) else None)
        if clause != "IGNORE NULL UPDATES" and not len(clauses[clause]):
            raise run.problem(f"{clause} is incomplete", at)
        if clause == "IGNORE NULL UPDATES" and len(clauses[clause]):
            raise run.problem(f"expected another clause after {clause}", begin)
    for clause in _REQUIRED:
        if clause not in clauses:
            raise run.problem(f"{clause} is missing in this flow")
    return Flow(run.name(2).lower(), run.name(7).lower(), run, run.part(7, 8), clauses)


def _clauses(run: Tokens, first: int) -> Iterator[tuple[str, int, int]]:
    """Yield (clause, index of its first token, index after its keyword) of a flow, in order."""
    heads = sorted((*FLOW_CLAUSES, *REFUSED_FLOW_CLAUSES), key=len, reverse=True)
    end = 0
    for at in run.top():
        if at < max(first, end) or run.kind(at - 1) == "DOT":
            continue
        for head in heads:
            size = len(head.split())
            if run.words(at, size) == head and (head != "KEYS" or run.kind(at + 1) == "L_PAREN"):
                end = at + size
                yield head, at, end
                break


@dataclass
class FlowCompiler:
    """Compiles the table that a flow fills.

    Attributes:
        name: the table. node: what the flow reads. ttl: how long deleted keys are remembered, as a spec writes it.
    """

    name: str
    flow: Flow
    node: str
    ttl: str | None
    emitter: Emitter

    def __post_init__(self) -> None:
        item = self.flow.source
        alias = item.tokens.name().lower()
        rows = self.emitter.read(self.node)
        if rows.kind != APPEND:
            raise item.tokens.problem(
                f"the rows of {alias} are {described(rows)}; a flow reads changes that are appended"
            )
        columns = list(rows.columns)
        self._scope = Scope([Relation(item, alias, alias, self.node, columns)])
        self._columns = [Column.plain(name, self.flow.whole.start) for name in columns]

    def compile(self) -> str:
        """Add the steps of the table; return the last. Raises SqlProblem."""
        flow, at, clauses = self.flow, self.flow.whole, self.flow.clauses
        for clause in ("SEQUENCE BY", "APPLY AS DELETE WHEN"):
            _check_row_wise(clause, clauses.get(clause))
        everything = [column.name for column in self._columns]
        shown = self._listed("COLUMNS", everything)
        key = self._listed("KEYS", everything)
        for column in key:
            if column not in shown:
                raise clauses["KEYS"].problem(f"the key {column} must be a column of the table; add it to COLUMNS")
        sequence = self._sequence()
        operator: dict[str, Any] = {"uid": f"{self.name}__cdc", "inputs": [f"{self.name}__rows"]}
        operator |= {"key": sorted(key), "sequence_by": sequence, "columns": shown}
        needed = {*shown, *sequence}
        if "APPLY AS DELETE WHEN" in clauses:
            condition = clauses["APPLY AS DELETE WHEN"]
            needed |= {column for _, column in self._scope.references(condition)}
            operator["delete_when"] = str(self._scope.rewritten(condition, lambda reference: reference[1]))
        operator |= self._versions(shown, key, sequence) if flow.keeps_versions else self._newest()
        if self.ttl is not None:
            needed |= {self.emitter.rows[self.node].event_time or ""}
        rows = [column for column in self._columns if column.name in needed]
        self.emitter.sql(f"{self.name}__rows", self.node, rows, [], at)
        uid = self.emitter.add(operator, at)
        table = [Column.plain(column, at.start) for column in self.emitter.rows[uid].columns]
        return self.emitter.sql(self.name, uid, table, [], at)

    def _newest(self) -> dict[str, Any]:
        options: dict[str, Any] = {"kind": "latest"}
        if "TRACK HISTORY ON" in self.flow.clauses:
            raise self.flow.clauses["TRACK HISTORY ON"].problem("TRACK HISTORY needs STORED AS SCD TYPE 2")
        if "IGNORE NULL UPDATES" in self.flow.clauses:
            options["ignore_nulls"] = True
        return options if self.ttl is None else options | {"tombstone_ttl": self.ttl}

    def _versions(self, shown: Sequence[str], key: Sequence[str], sequence: Sequence[str]) -> dict[str, Any]:
        clauses = self.flow.clauses
        if "IGNORE NULL UPDATES" in clauses:
            raise clauses["IGNORE NULL UPDATES"].problem("IGNORE NULL UPDATES needs STORED AS SCD TYPE 1")
        if self.ttl is not None:
            raise self.flow.whole.problem("milepost.ttl has no effect with SCD TYPE 2, which keeps every version")
        if len(sequence) > 1:
            raise clauses["SEQUENCE BY"].problem("SCD TYPE 2 needs one sequence: it becomes valid_from")
        tracked = [column for column in self._listed("TRACK HISTORY ON", shown) if column not in key]
        # With the sequence in the table, all rows of a key differ: each begins a version, and nothing needs comparing.
        return {"kind": "history"} | ({} if sequence[0] in tracked else {"track": tracked})

    def _sequence(self) -> list[str]:
        """Return the columns that order the changes of a key; an expression becomes a column of its own."""
        run = self.flow.clauses["SEQUENCE BY"].without_brackets()
        parts = [run]
        if run.word(0) == "STRUCT" and run.kind(1) == "L_PAREN" and run.closing(1) == len(run) - 1:
            parts = run.part(2, len(run) - 1).split("COMMA")
        names: list[str] = []
        for part in parts:
            reference = self._scope.column(part)
            name = reference[1] if reference else f"sequence_{digest(part.normalized)}"
            if reference is None:
                self._columns.append(Column(name, self._scope.rewritten(part, lambda one: one[1])))
            names += [name] if name not in names else []
        return names

    def _listed(self, clause: str, columns: Sequence[str]) -> list[str]:
        """Return the columns that a clause lists; all of `columns` without it. Raises SqlProblem."""
        run = self.flow.clauses.get(clause)
        if run is None:
            return list(columns)
        if excepts := run.kind(0) == "STAR" and clause != "KEYS":
            run = run.part(1)
            if not len(run):
                return list(columns)
            if run.kind(0) != "EXCEPT":
                raise run.problem("expected * or * EXCEPT (columns)")
            run = run.part(1)
        folded = {column.casefold(): column for column in columns}
        named: list[str] = []
        for part in run.without_brackets().split("COMMA"):
            if len(part) != 1 or part.name().casefold() not in folded:
                text = part.text or clause
                raise part.problem(f"there is no column {text}; {did_you_mean(text, columns)}")
            if folded[part.name().casefold()] in named:
                raise part.problem(f"{part.text} occurs twice")
            named.append(folded[part.name().casefold()])
        return [column for column in columns if column not in named] if excepts else named


def _check_row_wise(clause: str, run: Tokens | None) -> None:
    """Raise SqlProblem if an expression of a clause reads several changes."""
    if run is None:
        return
    over = [run.part(name_at) for name_at, _, _ in window_calls(run)]
    for call in (*over, *(one.tokens for one in aggregate_calls(run))):
        raise call.problem(f"{call.word(0).lower()} reads several rows; {clause} takes an expression over one change")
