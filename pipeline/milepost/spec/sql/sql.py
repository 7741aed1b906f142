"""The SQL of a `sql` operator: checked to be one row-wise SELECT, and taken apart without rewriting it.

sqlglot reads the text; what Spark gets is the user's own text, cut at token positions, with only the column references
qualified. Nothing is generated from sqlglot's tree, so what it would write differently passes unchanged. What cannot be
qualified without a change of meaning is refused by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from milepost.spec.sql.plan import ITEM, Exploded, SqlPlan
from milepost.spec.sql.refused_queries import check_clauses, check_one_row, clause_name
from milepost.spec.sql.row_wise import (
    MOMENT_KEYWORDS,
    MOMENT_OR_MACHINE,
    NOT_WITHOUT_ARGUMENTS,
    REFUSED_FUNCTIONS,
    function_problem,
)
from milepost.spec.sql.sql_parse import SqlProblem, is_variable, parse_select, problem_at, problem_from, span
from milepost.spec.values.names import check_column_name, did_you_mean
from milepost.spec.values.problems import shortened

if TYPE_CHECKING:
    from sqlglot import exp

_WORDS = """
all and any as between by case distinct div else escape except for from ilike in interval is like not or over regexp
rlike select some then when where
""".split()  # noqa: SIM905
"""Words of the grammar that a parenthesis may follow; `any`, `all` and `some` only where they call no function."""
_QUANTIFIED = ("LIKE", "ILIKE", "RLIKE")
_TYPES = frozenset({"character", "dec", "numeric", "varchar"})
"""Types with a length that are no functions."""
_BEFORE_A_TYPE = ("ALIAS", "DCOLON", "LT", "COLON", "COMMA")
_EXPLODE = "explode"
_WITH_UNIT = frozenset({"date_add", "date_diff", "dateadd", "datediff", "timediff", "timestampadd", "timestampdiff"})
"""Functions whose first of three arguments is the name of a unit."""


def sql_plan(
    sql: str, input_name: str, input_columns: Sequence[str], qualify: str | None = None, *, need_names: bool = True
) -> SqlPlan:
    """Return the parts of a row-wise SELECT over one input.

    Args:
        sql: Spark SQL.
        input_name: the only name FROM may have.
        input_columns: names of the input's columns, in order; matched without regard to case, as Spark does.
        qualify: struct column that holds the input row; None = columns stand alone.
        need_names: whether an expression without AS is refused; else its name is its place, in parentheses.
    Raises:
        SqlProblem: a syntax error, an unknown column, or SQL that is not row-wise or not repeatable.
    """
    return _Reader(sql, input_name, tuple(input_columns), qualify).plan(need_names)


def check_row_wise(sql: str, input_name: str) -> None:
    """Check what can be checked of a SELECT whose input's columns are not known. Raises SqlProblem."""
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
        check_one_row(self._select)
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
                f"FROM takes only the operator's input, {self._input}; subqueries and functions are not allowed. "
                "Make an operator of a subquery, and read that"
            )
        extra = [key for key, value in table.args.items() if value and key not in ("this", "alias", "db", "catalog")]
        if extra:
            raise SqlProblem(
                f"{clause_name(extra[0])} is not allowed: FROM takes only the operator's input, {self._input}"
            )
        if table.db or table.name.casefold() != self._input.casefold():
            written = ".".join(part.name for part in table.parts)
            raise self._at(table.this, f"FROM {written}: the operator's input is {self._input}")
        if table.alias_column_names:
            raise self._at(
                table.this, "names for the columns of FROM are not available in this version; name them in SELECT"
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
            elif kind != "IDENTIFIER" and name in MOMENT_KEYWORDS and name not in self._by_folded and before != "DOT":
                why = REFUSED_FUNCTIONS[name]
            if name in NOT_WITHOUT_ARGUMENTS and following == ["L_PAREN", "R_PAREN"]:
                why = MOMENT_OR_MACHINE.format(f"{name}()")
            if why:
                raise problem_from(self._sql, token.start, why)

    def _call_problem(self, name: str, kind: str, before: str) -> str | None:
        """Return why what stands before a parenthesis may not stand there, or None."""
        if before == "DOT":
            return f"write `{name}` without what stands before it: only Spark's own functions are available"
        if kind != "IDENTIFIER" and name in _WORDS and (name not in REFUSED_FUNCTIONS or before in _QUANTIFIED):
            return None
        if kind != "IDENTIFIER" and name == _EXPLODE:
            return None  # it is looked at where it stands
        if kind != "IDENTIFIER" and name in _TYPES and before in _BEFORE_A_TYPE:
            return None
        return function_problem(name)

    def _check_nodes(self) -> None:
        from sqlglot import exp

        taken = {name.casefold() for name in (*self._columns, self._qualifier or "")}
        if sum(_explodes(item.this) for item in self._select.expressions if isinstance(item, exp.Alias)) > 1:
            raise SqlProblem("one explode per SELECT: a second one makes its rows in another operator behind this one")
        for node in self._select.walk():
            if isinstance(node, (exp.Parameter, exp.Placeholder)):
                raise SqlProblem("parameters are not allowed in the SQL of a spec")
            if isinstance(node, exp.Star) and not self._is_item(node):
                raise SqlProblem("* inside an expression is not available in this version; name the columns")
            if _explodes(node) and not (isinstance(node.parent, exp.Alias) and node.parent.parent is self._select):
                raise SqlProblem("explode stands alone in the SELECT list: explode(x) AS name")
            if isinstance(node, exp.Lambda):
                for parameter in node.expressions:
                    if parameter.name.casefold() in taken:
                        raise self._at(
                            parameter, f"the lambda's {parameter.name} is also the name of a column; give it another"
                        )

    def _is_item(self, star: exp.Expression) -> bool:
        """Return whether a star is an item of the SELECT list, alone or after the input's name."""
        from sqlglot import exp

        return (star.parent if isinstance(star.parent, exp.Column) else star).parent is self._select

    def _ranges(self) -> tuple[list[tuple[int, int]], tuple[int, int] | None]:
        """Return token ranges (inclusive) of each SELECT item and of the condition."""
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
                raise SqlProblem("a comma of the SELECT list has no expression behind it")
            raise SqlProblem("the SELECT list cannot be told apart; put parentheses around its expressions")
        return items, condition

    def _column_edits(self) -> list[tuple[int, int, str]]:
        """Return (start, end, replacement) of every column reference, in offsets of the SQL text.

        A name keeps its letters as they are written: Spark names the fields of a struct by them.
        """
        edits = []
        for column in read_columns(self._select):
            parts = column.parts
            qualified = len(parts) > 1 and parts[0].name.casefold() == self._alias.casefold()
            reference = parts[1] if qualified else parts[0]
            known = self._by_folded.get(reference.name.casefold())
            if known is None:
                raise self._at(
                    reference,
                    f"{self._input} has no column {reference.name}; {did_you_mean(reference.name, self._columns)}",
                )
            self._read.add(known)
            start, end = span(parts[0])[0], span(reference)[1]
            edits.append((start, end, f"{self._prefix}{quote(reference.name)}"))
        self._check_placed(edits)
        return sorted(edits)

    def _check_placed(self, edits: list[tuple[int, int, str]]) -> None:
        """Refuse a column that the parser took for a type: `list[0]`."""
        kinds = ["", *(token.token_type.name for token in self._tokens), ""]
        for index, token in enumerate(self._tokens):
            before, after = kinds[index], kinds[index + 2]
            if token.text.casefold() not in self._by_folded or before == "DOT" or after not in ("L_BRACKET", "DOT"):
                continue
            if kinds[index + 1] != "STRING" and not any(start <= token.start <= end for start, end, _ in edits):
                message = f"the column {token.text} cannot be told from a type; write ({token.text})"
                raise problem_from(self._sql, token.start, message)

    def _item(
        self, expression: exp.Expression, first: int, last: int, unnamed: str | None
    ) -> list[tuple[str, str, str | None]]:
        """Return (name, text, input column or None) of one SELECT item; a star gives several.

        Args:
            unnamed: name of an expression without one; None: such an expression is refused.
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
                raise SqlProblem(f"the name {name!r} cannot be read; write it as an identifier after AS")
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
        """Return the column that an `explode` makes: `first` is its name, `last` the parenthesis that closes it."""
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
    """Yield what the parser takes for columns in a part of a SELECT, but for stars, units and variables of lambdas."""
    from sqlglot import exp

    for column in part.find_all(exp.Column):
        call = column.parent
        unit = (
            isinstance(call, exp.Anonymous)
            and call.name.casefold() in _WITH_UNIT
            and len(call.expressions) == 3
            and call.expressions[0] is column
        )
        if not (isinstance(column.this, exp.Star) or unit or is_variable(column)):
            yield column


def _explodes(node: exp.Expression) -> bool:
    from sqlglot import exp

    return isinstance(node, exp.Anonymous) and node.name.casefold() == _EXPLODE
