"""Check that SQL is one row-wise SELECT, and split it into expressions for Spark.

Spark gets the user's own text, cut at token positions, with column references qualified. No SQL is generated from
sqlglot's tree. Only `comparisons.py` evaluates that tree, for conditions whose meaning does not depend on the engine.
References that cannot be qualified safely are refused.

    SELECT f.dep_delay / 60 AS hours, carrier FROM flights f WHERE f.dep_delay > 0
    qualify="row"  ->  columns      ("hours", "`row`.`dep_delay` / 60"), ("carrier", "`row`.`carrier`")
                       filter_sql   "`row`.`dep_delay` > 0"
                       passthrough  {"carrier": "carrier"}
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from milepost.language.names import check_column_name, did_you_mean
from milepost.language.problems import shortened
from milepost.language.sql.plan import ITEM, Exploded, SqlPlan
from milepost.language.sql.refused_queries import check_clauses, check_no_other_rows, clause_name
from milepost.language.sql.row_wise import (
    NEED_ARGUMENTS,
    NILADIC_KEYWORDS,
    NONDETERMINISTIC,
    REFUSED_FUNCTIONS,
    function_problem,
)
from milepost.language.sql.sql_parse import (
    CACHED_TEXTS,
    SqlProblem,
    is_variable,
    parse_select,
    problem_at,
    problem_from,
    span,
)

if TYPE_CHECKING:
    from sqlglot import exp

_WORDS = """
all and any as between by case distinct div else escape except for from ilike in interval is like not or over regexp
rlike select some then when where
""".split()  # noqa: SIM905
"""Keywords that may precede a parenthesis. `any`, `all` and `some` may do so only after LIKE."""
_QUANTIFIED = ("LIKE", "ILIKE", "RLIKE")
_TYPES = frozenset({"character", "dec", "numeric", "varchar"})
"""Types with a length that are not functions."""
_BEFORE_A_TYPE = ("ALIAS", "DCOLON", "LT", "COLON", "COMMA")
_EXPLODE = "explode"
_WITH_UNIT = frozenset({"date_add", "date_diff", "dateadd", "datediff", "timediff", "timestampadd", "timestampdiff"})
"""Functions with a unit, such as DAY, as the first of three arguments."""


def sql_plan(
    sql: str, input_name: str, input_columns: Sequence[str], qualify: str | None = None, *, need_names: bool = True
) -> SqlPlan:
    """Return the parts of a row-wise SELECT over one input.

    Args:
        sql: Spark SQL.
        input_name: the only name allowed after FROM.
        input_columns: names of the input's columns, in order; matched case-insensitively, as in Spark.
        qualify: struct column that holds the input row. None: columns are not qualified.
        need_names: whether to refuse an expression without AS. Otherwise its name is its position: `(2)`.
    Raises:
        SqlProblem: a syntax error, an unknown column, or SQL that is not row-wise or not deterministic.
    """
    return _plan(sql, input_name, tuple(input_columns), qualify, need_names)


@functools.lru_cache(maxsize=CACHED_TEXTS)
def _plan(sql: str, input_name: str, columns: tuple[str, ...], qualify: str | None, need_names: bool) -> SqlPlan:
    return _Reader(sql, input_name, columns, qualify).plan(need_names)


def check_row_wise(sql: str, input_name: str) -> None:
    """Check a SELECT as far as possible without knowing the columns of its input. Raises SqlProblem."""
    _Reader(sql, input_name, (), None).check()


def quote(name: str) -> str:
    """Return a Spark identifier in backticks."""
    return f"`{name.replace('`', '``')}`"


class _Reader:
    def __init__(self, sql: str, input_name: str, input_columns: tuple[str, ...], qualify: str | None) -> None:
        self._sql = sql
        self._input = input_name
        self._qualifier = qualify
        self._columns = input_columns
        self._by_folded = {column.casefold(): column for column in input_columns}
        self._prefix = f"{quote(qualify)}." if qualify else ""
        parsed = parse_select(sql)
        self._tokens, self._select = parsed.tokens, parsed.tree
        self._edits: list[tuple[int, int, str]] = []
        self._exploded: Exploded | None = None
        self._read: set[str] = set()

    def check(self) -> None:
        check_clauses(self._select, self._input)
        self._alias = self._check_from()
        check_no_other_rows(self._select)
        self._check_functions()
        self._check_nodes()

    def plan(self, need_names: bool) -> SqlPlan:
        self.check()
        items, condition = self._ranges()
        columns: list[tuple[str, str]] = []
        passthrough: dict[str, str] = {}
        self._edits = self._column_edits()
        for expression, (first, last) in zip(self._select.expressions, items, strict=True):
            unnamed = None if need_names else f"({len(columns) + 1})"
            for name, text, column in self._item(expression, first, last, unnamed):
                columns.append((name, text))
                if column is not None:
                    passthrough[name] = column
        self._check_output([name for name, _ in columns])
        filter_sql = self._text(*condition) if condition else None
        read = frozenset((*self._read, *passthrough.values()))
        return SqlPlan(tuple(columns), filter_sql, passthrough, self._exploded, read)

    def _check_from(self) -> str:
        from sqlglot import exp

        clause = self._select.args.get("from_")
        if clause is None:
            raise SqlProblem(f"FROM is missing: expected FROM {self._input}")
        table = clause.this
        if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            raise SqlProblem(
                f"FROM must name the operator's input, {self._input}; subqueries and functions are not allowed. "
                "Make the subquery a sql operator and read from it"
            )
        extra = [key for key, value in table.args.items() if value and key not in ("this", "alias", "db", "catalog")]
        if extra:
            raise SqlProblem(
                f"{clause_name(extra[0])} is not allowed: FROM must name only the operator's input, {self._input}"
            )
        if table.db or table.name.casefold() != self._input.casefold():
            name = ".".join(part.name for part in table.parts)
            raise self._at(table.this, f"FROM {name}: the operator's input is {self._input}")
        if table.alias_column_names:
            raise self._at(
                table.this, "column aliases after FROM are not available in this version; name the columns in SELECT"
            )
        return str(table.alias or table.name)

    def _check_functions(self) -> None:
        for index, token in enumerate(self._tokens):
            kind, name = token.token_type.name, token.text.casefold()
            if kind in ("STRING", "RAW_STRING", "NUMBER") or not (name[:1].isalpha() or kind == "IDENTIFIER"):
                continue
            before = self._tokens[index - 1].token_type.name if index else ""
            following = [t.token_type.name for t in self._tokens[index + 1 : index + 3]]
            why = None
            if following[:1] == ["L_PAREN"]:
                why = self._call_problem(name, kind, before)
            elif kind != "IDENTIFIER" and name in NILADIC_KEYWORDS and name not in self._by_folded and before != "DOT":
                why = REFUSED_FUNCTIONS[name]
            if name in NEED_ARGUMENTS and following == ["L_PAREN", "R_PAREN"]:
                why = NONDETERMINISTIC.format(f"{name}()")
            if why:
                raise problem_from(self._sql, token.start, why)

    def _call_problem(self, name: str, kind: str, before: str) -> str | None:
        """Return why a word may not precede a parenthesis, or None."""
        if before == "DOT":
            return f"write `{name}` without a qualifier: only Spark's own functions are available"
        if kind != "IDENTIFIER" and name in _WORDS and (name not in REFUSED_FUNCTIONS or before in _QUANTIFIED):
            return None
        if kind != "IDENTIFIER" and name == _EXPLODE:
            return None  # `_check_nodes` checks it
        if kind != "IDENTIFIER" and name in _TYPES and before in _BEFORE_A_TYPE:
            return None
        return function_problem(name)

    def _check_nodes(self) -> None:
        from sqlglot import exp

        taken = {name.casefold() for name in (*self._columns, self._qualifier or "")}
        if sum(_explodes(item.this) for item in self._select.expressions if isinstance(item, exp.Alias)) > 1:
            raise SqlProblem("a SELECT can have only one explode: put the second one into a downstream sql operator")
        for node in self._select.walk():
            if isinstance(node, (exp.Parameter, exp.Placeholder)):
                raise SqlProblem("parameters are not allowed in the SQL of a spec")
            if isinstance(node, exp.Star) and not self._is_item(node):
                raise SqlProblem("* inside an expression is not available in this version; name the columns")
            if _explodes(node) and not (isinstance(node.parent, exp.Alias) and node.parent.parent is self._select):
                raise SqlProblem("explode must be an item of the SELECT list: explode(x) AS name")
            if isinstance(node, exp.Lambda):
                for parameter in node.expressions:
                    if parameter.name.casefold() in taken:
                        raise self._at(
                            parameter, f"the lambda parameter {parameter.name} has the name of a column; rename it"
                        )

    def _is_item(self, star: exp.Expression) -> bool:
        """Return whether a star is an item of the SELECT list: `*` or `input.*`."""
        from sqlglot import exp

        return (star.parent if isinstance(star.parent, exp.Column) else star).parent is self._select

    def _ranges(self) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
        """Return the token ranges, inclusive, of each SELECT item and of the condition."""
        depth, start = 0, 1
        items: list[tuple[int, int]] = []
        condition: tuple[int, int] | None = None
        from_seen = False
        tokens = self._tokens
        for index, token in enumerate(tokens):
            kind = token.token_type.name
            if kind in ("L_PAREN", "L_BRACKET", "L_BRACE"):
                depth += 1
            elif kind in ("R_PAREN", "R_BRACKET", "R_BRACE"):
                depth -= 1
            elif depth == 0 and not from_seen and kind == "COMMA":
                items.append((start, index - 1))
                start = index + 1
            elif depth == 0 and not from_seen and kind == "FROM" and tokens[index - 1].token_type.name != "DISTINCT":
                items.append((start, index - 1))
                from_seen = True
            elif depth == 0 and from_seen and kind == "WHERE" and condition is None:
                condition = (index + 1, len(tokens) - 1)
        if len(items) != len(self._select.expressions) or (condition is None) != (
            self._select.args.get("where") is None
        ):
            if any(first > last for first, last in items):
                raise SqlProblem("a comma in the SELECT list is not followed by an expression")
            raise SqlProblem("the items of the SELECT list cannot be separated; put parentheses around the expressions")
        return items, condition

    def _column_edits(self) -> list[tuple[int, int, str]]:
        """Return (start, end, replacement) of every column reference, as offsets in the SQL text.

        The case of a name is kept, because Spark names struct fields after it.
        """
        edits = []
        for column in read_columns(self._select):
            parts = column.parts
            qualified = len(parts) > 1 and parts[0].name.casefold() == self._alias.casefold()
            reference = parts[1] if qualified else parts[0]
            name = self._by_folded.get(reference.name.casefold())
            if name is None:
                raise self._at(
                    reference,
                    f"{self._input} has no column {reference.name}; {did_you_mean(reference.name, self._columns)}",
                )
            self._read.add(name)
            start, end = span(parts[0])[0], span(reference)[1]
            edits.append((start, end, f"{self._prefix}{quote(reference.name)}"))
        self._check_no_missed_columns(edits)
        return sorted(edits)

    def _check_no_missed_columns(self, edits: list[tuple[int, int, str]]) -> None:
        """Refuse a column that the parser took for a type: `list[0]`."""
        kinds = ["", *(token.token_type.name for token in self._tokens), ""]
        for index, token in enumerate(self._tokens):
            before, after = kinds[index], kinds[index + 2]
            if token.text.casefold() not in self._by_folded or before == "DOT" or after not in ("L_BRACKET", "DOT"):
                continue
            if kinds[index + 1] != "STRING" and not any(start <= token.start <= end for start, end, _ in edits):
                message = f"the column {token.text} looks like a type; write ({token.text})"
                raise problem_from(self._sql, token.start, message)

    def _item(
        self, expression: exp.Expression, first: int, last: int, unnamed: str | None
    ) -> list[tuple[str, str, str | None]]:
        """Return (name, text, input column or None) of one SELECT item; a star gives several.

        Args:
            unnamed: name for an expression without a name. None: such an expression is refused.
        """
        from sqlglot import exp

        star = expression if isinstance(expression, exp.Star) else expression.this
        if isinstance(star, exp.Star) and isinstance(expression, (exp.Star, exp.Column)):
            if any(star.args.values()):
                raise SqlProblem("* with EXCEPT or REPLACE is not available in this version; name the columns")
            if isinstance(expression, exp.Column) and expression.table.casefold() != self._alias.casefold():
                raise SqlProblem(f"{expression.table}.*: the only input is {self._alias}")
            return [(column, f"{self._prefix}{quote(column)}", column) for column in self._columns]
        name, body = expression.alias_or_name, expression
        if isinstance(expression, exp.Alias):
            body = expression.this
            if self._tokens[last].text != name:
                raise SqlProblem(f"the name {name!r} is not valid here; write it as an identifier after AS")
            last -= 2 if self._tokens[last - 1].token_type.name == "ALIAS" else 1
            if _explodes(body):
                return [self._explode(name, body, first, last)]
        elif not isinstance(expression, (exp.Column, exp.Dot)):
            if unnamed is None:
                raise problem_from(
                    self._sql, self._tokens[first].start, f"give {self._source(first, last)} a name with AS"
                )
            name = unnamed
        column = self._plain_column(body)
        if column is not None and not isinstance(expression, exp.Alias):
            name = column
        return [(name, self._text(first, last), column)]

    def _explode(self, name: str, call: exp.Expression, first: int, last: int) -> tuple[str, str, str | None]:
        """Return the output column of an `explode`. The token range is from its name to its closing parenthesis."""
        if len(call.expressions) != 1:
            raise SqlProblem("explode takes one list: explode(x) AS name")
        column = self._plain_column(call.expressions[0])
        self._exploded = Exploded(name, self._text(first + 2, last - 1), column)
        return name, quote(ITEM), None

    def _plain_column(self, body: exp.Expression) -> str | None:
        from sqlglot import exp

        if not isinstance(body, exp.Column):
            return None
        parts = body.parts
        if len(parts) > 1 and parts[0].name.casefold() == self._alias.casefold():
            parts = parts[1:]
        return self._by_folded.get(parts[0].name.casefold()) if len(parts) == 1 else None

    def _source(self, first: int, last: int) -> str:
        return shortened(" ".join(self._sql[self._tokens[first].start : self._tokens[last].end + 1].split()))

    def _text(self, first: int, last: int) -> str:
        """Return the user's text of a token range, with column references qualified."""
        position, end = self._tokens[first].start, self._tokens[last].end + 1
        parts = []
        for start, stop, replacement in self._edits:
            if position <= start and stop < end:
                parts += [self._sql[position:start], replacement]
                position = stop + 1
        return "".join(parts) + self._sql[position:end]

    def _at(self, identifier: exp.Expression, message: str) -> SqlProblem:
        return problem_at(self._sql, identifier, message)

    def _check_output(self, names: list[str]) -> None:
        seen: set[str] = set()
        for name in names:
            try:
                check_column_name(name)
            except ValueError as problem:
                raise SqlProblem(str(problem)) from None
            if name.casefold() in seen:
                raise SqlProblem(f"the output column {name} occurs twice")
            seen.add(name.casefold())


def read_columns(part: exp.Expression) -> Iterator[exp.Column]:
    """Yield the column references in a part of a SELECT, without stars, units and lambda variables."""
    from sqlglot import exp

    for column in part.find_all(exp.Column):
        call = column.parent
        is_unit = (
            isinstance(call, exp.Anonymous)
            and call.name.casefold() in _WITH_UNIT
            and len(call.expressions) == 3
            and call.expressions[0] is column
        )
        if not (isinstance(column.this, exp.Star) or is_unit or is_variable(column)):
            yield column


def _explodes(node: exp.Expression) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Anonymous) and node.name.casefold() == _EXPLODE
