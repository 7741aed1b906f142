"""Split a SQL file into statements, and read their headers from tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.jobspec.sql.tokens import Tokens
from milepost.language import check_node_name, did_you_mean
from milepost.language.sql import SqlProblem

TABLE, VIEW, TEMPORARY = "CREATE STREAMING TABLE", "CREATE MATERIALIZED VIEW", "CREATE TEMPORARY VIEW"
STATEMENTS = {
    TABLE: "a table to which rows are appended",
    VIEW: "a table that equals its query: rows are replaced by key, or appended if the rows of the query are final",
    TEMPORARY: "a query that other statements read; it has no table",
}
"""Statement -> what it creates, for the reference."""

PROPERTIES = {
    "milepost.allowed_lateness": "how long after its end a window still accepts rows, such as '1 hour'",
    "milepost.ttl": "how long SELECT DISTINCT remembers rows, in event time, such as '7 days'",
}
"""Option of TBLPROPERTIES -> its meaning, for the reference."""

REFUSED_STATEMENTS = {
    "CREATE FLOW": "AUTO CDC is not available in this version; write SELECT … QUALIFY row_number() OVER (PARTITION BY "
    "key ORDER BY sequence DESC) = 1",
    "CREATE OR REPLACE": "write CREATE without OR REPLACE: the file always states what the job is",
    "CREATE TABLE": "write CREATE STREAMING TABLE or CREATE MATERIALIZED VIEW",
    "CREATE VIEW": "write CREATE MATERIALIZED VIEW, or CREATE TEMPORARY VIEW for a query without a table",
    "CREATE TEMP": "write CREATE TEMPORARY VIEW",
}
"""Beginning of a statement -> what to write instead."""

SKELETON = frozenset({"rows", "agg", "top", "over", "distinct", "top_in", "keyed", "unkeyed"})
"""Names of steps of a statement, which a CTE cannot have. `over` is for steps of a later version."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One CREATE statement.

    Attributes:
        name: in lower case. kind: TABLE, VIEW or TEMPORARY.
        whole, query: tokens of the statement, and those after AS.
        properties: option -> (value, tokens of the option). partition_by: columns of PARTITIONED BY.
    """

    name: str
    kind: str
    whole: Tokens
    query: Tokens
    properties: dict[str, tuple[str, Tokens]] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    @property
    def tokens_text(self) -> str:
        """The statement without comments and line breaks between its tokens, as it is recorded."""
        items, text = self.whole.items, ""
        for index, token in enumerate(items):
            text += " " if index and token.start > items[index - 1].end + 1 else ""
            text += self.whole.sql[token.start : token.end + 1]
        return text


def split_statements(sql: str) -> tuple[list[Statement], list[SqlProblem]]:
    """Return the statements of a file in order, and the problems of those that cannot be read."""
    statements: list[Statement] = []
    problems: list[SqlProblem] = []
    try:
        tokens = Tokens.of(sql)
    except SqlProblem as problem:
        return [], [problem]
    first: dict[str, int] = {}
    for run in tokens.split("SEMICOLON"):
        if not len(run):
            continue
        try:
            statement = _statement(run)
            if statement.name in first:
                raise run.problem(f"{statement.name} is already defined in line {first[statement.name]}")
            first[statement.name] = sql.count("\n", 0, run.start) + 1
            statements.append(statement)
        except SqlProblem as problem:
            problems.append(problem)
    if not statements and not problems:
        problems.append(
            SqlProblem("expected at least one statement, such as CREATE MATERIALIZED VIEW name AS SELECT …")
        )
    return statements, problems


def _statement(run: Tokens) -> Statement:
    for index, token in enumerate(run.items):
        if "${" in run.sql[token.start : token.end + 2] or token.token_type.name == "PARAMETER":
            raise run.problem("variables are not available in SQL; write the value", index)
        if index and run.words(index, 3) in STATEMENTS:
            raise run.problem("a semicolon is missing before CREATE", index)
    begin, kind = 1, ""
    if run.words(1, 2) == "OR REFRESH":
        begin = 3
    for words in STATEMENTS:
        if run.word(0) == "CREATE" and f"CREATE {run.words(begin, 2)}" == words:
            kind = words
    if not kind:
        for words, instead in REFUSED_STATEMENTS.items():
            if run.words(0, len(words.split())) == words:
                raise run.problem(instead)
        raise run.problem(f"expected one of {', '.join(STATEMENTS)}")
    name = _name(run, begin + 2)
    at = begin + 3
    if run.words(begin + 2, 3) == "IF NOT EXISTS":
        raise run.problem("remove IF NOT EXISTS: the file always states what the job is", begin + 2)
    if run.kind(at) == "L_PAREN":
        raise run.problem("a list of columns is not available in this version; name the columns in SELECT", at)
    properties: dict[str, tuple[str, Tokens]] = {}
    partition_by: tuple[str, ...] = ()
    while run.word(at) != "AS":
        clause, opened = run.word(at), at + 1
        if clause not in ("TBLPROPERTIES", "PARTITIONED BY"):
            expected = "expected AS SELECT …, TBLPROPERTIES (…) or PARTITIONED BY (…)"
            raise run.problem(f"{expected}, got {run.items[at].text}" if at < len(run) else expected, at)
        if run.kind(opened) != "L_PAREN":
            raise run.problem("expected an opening parenthesis", opened)
        closed = run.closing(opened)
        inside = run.part(opened + 1, closed)
        if clause == "TBLPROPERTIES":
            properties = _properties(inside)
        else:
            partition_by = tuple(column.name() for column in inside.split("COMMA") if len(column))
        at = closed + 1
    if kind != TABLE and partition_by:
        raise run.problem("PARTITIONED BY applies to CREATE STREAMING TABLE: other tables are divided by key", at)
    query = run.part(at + 1)
    if not len(query):
        raise run.problem("expected SELECT … after AS", at)
    return Statement(name, kind, run, query, properties, partition_by)


def _name(run: Tokens, index: int) -> str:
    if index >= len(run) or run.kind(index) in ("STRING", "NUMBER"):
        raise run.problem("expected a name", index)
    name = str(run.items[index].text).lower()
    if run.kind(index + 1) == "DOT":
        raise run.problem("a name has one part: where the table is, `tables` in the spec decides", index)
    try:
        return check_node_name(name)
    except ValueError as problem:
        raise run.problem(str(problem), index) from None


def _properties(inside: Tokens) -> dict[str, tuple[str, Tokens]]:
    properties: dict[str, tuple[str, Tokens]] = {}
    for entry in inside.split("COMMA"):
        key = entry.name() if len(entry) else ""
        if len(entry) != 3 or entry.kind(1) != "EQ" or entry.kind(2) != "STRING":
            raise entry.problem("expected 'option' = 'value'")
        if key not in PROPERTIES:
            raise entry.problem(f"unknown option {key}; {did_you_mean(key, PROPERTIES)}")
        if key in properties:
            raise entry.problem(f"the option {key} occurs twice")
        properties[key] = str(entry.items[2].text), entry
    return properties
