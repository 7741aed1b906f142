"""Split a `UNION ALL` into row-wise SELECTs, each over one input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from milepost.language.sql.plan import SqlPlan
from milepost.language.sql.sql import sql_plan
from milepost.language.sql.sql_parse import SqlProblem, parse_select, problem_from, sql_tokens

_MAX_SELECTS = 100


@dataclass(frozen=True, slots=True)
class Branch:
    """One SELECT of an operator's SQL.

    Attributes:
        input: the input that it reads.
        sql: its text, indented so that positions are those in the whole SQL.
        is_first: whether it names the columns of the UNION. Columns of the others are matched by position.
    """

    input: str
    sql: str
    is_first: bool = True

    def plan(self, input_columns: Sequence[str], qualify: str | None = None) -> SqlPlan:
        """Return the parts of the SELECT, as `sql_plan` does. Raises SqlProblem."""
        return sql_plan(self.sql, self.input, input_columns, qualify, need_names=self.is_first)


def branches(sql: str, inputs: Sequence[str]) -> tuple[Branch, ...]:
    """Return the SELECTs of an operator's SQL, in order; one SELECT if there is no UNION ALL.

    Raises:
        SqlProblem: another set operation, a SELECT over something else, or an input that no SELECT reads.
    """
    # "SELECT a FROM x\nUNION ALL\nSELECT b FROM y" gives Branch("x", "SELECT a FROM x\n") and
    # Branch("y", "               \n         \nSELECT b FROM y"): a problem in the second is reported in line 3.
    if len(inputs) == 1:
        return tuple(Branch(inputs[0], text, not position) for position, text in enumerate(_selects(sql)))
    selects = tuple(Branch(_input(text, inputs), text, not position) for position, text in enumerate(_selects(sql)))
    read = {select.input for select in selects}
    for name in inputs:
        if name not in read and not any(parse_select(select.sql).tree.args.get("joins") for select in selects):
            raise SqlProblem(f"no SELECT reads the input {name}; read it, or remove it from `inputs`")
    return selects


def _selects(sql: str) -> Iterator[str]:
    tokens = sql_tokens(sql)
    depth = start = count = 0
    kinds = [token.token_type.name for token in tokens]
    for index, kind in enumerate(kinds):
        depth += kind in ("L_PAREN", "L_BRACKET", "L_BRACE")
        depth -= kind in ("R_PAREN", "R_BRACKET", "R_BRACE")
        if kind != "UNION" or depth:
            continue
        token, following = tokens[index], [after.text.upper() for after in tokens[index + 1 : index + 4]]
        problem = None
        if following[:1] != ["ALL"]:
            problem = "UNION without ALL compares rows with other rows; write UNION ALL"
        elif following[1:3] == ["BY", "NAME"]:
            problem = "`UNION ALL BY NAME` is not available in this version; name the columns of each SELECT in order"
        elif "L_PAREN" in (kinds[0], *kinds[index + 2 : index + 3]):
            problem = "parentheses around a SELECT are not available in this version; remove them"
        count += 1
        if count == _MAX_SELECTS:
            problem = f"a UNION ALL may have at most {_MAX_SELECTS} SELECTs; split it into several sql operators"
        if problem is not None:
            raise problem_from(sql, token.start, problem)
        yield _padded(sql, start, token.start)
        start = tokens[index + 1].end + 1
    yield sql if not start else _padded(sql, start, len(sql))


def _padded(sql: str, start: int, end: int) -> str:
    """Return a part of the text, preceded by spaces and line breaks so that its position stays the same."""
    return "".join(letter if letter == "\n" else " " for letter in sql[:start]) + sql[start:end]


def _input(text: str, inputs: Sequence[str]) -> str:
    """Return the input that FROM names. For anything but a plain name, return the first: `sql_plan` refuses it."""
    from sqlglot import exp

    clause = parse_select(text).tree.args.get("from_")
    table = None if clause is None else clause.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return inputs[0]
    for name in inputs:
        if name.casefold() == table.name.casefold():
            return name
    raise SqlProblem(f"FROM {table.name}: the operator's inputs are {', '.join(inputs)}")
