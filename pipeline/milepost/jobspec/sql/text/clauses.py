"""Split queries at tokens into common table expressions, SELECTs, clauses and FROM items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from milepost.jobspec.sql.text.expressions import conjuncts
from milepost.jobspec.sql.text.refused import REFUSED_CLAUSES
from milepost.jobspec.sql.text.tokens import Tokens

_CLAUSES = ("FROM", "WHERE", "GROUP_BY", "HAVING", "QUALIFY", "ORDER_BY", "LIMIT")
"""Clauses after the SELECT list, in their order."""

SET_OPERATIONS = ("UNION", "INTERSECT", "EXCEPT")

VALUE = "value"
"""Column with the value of a query in an expression."""

_JOIN_WORDS = ("INNER", "LEFT", "RIGHT", "FULL", "CROSS", "SEMI", "ANTI", "OUTER", "NATURAL", "ASOF", "JOIN", "LATERAL")
_JOINS = {
    "": "inner", "INNER": "inner", "CROSS": "inner", "LEFT": "left", "LEFT OUTER": "left", "RIGHT": "right",
    "RIGHT OUTER": "right", "FULL": "full", "FULL OUTER": "full", "SEMI": "semi", "LEFT SEMI": "semi", "ANTI": "anti",
    "LEFT ANTI": "anti", "ASOF": "asof", "LEFT ASOF": "asof left", "ASOF LEFT": "asof left", "INNER ASOF": "asof",
}  # fmt: skip
"""Words before JOIN -> how rows are joined."""


@dataclass(frozen=True, slots=True)
class Item:
    """One item of a SELECT list: an expression with the name after AS, if there is one."""

    tokens: Tokens
    alias: str | None = None

    @property
    def is_star(self) -> bool:
        """Whether it is `*`, `t.*` or one of them with EXCEPT."""
        return self.tokens.kind(0) == "STAR" or (self.tokens.kind(1) == "DOT" and self.tokens.kind(2) == "STAR")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A query in an expression, which returns one value.

    Attributes:
        name: the column that stands for it in the expressions. run: its only output. calls: columns of its aggregates.
        is_null_if_empty: whether its value over no rows is null, so that it can be computed before the join.
        only_filters: whether only terms of WHERE read it.
    """

    name: str
    run: Tokens
    calls: dict[str, Tokens]
    is_null_if_empty: bool
    only_filters: bool = False

    @property
    def items(self) -> list[Item]:
        """The output columns of its relation."""
        if self.is_null_if_empty:
            return [Item(self.run, VALUE)]
        return [Item(call, column) for column, call in self.calls.items()]


@dataclass(frozen=True, slots=True)
class FromItem:
    """One relation after FROM, with how it is joined to those before it.

    Attributes:
        tokens: the name, or the tokens of the subquery. join: "" for the first, "comma", "explode", or as in _JOINS.
        alias: name after AS, in lower case; a query without one has that of its first relation, after `query_`.
        columns: columns of an explode, or of the list after the alias of a query.
        on, using, match: conditions of the join. keyword: the tokens that begin with the first word of the join.
        qualify: condition on the rank of a subquery, which the query around it states in WHERE.
        equals: expression that the only column of the subquery equals, of `expression IN (SELECT …)`.
        is_exists: whether its condition comes from EXISTS, in which its own columns hide those of the outer query.
        conditions: the conditions of EXISTS.
        scalar: of a query in an expression. grouped: a SELECT with GROUP BY whose rows this SELECT joins.
    """

    tokens: Tokens
    join: str
    keyword: Tokens
    alias: str | None = None
    is_query: bool = False
    columns: tuple[str, ...] = ()
    on: Tokens | None = None
    using: tuple[Tokens, ...] = ()
    match: Tokens | None = None
    qualify: Tokens | None = None
    equals: Tokens | None = None
    is_exists: bool = False
    conditions: tuple[Tokens, ...] = ()
    scalar: Scalar | None = None
    grouped: Select | None = None

    @property
    def name(self) -> str:
        """The alias of a query, or the name of the table, whatever its alias."""
        return str(self.alias) if self.is_query else self.tokens.name().lower()

    @property
    def reads(self) -> str:
        """What it reads, whatever its alias: the name of the table, or `query_` and what a query in FROM reads first.

        A query in an expression has a name of its own.
        """
        is_named = self.grouped is not None or self.scalar is not None or self.equals is not None
        if is_named or not self.is_query:
            return self.name
        return f"query_{read_query(self.tokens).selects[0].relations[0].reads}"


