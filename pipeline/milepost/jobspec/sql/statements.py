"""Split a SQL file into statements, and read their headers from tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from milepost.jobspec.sql.flows import FLOW, Flow, read_flow
from milepost.jobspec.sql.text import Tokens, check_phrases, column_list, duration_ms, duration_text, named
from milepost.language import check_node_name, did_you_mean
from milepost.language.sql import SqlProblem
from milepost.language.times import format_duration, parse_duration

TABLE, VIEW, TEMPORARY = "CREATE STREAMING TABLE", "CREATE MATERIALIZED VIEW", "CREATE TEMPORARY VIEW"
STATEMENTS = {
    TABLE: "a table to which rows are appended",
    VIEW: "a table that equals its query: rows are replaced by key, or appended if the rows of the query are final",
    TEMPORARY: "a query that other statements read; it has no table",
    FLOW: "the changes of a feed, AS AUTO CDC INTO a streaming table without AS, which holds the newest row or the "
    "versions of each key",
}
"""Statement -> what it creates, for the reference."""

PROPERTIES = {
    "milepost.allowed_lateness": "how long after its end a window still accepts rows, such as '1 hour'",
    "milepost.ttl": "how long SELECT DISTINCT remembers rows, and AUTO CDC deletes, in event time: '7 days'",
}
"""Option of TBLPROPERTIES -> its meaning, for the reference."""

REFUSED_STATEMENTS = {
    "CREATE OR REPLACE": "write CREATE without OR REPLACE: the file always states what the job is",
    "CREATE TABLE": "write CREATE STREAMING TABLE or CREATE MATERIALIZED VIEW",
    "CREATE VIEW": "write CREATE MATERIALIZED VIEW, or CREATE TEMPORARY VIEW for a query without a table",
    "CREATE TEMP": "write CREATE TEMPORARY VIEW",
    "CREATE PRIVATE": "write CREATE TEMPORARY VIEW: it has no table",
    "CREATE LIVE": "write CREATE MATERIALIZED VIEW, and names without LIVE",
    "CREATE STREAMING LIVE": "write CREATE STREAMING TABLE, and names without LIVE",
    "CREATE FUNCTION": "functions of users are not available in SQL; a process function may be an operator of the spec",
    "APPLY CHANGES": f"write {FLOW} name AS AUTO CDC INTO table FROM feed KEYS (…) SEQUENCE BY …",
    "SELECT": "a query needs a name: write CREATE MATERIALIZED VIEW name AS before it",
    "WITH": "a query needs a name: write CREATE MATERIALIZED VIEW name AS before it",
    "INSERT": "a table has the rows of its query: write CREATE STREAMING TABLE name AS SELECT …",
    "MERGE": f"write CREATE STREAMING TABLE name, and {FLOW} … AS AUTO CDC INTO name, which replaces and deletes "
    "rows by key",
    "UPDATE": "a table has the rows of its query: change the query",
    "DELETE": "a table has the rows of its query: add WHERE to the query",
    "TRUNCATE": "a table has the rows of its query: change the query",
    "DROP": "remove the statement that creates it",
    "ALTER": "change the statement that creates it",
    "SET": "settings are keys of the spec, such as `spark`",
    "USE": "`tables` in the spec decides where tables are",
}
"""Beginning of a statement -> what to write instead."""

_NO_EXPECTATIONS = (
    "CONSTRAINT … EXPECT is not available in this version; write the expectation under `quality` in the spec, with "
    "`on_fail: drop` or `quarantine` for ON VIOLATION DROP ROW"
)

SKELETON = frozenset({"rows", "agg", "top", "over", "distinct", "top_in", "keyed", "unkeyed", "grouped", "times"})
"""Suffixes of the steps that a statement becomes, which no CTE can have as its name."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One CREATE statement.

    Attributes:
        name: in lower case. kind: TABLE, VIEW or TEMPORARY.
        whole, query: tokens of the statement, and those after AS. flow: what fills a table without AS.
        properties: option -> (value, tokens of the option). partition_by: columns of PARTITIONED BY.
        columns: names that the list after the name gives the columns of the query.
    """

    name: str
    kind: str
    whole: Tokens
    query: Tokens
    properties: dict[str, tuple[str, Tokens]] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()
    flow: Flow | None = None
    columns: tuple[str, ...] = ()

    @property
    def tokens_text(self) -> str:
        """The statement, and its flow, without comments and line breaks between tokens, as it is recorded."""
        return _tokens_text(self.whole) + (f"; {_tokens_text(self.flow.whole)}" if self.flow is not None else "")

    def duration(self, option: str) -> str | None:
        """Return an option as a spec writes it, or None. Raises SqlProblem: it is no duration."""
        entry = self.properties.get(option)
        if entry is None:
            return None
        text, tokens = entry
        milliseconds = duration_ms(text)
        try:
            return duration_text(milliseconds) if milliseconds is not None else format_duration(parse_duration(text))
        except ValueError as problem:
            raise tokens.problem(str(problem)) from None


def _tokens_text(run: Tokens) -> str:
    text = ""
    for index, token in enumerate(run.items):
        text += " " if index and token.start > run.items[index - 1].end + 1 else ""
        text += run.sql[token.start : token.end + 1]
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
    flows: list[Flow] = []
    for run in tokens.split("SEMICOLON"):
        if not len(run):
            continue
        try:
            _check_tokens(run)
            statement = read_flow(run) if run.words(0, 2) == FLOW else _statement(run)
            if statement.name in first:
                raise run.problem(f"{statement.name} is already defined in line {first[statement.name]}")
            first[statement.name] = sql.count("\n", 0, run.start) + 1
            if isinstance(statement, Flow):
                flows.append(statement)
            else:
                statements.append(statement)
        except SqlProblem as problem:
            problems.append(problem)
    if not statements and not flows and not problems:
        problems.append(
            SqlProblem("expected at least one statement, such as CREATE MATERIALIZED VIEW name AS SELECT …")
        )
    return _with_flows(statements, flows, problems), problems


def _with_flows(statements: Sequence[Statement], flows: Sequence[Flow], problems: list[SqlProblem]) -> list[Statement]:
    """Return the statements with their flows, and add the problems of tables and flows that are alone."""
    empty = {one.name: one for one in statements if not len(one.query)}
    filled: dict[str, Statement] = {}
    for flow in flows:
        if flow.target in filled:
            problems.append(flow.at.problem("another flow fills this table; only one is available in this version"))
        elif flow.target in empty:
            filled[flow.target] = replace(empty[flow.target], flow=flow)
        elif any(one.name == flow.target for one in statements):
            problems.append(flow.at.problem(f"{flow.target} has a query; remove AS SELECT … from its statement"))
        elif not problems:
            problems.append(flow.at.problem(f"there is no table {flow.target}; add {TABLE} {flow.target}"))
    for name in empty.keys() - filled.keys():
        if not problems:
            problems.append(
                empty[name].whole.problem(f"{name} has no rows; add AS SELECT …, or a {FLOW} … AS AUTO CDC INTO {name}")
            )
    return [filled.get(one.name, one) for one in statements if one.name in filled or one.name not in empty]


def _check_tokens(run: Tokens) -> None:
    check_phrases(run)
    for index, token in enumerate(run.items):
        if "${" in run.sql[token.start : token.end + 2] or token.token_type.name == "PARAMETER":
            raise run.problem("variables are not available in SQL; write the value", index)
        if index and (run.words(index, 3) in STATEMENTS or run.words(index, 2) == FLOW):
            raise run.problem("a semicolon is missing before CREATE", index)


def _statement(run: Tokens) -> Statement:
    begin, kind = 1, ""
    if run.words(1, 2) == "OR REFRESH":
        begin = 3
    for words in STATEMENTS:
        if run.word(0) == "CREATE" and f"CREATE {run.words(begin, 2)}" == words:
            kind = words
    if not kind:
        for words, instead in REFUSED_STATEMENTS.items():
            if run.words(0, len(words.split())) == words:
                raise run.problem(named(words, instead))
        raise run.problem(f"expected one of {', '.join(STATEMENTS)}")
    name = _name(run, begin + 2)
    at = begin + 3
    columns: tuple[str, ...] = ()
    if run.words(begin + 2, 3) == "IF NOT EXISTS":
        raise run.problem("remove IF NOT EXISTS: the file always states what the job is", begin + 2)
    if run.kind(at) == "L_PAREN":
        listed = [run.word(index) for index in range(at, run.closing(at))]
        if "CONSTRAINT" in listed and "EXPECT" in listed:
            raise run.problem(_NO_EXPECTATIONS, at + listed.index("CONSTRAINT"))
        if kind == TABLE and len(run) == run.closing(at) + 1:
            raise run.problem("a list of columns needs a query; a flow has COLUMNS (…)", at)
        columns, at = column_list(run, at)
    properties: dict[str, tuple[str, Tokens]] = {}
    partition_by: tuple[str, ...] = ()
    while run.word(at) != "AS" and not (kind == TABLE and at == len(run)):
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
    query = run.part(min(at + 1, len(run)))
    if not len(query) and at < len(run):
        raise run.problem("expected SELECT … after AS", at)
    return Statement(name, kind, run, query, properties, partition_by, columns=columns)


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
