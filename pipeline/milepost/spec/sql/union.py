"""A `UNION ALL` is several row-wise SELECTs, each over one of the operator's inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from milepost.spec.sql.plan import SqlPlan
from milepost.spec.sql.sql import sql_plan
from milepost.spec.sql.sql_parse import SqlProblem, parse_select, problem_from, sql_tokens

_MAX_SELECTS = 100


@dataclass(frozen=True, slots=True)
class Branch:
    """One SELECT of an operator's SQL.

    Attributes:
        input: that it reads. sql: its text, behind as many lines and blanks as stand before it in the whole.
        is_first: whether the columns of the whole are named by it; those of any other are taken by their place.
    """

    input: str
    sql: str
    is_first: bool = True

    def plan(self, input_columns: Sequence[str], qualify: str | None = None) -> SqlPlan:
        """As `sql_plan`. Raises SqlProblem."""
        return sql_plan(self.sql, self.input, input_columns, qualify, need_names=self.is_first)


def branches(sql: str, inputs: Sequence[str]) -> tuple[Branch, ...]:
    """Return the SELECTs of an operator's SQL, in order; without UNION ALL its one SELECT is the whole text.

    Raises:
        SqlProblem: another set operation, a SELECT over something else, or an input that none of them reads.
    """
    if len(inputs) == 1:
        return tuple(Branch(inputs[0], text, not place) for place, text in enumerate(_selects(sql)))
    found = tuple(Branch(_input(text, inputs), text, not place) for place, text in enumerate(_selects(sql)))
    read = {branch.input for branch in found}
    for name in inputs:
        if name not in read and not any(parse_select(branch.sql).tree.args.get("joins") for branch in found):
            raise SqlProblem(f"no SELECT reads the input {name}; read it, or leave it out of `inputs`")
    return found


def _selects(sql: str) -> Iterator[str]:
    tokens = sql_tokens(sql)
    depth = start = count = 0
    kinds = [token.token_type.name for token in tokens]
    for index, kind in enumerate(kinds):
        depth += kind in ("L_PAREN", "L_BRACKET", "L_BRACE")
        depth -= kind in ("R_PAREN", "R_BRACKET", "R_BRACE")
        if kind != "UNION" or depth:
            continue
        token, following = tokens[index], [one.text.upper() for one in tokens[index + 1 : index + 4]]
        problem = None
        if following[:1] != ["ALL"]:
            problem = "UNION without ALL compares rows with other rows; write UNION ALL"
        elif following[1:3] == ["BY", "NAME"]:
            problem = "`UNION ALL BY NAME` is not available in this version; name the columns of each SELECT in order"
        elif "L_PAREN" in (kinds[0], *kinds[index + 2 : index + 3]):
            problem = "parentheses around a SELECT are not available in this version; leave them out"
        count += 1
        if count == _MAX_SELECTS:
            problem = f"a UNION ALL may have {_MAX_SELECTS} SELECTs; divide them between several sql operators"
        if problem is not None:
            raise problem_from(sql, token.start, problem)
        yield _at_its_place(sql, start, token.start)
        start = tokens[index + 1].end + 1
    yield sql if not start else _at_its_place(sql, start, len(sql))


def _at_its_place(sql: str, start: int, end: int) -> str:
    """Return a part of the text, with blanks in place of what stands before it."""
    return "".join(letter if letter == "\n" else " " for letter in sql[:start]) + sql[start:end]


def _input(text: str, inputs: Sequence[str]) -> str:
    """Return the input that a SELECT names behind FROM; what is no single name is refused by who reads the SELECT."""
    from sqlglot import exp

    clause = parse_select(text).tree.args.get("from_")
    table = None if clause is None else clause.this
    if not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
        return inputs[0]
    for name in inputs:
        if name.casefold() == table.name.casefold():
            return name
    raise SqlProblem(f"FROM {table.name}: the operator's inputs are {', '.join(inputs)}")