@dataclass(frozen=True, slots=True)
class Select:
    """One SELECT.

    Attributes:
        where: the conditions that AND combines in WHERE.
    """

    tokens: Tokens
    distinct: bool
    items: list[Item]
    relations: list[FromItem]
    where: list[Tokens] = field(default_factory=list)
    group: list[Tokens] = field(default_factory=list)
    having: Tokens | None = None
    qualify: Tokens | None = None
    order: Tokens | None = None
    limit: Tokens | None = None


@dataclass(frozen=True, slots=True)
class Query:
    """SELECTs combined by a set operation, with the common table expressions that they read.

    Attributes:
        ctes: (name, its token, body, columns of the list after the name) in order. selects: at least one.
        operation: UNION, INTERSECT or EXCEPT. distinct: whether it has no ALL.
    """

    tokens: Tokens
    ctes: list[tuple[str, Tokens, Tokens, tuple[str, ...]]]
    selects: list[Select]
    distinct: bool = False
    operation: str = "UNION"


def read_query(run: Tokens, columns: Sequence[str] = ()) -> Query:
    """Return the clauses of a query. Raises SqlProblem.

    Args:
        columns: names that a list outside the query gives its columns.
    """
    run = run.without_brackets()
    ctes: list[tuple[str, Tokens, Tokens, tuple[str, ...]]] = []
    at = 0
    if run.kind(0) == "WITH":
        if run.kind(1) == "RECURSIVE":
            raise run.problem("a recursive query is not available in this version; write one join per level", 1)
        at = 1
        while True:
            listed, after = column_list(run, at + 1)
            opened = after + 1
            if run.kind(after) != "ALIAS" or run.kind(opened) != "L_PAREN":
                raise run.problem("expected name AS (SELECT …)", at)
            closed = run.closing(opened)
            name = str(run.items[at].text).lower()
            ctes.append((name, run.part(at, at + 1), run.part(opened + 1, closed), listed))
            at = closed + 1
            if run.kind(at) != "COMMA":
                break
            at += 1
    body, begins = run.part(at), [0]
    for index in body.top():
        kind = body.kind(index)
        if kind in SET_OPERATIONS and not _is_named(body, index):
            begins.append(index)
        elif kind in REFUSED_CLAUSES and not _is_named(body, index):
            raise body.problem(REFUSED_CLAUSES[kind], index)
    kinds = list(dict.fromkeys((body.kind(one), body.kind(one + 1) != "ALL") for one in begins[1:]))
    if len(kinds) > 1:
        names = " and ".join(kind if is_distinct else f"{kind} ALL" for kind, is_distinct in kinds[:2])
        raise body.problem(f"{names} in one query: put one of them in a common table expression", begins[1])
    selects = []
    for begin, end in zip(begins, [*begins[1:], None], strict=True):
        skipped = 0 if not begin else 2 if body.kind(begin + 1) in ("ALL", "DISTINCT") else 1
        selects.append(_select(body.part(begin + skipped, end)))
    if columns:
        selects[0] = _with_names(selects[0], columns)
    if len(selects) > 1:
        for select in selects:
            clause = select.order or select.limit
            if clause is not None:
                raise clause.problem(f"ORDER BY and LIMIT of {kinds[0][0]}: put it in a common table expression")
    operation, distinct = kinds[0] if kinds else ("UNION", False)
    return Query(run, ctes, selects, distinct, operation)


def column_list(run: Tokens, at: int) -> tuple[tuple[str, ...], int]:
    """Return the names of `(a, b)` at a token, if it is there, and the index of the token after it."""
    if run.kind(at) != "L_PAREN":
        return (), at
    closed = run.closing(at)
    listed = run.part(at + 1, closed).split("COMMA")
    for one in listed:
        if len(one) != 1 or one.kind(0) in ("STRING", "NUMBER"):
            raise (one if len(one) else run).problem("expected the names of columns alone, such as (a, b)")
    return tuple(one.name() for one in listed), closed + 1


def _with_names(select: Select, columns: Sequence[str]) -> Select:
    """Give the columns of a SELECT the names of a list, as AS would."""
    star = next((item for item in select.items if item.is_star), None)
    if star is not None:
        raise star.tokens.problem("the list of columns outside this query needs them by name here, not *")
    if len(select.items) != len(columns):
        raise select.tokens.problem(f"this query has {len(select.items)} columns, the list has {len(columns)}")
    for item, name in zip(select.items, columns, strict=True):
        if item.alias is not None and item.alias.casefold() != name.casefold():
            raise item.tokens.problem(f"this column is {item.alias} here and {name} in the list; remove AS or the list")
    return replace(select, items=[Item(item.tokens, name) for item, name in zip(select.items, columns, strict=True)])


