"""Parse SQL to tokens and a tree, with function calls as written."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from milepost.language.problems import shortened
from milepost.language.sql.cast_types import type_problem

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect

_WITH_SYNTAX = ("CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTR", "SUBSTRING", "TRIM")
"""Functions with arguments that Spark's grammar separates by keywords, not only by commas."""

_MAX_TOKENS = 20_000
_MAX_BRACKETS = 32
_MAX_DEPTH = 100
_MAX_CHAIN = 300
_MAX_CONDITIONS = 1_000
"""Limits that bound the time and the stack depth of the parser and of walks over its tree.

A level of brackets takes up to 25 of Python's 1,000 stack frames. `_MAX_DEPTH` limits the levels of the tree, where a
chain of equal operators (`a || b || c`) counts as one. `_MAX_CHAIN` limits the length of such a chain: Spark's parser
overflows its stack at 600. Spark balances AND and OR, so `_MAX_CONDITIONS` of them are allowed.
"""


CACHED_TEXTS = 2_048
"""How many texts are parsed once only. A large job has a few hundred."""


class SqlProblem(ValueError):
    """The SQL is not valid.

    Attributes:
        line, column: 1-based position in the SQL text; 0 if the problem concerns the whole text.
        reason: the message without the position.
    """

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(f"line {line}, column {column}: {message}" if line else message)
        self.line, self.column, self.reason = line, column, message


