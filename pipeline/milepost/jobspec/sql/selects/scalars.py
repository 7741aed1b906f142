"""Turn queries in expressions, each of one value, into joins."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from milepost.jobspec.sql.selects.grouping import is_whole
from milepost.jobspec.sql.text import (
    AGGREGATES,
    Call,
    Expression,
    FromItem,
    Item,
    Scalar,
    Select,
    Substitute,
    Tokens,
    aggregate_calls,
    digest,
    is_null_with,
    read_order,
    read_query,
)

GROUPED = "grouped"
"""Name of the relation with the groups that are joined with queries of HAVING and SELECT."""

_EXPECTED = "a query in an expression is one aggregate without GROUP BY"
_PATH = ("VAR", "IDENTIFIER", "DOT")
_IN_A_QUERY = ("IN", "EXISTS", "ANY", "ALL", "SOME")


def scalars_joined(select: Select) -> Select:
    """Return a SELECT in which queries in expressions are columns of relations. Raises SqlProblem."""
    # SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders)
    # SELECT id FROM orders, (SELECT avg(amount) AS value FROM orders) AS scalar_orders WHERE amount > value
    reader = _Reader()
    masked = replace(
        select,
        items=[replace(item, tokens=reader.read(item.tokens)) for item in select.items],
        where=[reader.read(run) for run in select.where],
        group=[reader.read(run) for run in select.group],
        having=reader.read_clause(select.having),
        qualify=reader.read_clause(select.qualify),
        order=reader.read_clause(select.order),
    )
    if not reader.items:
        return select
    runs = [*(item.tokens for item in masked.items), *_clauses(masked)]
    is_aggregate = masked.group or masked.having or any(aggregate_calls(item.tokens) for item in masked.items)
    if is_aggregate and any(_outside_calls(run, reader.items) for run in runs):
        return _Groups(masked, reader.items).joined()
    return _with_relations(masked, reader.items, masked.relations)


def _clauses(select: Select) -> list[Tokens]:
    return [run for run in (select.having, select.qualify, select.order) if run is not None]


def _with_relations(select: Select, scalars: Mapping[str, FromItem], relations: Iterable[FromItem]) -> Select:
    """Return a SELECT with the relations of the queries that its expressions read."""
    runs = [*(item.tokens for item in select.items), *select.group, *_clauses(select)]
    elsewhere = {name for run in runs for name in _names(run, scalars)}
    in_where = {name for run in select.where for name in _names(run, scalars)}
    joined = []
    for name, item in scalars.items():
        if item.scalar is not None and name in in_where | elsewhere:
            joined.append(replace(item, scalar=replace(item.scalar, only_filters=name not in elsewhere)))
    return replace(select, relations=[*relations, *joined])


def _names(run: Tokens, scalars: Collection[str]) -> set[str]:
    return {token.text for token in run.items if isinstance(token, Substitute) and token.text in scalars}


def _outside_calls(run: Tokens, scalars: Collection[str]) -> bool:
    inside = [(call.tokens.start, call.tokens.items[-1].end) for call in aggregate_calls(run)]
    return any(
        isinstance(token, Substitute) and token.text in scalars
        and not any(first <= token.start <= last for first, last in inside)
        for token in run.items
    )  # fmt: skip


@dataclass
class _Reader:
    """Replaces queries in expressions by columns.

    Attributes:
        items: column -> the relation with its value. texts: tokens of a query -> its column.
    """

    items: dict[str, FromItem] = field(default_factory=dict)
    texts: dict[tuple[str, ...], str] = field(default_factory=dict)

    def read(self, run: Tokens) -> Tokens:
        ranges = []
        at = 0
        while at < len(run):
            is_query = run.kind(at) == "L_PAREN" and run.kind(at + 1) in ("SELECT", "WITH")
            if is_query and run.word(at - 1) not in _IN_A_QUERY:
                closed = run.closing(at)
                ranges.append((at, closed + 1, self._scalar(run.part(at + 1, closed), run.part(at, at + 1))))
                at = closed
            at += 1
        return run.substituted(ranges) if ranges else run

    def read_clause(self, run: Tokens | None) -> Tokens | None:
        return None if run is None else self.read(run)

    def _scalar(self, tokens: Tokens, at: Tokens) -> str:
        if (known := self.texts.get(tokens.normalized)) is not None:
            return known
        query = read_query(tokens)
        select = query.selects[0]
        for clause in (select.having, select.qualify, select.limit, *select.group):
            if clause is not None:
                raise clause.problem(f"{_EXPECTED}, HAVING, QUALIFY and LIMIT; put this into a common table expression")
        if len(query.selects) > 1 or select.distinct:
            raise at.problem(f"{_EXPECTED}, DISTINCT and UNION; put this into a common table expression")
        if len(select.items) != 1:
            count = len(select.items)
            raise select.items[1].tokens.problem(f"a query in an expression returns one column, got {count}")
        run = select.items[0].tokens
        for index in range(len(run)):
            if run.kind(index) == "SELECT":
                raise run.problem("a query in the SELECT list of a query in an expression: join it in a common table "
                                  "expression", index)  # fmt: skip
        calls = aggregate_calls(run)
        if not calls:
            raise run.problem(f"{_EXPECTED}: this one may return two rows; write max({run.text})")
        label = select.relations[0].reads
        name = f"scalar({label})"
        if name in self.items:
            raise at.problem(f"two queries in expressions read {label}; put one into a common table expression")
        columns = {f"value_{digest(_unqualified(call.tokens, select))}": call.tokens for call in calls}
        if outside := _columns_outside(run, calls):
            raise run.problem(f"{outside} is not in an aggregate; write max({outside})")
        scalar = Scalar(name, run, columns, is_null_with(Expression(run).tree, _is_null_if_empty))
        self.items[name] = FromItem(tokens, "scalar", at, f"scalar_{label}", is_query=True, scalar=scalar)
        self.texts[tokens.normalized] = name
        return name


def _unqualified(run: Tokens, select: Select) -> tuple[str, ...]:
    """Return the normalized tokens of an expression, over one relation without its name, which may change freely."""
    # max(p.amount), max(payments.amount)  ->  max(amount)
    words = run.normalized
    if len(select.relations) != 1:
        return words
    name = select.relations[0].alias or select.relations[0].name
    dropped = {at for at, word in enumerate(words)
               if word == name and run.kind(at + 1) == "DOT" and run.kind(at - 1) != "DOT"}  # fmt: skip
    return tuple(word for at, word in enumerate(words) if not {at, at - 1} & dropped)


def _columns_outside(run: Tokens, calls: Iterable[Call]) -> str | None:
    """Return a column that an expression reads outside of its aggregates, or None."""
    ranges = [(call.tokens.start, call.tokens.items[-1].end) for call in calls]
    expression = Expression(run)
    for parts in expression.columns():
        start = expression.offsets(parts[0])[0]
        if not any(first <= start <= last for first, last in ranges):
            return str(parts[-1].name)
    return None


def _is_null_if_empty(node: Any) -> bool:
    """Return whether a call is an aggregate that is null over no rows."""
    from sqlglot import exp

    name = node.name.casefold() if isinstance(node, exp.Anonymous) else ""
    return AGGREGATES.get(name, "count") != "count"


@dataclass
class _Groups:
    """A SELECT with GROUP BY, and queries in HAVING or its output: its groups become a relation to join with them.

    Attributes:
        inner: columns of the groups. texts: tokens of an expression -> its column of the groups.
    """

    # SELECT k, sum(x) AS s FROM t GROUP BY k HAVING sum(x) > (SELECT …)
    # SELECT k, s FROM (SELECT k, sum(x) AS s FROM t GROUP BY k) AS grouped WHERE s > (SELECT …)
    select: Select
    scalars: Mapping[str, FromItem]
    inner: list[Item] = field(default_factory=list)
    texts: dict[tuple[str, ...], str] = field(default_factory=dict)

    def joined(self) -> Select:
        select = self.select
        group = [self._group_expression(run) for run in select.group]
        if select.qualify is not None:
            raise select.qualify.problem("QUALIFY in a SELECT with GROUP BY and a query in an expression: put the "
                                         "GROUP BY into a common table expression")  # fmt: skip
        for item in select.items:
            if item.is_star:
                raise item.tokens.problem("* is not available with GROUP BY; name the columns")
            if not _outside_calls(item.tokens, self.scalars) and (name := _output_name(item)) is not None:
                self._column(item.tokens, name)
        items = [Item(self._outer(item.tokens), item.alias or _output_name(item)) for item in select.items]
        where = [] if select.having is None else [self._outer(select.having)]
        order = None if select.order is None or select.limit is None else self._ordered(select.order)
        inner = replace(select, distinct=False, items=self.inner, group=group, having=None, order=None, limit=None)
        inner = _with_relations(inner, self.scalars, select.relations)
        keyword = select.tokens.part(0, 1)
        relation = FromItem(select.tokens, "", keyword, GROUPED, is_query=True, grouped=inner)
        outer = replace(select, items=items, where=where, group=[], having=None, qualify=None, order=order)
        return _with_relations(outer, self.scalars, [relation])

    def _group_expression(self, run: Tokens) -> Tokens:
        if run.word(0) == "ALL" and len(run) == 1:
            raise run.problem("GROUP BY ALL in a SELECT with a query in an expression: name the columns")
        is_position = len(run) == 1 and run.kind(0) == "NUMBER" and run.name().isdigit()
        return self.select.items[int(run.name()) - 1].tokens if is_position and 0 < int(run.name()) <= len(
            self.select.items) else run  # fmt: skip

    def _ordered(self, order: Tokens) -> Tokens:
        aliases = {name.casefold() for item in self.select.items if (name := _output_name(item)) is not None}
        ranges = []
        for run, _ in read_order(order):
            if not (len(run) == 1 and (run.kind(0) == "NUMBER" or run.name().casefold() in aliases)):
                shift = next(at for at, token in enumerate(order.items) if token.start == run.start)
                ranges += [(first + shift, last + shift, name) for first, last, name in self._ranges(run)]
        return order.substituted(ranges)

    def _outer(self, run: Tokens) -> Tokens:
        return run.substituted(self._ranges(run))

    def _ranges(self, run: Tokens) -> list[tuple[int, int, str]]:
        """Return the parts of an expression that are columns of the groups."""
        if run.normalized in self.texts:
            return [(0, len(run), self.texts[run.normalized])]
        ranges: list[tuple[int, int, str]] = []
        starts = {int(token.start): at for at, token in enumerate(run.items)}
        for call in aggregate_calls(run):
            first = starts[call.tokens.start]
            name = self._column(call.tokens, f"{call.name}_{digest(_unqualified(call.tokens, self.select))}")
            ranges.append((first, first + len(call.tokens), name))
        for key in sorted(self.select.group, key=lambda key: -len(key)):
            for at in range(len(run) - len(key) + 1):
                is_same = len(key) > 1 and run.part(at, at + len(key)).normalized == key.normalized
                if is_same and is_whole(run, at, len(key)) and not _overlaps(ranges, at):
                    name = self._column(key, f"key_{digest(_unqualified(key, self.select))}")
                    ranges.append((at, at + len(key), name))
        rest = run.substituted(ranges)
        expression, own = Expression(rest), {name for _, _, name in ranges} | {*self.scalars}
        for parts in expression.columns():
            if parts[0].name in own:
                continue
            first = starts[expression.offsets(parts[0])[0]]
            last = next(at for at in range(first, len(run)) if run.items[at].end == expression.offsets(parts[-1])[1])
            tokens = run.part(first, last + 1)
            name = self._column(tokens, str(parts[-1].name))
            ranges.append((first, last + 1, name))
        return ranges

    def _column(self, run: Tokens, name: str) -> str:
        """Return the column of the groups with the value of an expression, which is added if there is none."""
        if run.normalized not in self.texts:
            taken = {str(item.alias).casefold() for item in self.inner}
            chosen = f"{name}_{digest(_unqualified(run, self.select))}" if name.casefold() in taken else name
            self.inner.append(Item(run, chosen))
            self.texts[run.normalized] = chosen
        return self.texts[run.normalized]


def _overlaps(ranges: Iterable[tuple[int, int, str]], at: int) -> bool:
    return any(first <= at < last for first, last, _ in ranges)


def _output_name(item: Item) -> str | None:
    """Return the name of an output column, if the text states it."""
    is_path = all(item.tokens.kind(at) in _PATH for at in range(len(item.tokens)))
    return item.alias or (str(item.tokens.items[-1].text) if is_path else None)