def _is_named(run: Tokens, index: int) -> bool:
    """Return whether a word is a name, a part of one, or `* EXCEPT (…)`."""
    before, after = run.kind(index - 1), run.kind(index + 1)
    if run.kind(index) == "WINDOW":
        return after in ("L_PAREN", "DOT") or before in ("DOT", "ALIAS", "COMMA", "SELECT", "GROUP_BY")
    return before in ("DOT", "ALIAS") or (run.kind(index) == "EXCEPT" and before == "STAR")


def _select(run: Tokens) -> Select:
    run = run.without_brackets()
    if run.kind(0) != "SELECT":
        raise run.problem("expected SELECT")
    found: dict[str, int] = {}
    for index in run.top():
        kind = run.kind(index)
        if kind in SET_OPERATIONS and not _is_named(run, index):
            raise run.problem(f"{kind} in brackets: put it in a common table expression", index)
        if kind in _CLAUSES and not (kind == "FROM" and run.kind(index - 1) == "DISTINCT"):
            if kind in found:
                raise run.problem(f"{run.items[index].text} occurs twice", index)
            if found and _CLAUSES.index(kind) < max(map(_CLAUSES.index, found)):
                raise run.problem(f"{run.items[index].text} is in the wrong place", index)
            found[kind] = index
    ends = [*found.values(), len(run)]
    clauses = {kind: run.part(start + 1, end) for (kind, start), end in zip(found.items(), ends[1:], strict=True)}
    for kind, start in found.items():
        if not len(clauses[kind]):
            raise run.problem(f"nothing follows {run.items[start].text}", start)
    if "FROM" not in clauses:
        raise run.problem("FROM is missing: a query reads sources or other statements")
    distinct = run.kind(1) == "DISTINCT"
    listed = run.part(2 if distinct or run.kind(1) == "ALL" else 1, ends[0])
    return Select(
        run,
        distinct,
        [_item(part, listed) for part in listed.split("COMMA")],
        list(read_relations(clauses["FROM"])),
        conjuncts(clauses.get("WHERE")),
        clauses["GROUP_BY"].split("COMMA") if "GROUP_BY" in clauses else [],
        clauses.get("HAVING"),
        clauses.get("QUALIFY"),
        clauses.get("ORDER_BY"),
        clauses.get("LIMIT"),
    )


_NO_ALIAS = ("R_PAREN", "R_BRACKET", "STRING", "NUMBER", "END", "NULL", "TRUE", "FALSE", "STAR", "VAR", "IDENTIFIER")


def _item(part: Tokens, listed: Tokens) -> Item:
    if not len(part):
        raise listed.problem("a comma in the SELECT list is not followed by an expression")
    item = Item(part)
    last = len(part) - 1
    if item.is_star or last == 0:
        return item
    outside = {*part.top()}
    if part.kind(last - 1) == "ALIAS" and last in outside:
        return Item(part.part(0, last - 1), str(part.items[last].text))
    is_unit = part.kind(last - 2) == "INTERVAL"
    if part.kind(last) in ("VAR", "IDENTIFIER") and part.kind(last - 1) in _NO_ALIAS and not is_unit:
        return Item(part.part(0, last), str(part.items[last].text))
    return item


def read_relations(run: Tokens) -> Iterator[FromItem]:
    """Yield the relations after FROM, in order. Raises SqlProblem."""
    at, join, keyword = 0, "", run
    while True:
        item, at = _relation(run, at, join, keyword)
        yield item
        if at >= len(run):
            return
        keyword = run.part(at)
        words: list[str] = []
        if run.kind(at) == "COMMA":
            join, at = "comma", at + 1
            continue
        while run.word(at) in _JOIN_WORDS and (not words or words[-1] not in ("JOIN", "LATERAL")):
            words.append(run.word(at))
            at += 1
        if words[-1:] == ["LATERAL"] and run.word(at) == "VIEW":
            join, at = "explode", at + 1
            continue
        how = " ".join(words[:-1])
        if words[-1:] != ["JOIN"] or how not in _JOINS:
            shown = " ".join(words) or keyword.items[0].text
            raise keyword.problem(f"{shown} is not available here; expected a join such as LEFT JOIN … ON …")
        join = _JOINS[how]