_STATEMENT = re.compile(r"\n\s*CREATE\s+(OR\s+REFRESH\s+)?(MATERIALIZED\s+VIEW|STREAMING\s+TABLE)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ParsedSelect:
    """Tokens, without a final semicolon, and tree of a SELECT."""

    tokens: list[Any]
    tree: exp.Select


def sql_tokens(sql: str) -> list[Any]:
    """Return the tokens of a text. Raises SqlProblem: a quote is not closed, or the text is too long or too nested."""
    return list(_tokens(sql))


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _tokens(sql: str) -> tuple[Any, ...]:
    import sqlglot
    from sqlglot.errors import TokenError

    try:
        tokens = tuple(sqlglot.tokenize(sql, dialect="spark"))
    except TokenError as problem:
        message = "syntax error: a quote or a comment is not closed"
        offset = _unclosed(sql)
        raise (SqlProblem(message) if offset is None else problem_from(sql, offset, message)) from problem
    if len(tokens) > _MAX_TOKENS:
        raise SqlProblem(f"the SQL has {len(tokens)} tokens; at most {_MAX_TOKENS} are allowed")
    depth, types, before = 0, 0, ""
    for token in tokens:
        kind, text = token.token_type.name, token.text.casefold()
        opens_type = kind == "LT" and before in ("array", "map", "struct")
        types = max(types + opens_type - (text.count(">") if types else 0), 0)
        depth += kind in ("L_PAREN", "L_BRACKET", "L_BRACE", "CASE")
        depth -= kind in ("R_PAREN", "R_BRACKET", "R_BRACE", "END")
        if depth + types > _MAX_BRACKETS:
            message = f"nested deeper than {_MAX_BRACKETS} levels; split it into several sql operators"
            raise problem_from(sql, token.start, message)
        before = text
    return tokens


def _unclosed(sql: str) -> int | None:
    """Return the offset of the quote or comment that is not closed, or None.

    A missing quote pairs each later one with the wrong one, so only the last quote of the text is found open. If a
    literal before it contains the start of a statement, that literal is the one that lacks its end.
    """
    at, suspect = 0, None
    while at < len(sql):
        opened, end = sql[at], -1
        if sql.startswith("--", at):
            end = sql.find("\n", at)
            if end < 0:
                return None
        elif sql.startswith("/*", at):
            end = sql.find("*/", at) + 1
            if not end:
                return at
        elif opened in "'\"`":
            end = at + 1
            while end < len(sql) and sql[end] != opened:
                end += 2 if sql[end] == "\\" and opened != "`" else 1
            has_statement = suspect is None and _STATEMENT.search(sql, at, end) is not None
            suspect = at if has_statement else suspect
            if end >= len(sql):
                return at if suspect is None else suspect
        at = max(end, at) + 1
    return None


def normalized_tokens(sql: str, tokens: Iterable[Any]) -> tuple[str, ...]:
    """Return tokens as texts that are equal for equal SQL. A literal keeps its quotes and its case."""
    return tuple(
        sql[token.start : token.end + 1]
        if token.token_type.name in ("STRING", "RAW_STRING")
        else str(token.text).casefold()
        for token in tokens
    )


def relation_starts(sql: str) -> set[int]:
    """Return the offsets of the words of a SELECT that name a relation without an alias, or a relation with one.

    In `SELECT w.a, w AS b FROM w` they are those of the first and the last `w`, and in `SELECT w.a FROM w AS o` that
    of the last one, because `w.a` is a field of a column.
    """
    from sqlglot import exp

    tree = parse_select(sql).tree
    tables = [table for table in tree.find_all(exp.Table) if isinstance(table.this, exp.Identifier)]
    plain = {table.name.casefold() for table in tables if not table.alias}
    qualifiers = (column.args.get("table") for column in tree.find_all(exp.Column))
    words = [table.this for table in tables]
    words += [word for word in qualifiers if isinstance(word, exp.Identifier) and word.name.casefold() in plain]
    return {int(word.meta["start"]) for word in words if "start" in word.meta}


def parse_statements(sql: str, dialect: str | type[Dialect] = "spark") -> list[exp.Expression]:
    """Return the statements of a text. Raises SqlProblem: as in `sql_tokens`, or the parser refuses it, or fails."""
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.errors import ParseError

    tokens = sql_tokens(sql)
    try:
        parsed = Dialect.get_or_raise(dialect).parser().parse(tokens, sql)
        statements = [statement for statement in parsed if statement is not None]
    except ParseError as problem:
        first = problem.errors[0] if problem.errors else {}
        near = str(first.get("highlight") or "").strip()
        column = int(first.get("col") or 0) - max(len(near) - 1, 0)
        reason = str(first.get("description") or "")
        # The parser's reasons name its own classes, except where they are about a call's arguments.
        detail = (
            f": {reason.rstrip('.')}" if reason and "<class" not in reason and "Unexpected token" not in reason else ""
        )
        message = f"syntax error near {near!r}{detail}" if near else f"syntax error{detail}"
        raise SqlProblem(message, int(first.get("line") or 0), column) from None
    except RecursionError:
        raise SqlProblem("nested too deeply; split it into several sql operators") from None
    except Exception as problem:  # sqlglot raises IndexError, ValueError and others for some texts
        what = f"{type(problem).__name__} in sqlglot"
        raise SqlProblem(f"the parser cannot read this SQL ({what}); write it differently") from problem
    for statement in statements:
        _refuse_depth(statement)
    return statements


def parse_select(sql: str) -> ParsedSelect:
    """Parse one SELECT. Raises SqlProblem: a syntax error, a wrong number of arguments, or another statement.

    The trees of the last texts are cached, because several checks parse the same SELECT. No caller changes a tree.
    """
    tokens, tree = _parsed_select(sql)
    return ParsedSelect(list(tokens), tree)


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _parsed_select(sql: str) -> tuple[tuple[Any, ...], exp.Select]:
    from sqlglot import exp

    tokens = sql_tokens(sql)
    for token in tokens:
        if token.token_type.name == "PIPE_GT":
            message = "the pipe `|>` is not available in this version; write SELECT … FROM … WHERE …"
            raise problem_from(sql, token.start, message)
    _refuse_unknown_start(sql, tokens)
    if (problem := type_problem(tokens)) is not None:
        token, message = problem
        raise problem_from(sql, token.start, message)
    statements = parse_statements(sql, _plain_spark())
    _refuse_unpaired_maps(statements)
    parse_statements(sql)  # sqlglot's full dialect knows the functions and checks the number of arguments
    while tokens and tokens[-1].token_type.name == "SEMICOLON":
        tokens.pop()
    if len(statements) != 1:
        raise SqlProblem(f"expected one SELECT, got {len(statements)} statements")
    statement = statements[0]
    if tokens[0].token_type.name == "WITH":
        raise SqlProblem("WITH is not allowed; make each query a sql operator, and read it by its name")
    if isinstance(statement, exp.SetOperation):
        raise SqlProblem("set operations are not row-wise")
    if not isinstance(statement, exp.Select) or [t.token_type.name for t in tokens[:1]] != ["SELECT"]:
        raise SqlProblem("expected one SELECT … FROM … WHERE …")
    if len(tokens) == 1:
        raise SqlProblem("SELECT is incomplete; write SELECT … FROM … WHERE …")
    if tokens[1].token_type.name == "ALL":
        raise SqlProblem("SELECT ALL is not available in this version; remove ALL")
    return tuple(tokens), statement


def _refuse_unknown_start(sql: str, tokens: list[Any]) -> None:
    """Refuse a text that does not begin with a word of SQL. The parser would report a later word."""
    first = tokens[0] if tokens else None
    if first is not None and first.token_type.name == "VAR":
        message = f"unknown word {first.text!r}: expected SELECT … FROM … WHERE …"
        raise problem_from(sql, first.start, message)


def _refuse_unpaired_maps(statements: list[exp.Expression]) -> None:
    """Refuse `map(k)`, for which sqlglot's full dialect fails without a useful message."""
    from sqlglot import exp

    for statement in statements:
        for call in statement.find_all(exp.Anonymous):
            if call.name.casefold() == "map" and len(call.expressions) % 2:
                raise SqlProblem(f"map takes pairs of a key and a value, got {len(call.expressions)} arguments")


def _refuse_depth(tree: exp.Expression) -> None:
    """Refuse a tree that is too deep for code that walks it recursively or in quadratic time."""
    from sqlglot import exp

    waiting = [(tree, 0, 0)]
    while waiting:
        node, depth, chain = waiting.pop()
        most = _MAX_CONDITIONS if isinstance(node, exp.Connector) else _MAX_CHAIN
        if depth > _MAX_DEPTH:
            raise SqlProblem(f"nested deeper than {_MAX_DEPTH} levels; split it into several sql operators")
        if chain > most:
            raise SqlProblem(f"more than {most} operators in a row; split them into several sql operators")
        for inner in node.iter_expressions():
            is_chained = isinstance(node, exp.Binary) and not isinstance(node, exp.Dot) and type(inner) is type(node)
            waiting.append((inner, depth + (not is_chained), chain + is_chained))


def excerpt(node: exp.Expression) -> str:
    """Return an expression as messages quote it."""
    try:
        return shortened(str(node.sql(dialect="spark")))
    except Exception:  # noqa: BLE001 - sqlglot cannot generate SQL for some trees that it parses
        return f"the expression {node.key.upper()}"


def is_variable(node: exp.Expression) -> bool:
    """Return whether a name, or the first part of a reference, is a parameter of an enclosing lambda.

    Names are compared case-insensitively.
    """
    from sqlglot import exp

    first = node.parts[0] if isinstance(node, exp.Column) else node
    name, inner = first.name.casefold(), node
    while (outer := inner.find_ancestor(exp.Lambda)) is not None:
        if any(parameter.name.casefold() == name for parameter in outer.expressions):
            return True
        inner = outer
    return False


@functools.cache
def _plain_spark() -> type[Dialect]:
    """Return Spark's dialect without sqlglot's function table, which renames, merges and reorders calls."""
    from sqlglot.dialects.spark import Spark

    class PlainSpark(Spark):
        class Parser(Spark.Parser):
            FUNCTIONS: ClassVar = {"ARRAY": Spark.Parser.FUNCTIONS["ARRAY"]}  # otherwise `array(…)[0]` is a type
            FUNCTION_PARSERS: ClassVar = {name: Spark.Parser.FUNCTION_PARSERS[name] for name in _WITH_SYNTAX}
            NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}

    return PlainSpark


def span(identifier: exp.Expression) -> tuple[int, int]:
    """Return the first and last offset of an identifier in the SQL text."""
    if "start" not in identifier.meta:
        raise SqlProblem(f"the column {identifier.name} cannot be located; write it in backticks")
    return int(identifier.meta["start"]), int(identifier.meta["end"])


def problem_at(sql: str, identifier: exp.Expression, message: str) -> SqlProblem:
    """Return a problem at the position of an identifier."""
    return problem_from(sql, span(identifier)[0], message)


def problem_from(sql: str, offset: int, message: str) -> SqlProblem:
    """Return a problem at an offset, with line and column from 1."""
    return SqlProblem(message, sql.count("\n", 0, offset) + 1, offset - sql.rfind("\n", 0, offset))