def _relation(run: Tokens, at: int, join: str, keyword: Tokens) -> tuple[FromItem, int]:
    """Return the relation that begins at a token, and the index of the token after it."""
    if join == "explode":
        return _explode(run, at, keyword)
    if run.word(at) == "STREAM":
        bracketed = run.kind(at + 1) == "L_PAREN"
        if bracketed or run.kind(at + 1) in ("VAR", "IDENTIFIER"):
            at += 1
            if bracketed:
                closed = run.closing(at)
                tokens, at = run.part(at + 1, closed), closed + 1
                return _joined(run, at, join, keyword, tokens, False)
    if run.kind(at) == "L_PAREN":
        closed = run.closing(at)
        return _joined(run, closed + 1, join, keyword, run.part(at + 1, closed), True)
    if at >= len(run):
        raise run.problem("a relation is missing at the end of FROM", len(run) - 1)
    end = at + 1
    while run.kind(end) == "DOT":
        end += 2
    tokens = run.part(at, end)
    if len(tokens) != 1 or run.kind(end) == "L_PAREN" or tokens.kind(0) in ("STRING", "NUMBER"):
        raise run.problem("expected the name of a source or statement: one part, no function", at)
    return _joined(run, end, join, keyword, tokens, False)


def _joined(run: Tokens, at: int, join: str, keyword: Tokens, tokens: Tokens, is_query: bool) -> tuple[FromItem, int]:
    """Read alias and conditions of a relation."""
    alias: str | None = None
    on: Tokens | None = None
    match: Tokens | None = None
    using: tuple[Tokens, ...] = ()
    columns: tuple[str, ...] = ()
    if run.kind(at) == "ALIAS":
        at += 1
    after_as = run.kind(at - 1) == "ALIAS"
    if at < len(run) and (after_as or (run.kind(at) in ("VAR", "IDENTIFIER") and run.word(at) != "MATCH_CONDITION")):
        alias, at = str(run.items[at].text).lower(), at + 1
        if run.kind(at) == "L_PAREN" and not is_query:
            raise run.problem("column aliases of a table are not available in this version; write AS in SELECT", at)
        columns, at = column_list(run, at)
    if run.word(at) == "MATCH_CONDITION":
        if run.kind(at + 1) != "L_PAREN":
            raise run.problem("expected MATCH_CONDITION (left.time >= right.time)", at)
        closed = run.closing(at + 1)
        match, at = run.part(at + 2, closed), closed + 1
    if run.kind(at) == "ON":
        end = next((i + at + 1 for i in run.part(at + 1).top() if _begins_relation(run, i + at + 1)), len(run))
        on, at = run.part(at + 1, end), end
        if not len(on):
            raise run.problem("nothing follows ON", end - 1)
    elif run.kind(at) == "USING":
        closed = run.closing(at + 1)
        using, at = tuple(run.part(at + 2, closed).split("COMMA")), closed + 1
    if at < len(run) and not _begins_relation(run, at):
        raise run.problem(f"unexpected {run.items[at].text}", at)
    if is_query and alias is None:  # FROM (SELECT id FROM orders)  ->  query_orders
        alias = f"query_{read_query(tokens).selects[0].relations[0].reads}"
    return FromItem(tokens, join, keyword, alias, is_query, columns, on, using, match), at


def _begins_relation(run: Tokens, index: int) -> bool:
    if run.kind(index) == "COMMA":
        return True
    is_call = run.kind(index + 1) == "L_PAREN" and run.word(index) in ("LEFT", "RIGHT")
    return run.word(index) in _JOIN_WORDS and not is_call and run.kind(index - 1) != "DOT"


def _explode(run: Tokens, at: int, keyword: Tokens) -> tuple[FromItem, int]:
    """Read `LATERAL VIEW explode(list) alias AS column`."""
    expected = "expected LATERAL VIEW explode(list) alias AS column"
    if run.word(at) != "EXPLODE" or run.kind(at + 1) != "L_PAREN":
        raise run.problem(expected, at)
    closed = run.closing(at + 1)
    tokens, at = run.part(at + 2, closed), closed + 1
    alias = str(run.items[at].text).lower() if run.kind(at) in ("VAR", "IDENTIFIER") else None
    at += alias is not None
    if alias is None or run.kind(at) != "ALIAS" or at + 1 >= len(run):
        raise run.problem(expected, closed)
    column = str(run.items[at + 1].text)
    return FromItem(tokens, "explode", keyword, alias, False, (column,)), at + 2
