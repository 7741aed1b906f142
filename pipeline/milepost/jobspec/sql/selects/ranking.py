"""Compile QUALIFY and ORDER BY … LIMIT into a `latest` or `top` operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from milepost.jobspec.sql.emit import Column, Emitter
from milepost.jobspec.sql.names import Output, Scope, by_name_or_position
from milepost.jobspec.sql.selects.grouping import ALL_ROWS
from milepost.jobspec.sql.text import Fragment, Select, Tokens, conjuncts, read_order, read_over, read_query
from milepost.operators.base import APPEND
from milepost.operators.over import RANKS
from milepost.operators.top import MOST_ROWS

_EXPECTED = "expected QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) <= n; a condition on the rows is WHERE"

_TIES: dict[str, bool | str] = {"row_number": False, "rank": True, "dense_rank": "dense"}
"""Function -> `ties` of a `top` operator."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """The first n rows per partition.

    Attributes:
        order: (expression, whether it sorts descending). rank: output column with the rank, or None.
        is_limit: whether it is ORDER BY … LIMIT, which may name output columns. OVER (…) sees only the input.
        ties: as in a `top` operator: True for rank(), dense for dense_rank().
    """

    at: Tokens
    partition: list[Tokens]
    order: list[tuple[Tokens, bool]]
    n: int
    rank: str | None = None
    is_limit: bool = False
    ties: bool | str = False

    def expressions(self, outputs: Sequence[Output], scope: Scope) -> list[Tokens]:
        """Return its expressions that are no output columns."""
        sides = [*self.partition, *(run for run, _ in self.order)]
        return [run for run in sides if self.named(run, outputs, scope) is None]

    def named(self, run: Tokens, outputs: Sequence[Output], scope: Scope) -> Output | None:
        """Return the output column that an expression names, or None. OVER (…) names none."""
        if self.is_limit:
            return by_name_or_position(run, outputs, scope, prefers_input=False)
        return None


def ranked_subquery(select: Select) -> Select:
    """Move `WHERE rank <= n` over a subquery with row_number() into the subquery, as QUALIFY."""
    if len(select.relations) != 1 or not select.relations[0].is_query or not select.where:
        return select
    item = select.relations[0]
    inner = read_query(item.tokens, item.columns)
    if len(inner.selects) != 1 or inner.selects[0].qualify is not None:
        return select
    ranks = {one.alias.casefold() for one in inner.selects[0].items
             if one.alias and one.tokens.word(0).lower() in RANKS}  # fmt: skip
    kept: list[Tokens] = []
    moved: Tokens | None = None
    for run in select.where:
        at = 2 if run.kind(1) == "DOT" else 0
        is_rank = len(run) > at and run.name(at).casefold() in ranks
        if is_rank and moved is None:
            moved = run
        else:
            kept.append(run)
    return replace(select, relations=[replace(item, qualify=moved)], where=kept)


def read_ranking(select: Select, outputs: Sequence[Output]) -> Ranking | None:
    """Return the ranking of a SELECT, if it has QUALIFY or LIMIT. Raises SqlProblem."""
    ranks = [output for output in outputs if output.is_rank]
    if len(ranks) > 1 and (select.qualify is not None or select.limit is not None):
        raise ranks[1].run.problem("a SELECT can have only one ranking; use a common table expression")
    if select.qualify is not None:
        if select.limit is not None:
            raise select.limit.problem("QUALIFY and LIMIT in one SELECT: put one into a common table expression")
        return _qualified(select.qualify, ranks)
    if select.limit is not None:
        if select.distinct:
            raise select.limit.problem("LIMIT of SELECT DISTINCT: put the DISTINCT into a common table expression")
        if select.order is None:
            raise select.limit.problem("LIMIT without ORDER BY: which rows it takes would not be determined")
        if len(select.limit) != 1 or not select.limit.name().isdigit():
            raise select.limit.problem("expected LIMIT with a number")
        if ranks:
            raise ranks[0].run.problem("write QUALIFY with the number of rows instead of LIMIT")
        return Ranking(select.limit, [], read_order(select.order), _count(select.limit), is_limit=True)
    return None


def _qualified(run: Tokens, ranks: Sequence[Output]) -> Ranking:
    conditions = conjuncts(run)
    run = conditions[0]
    if len(conditions) > 1:
        raise conditions[1].problem("QUALIFY takes one condition; put the others in WHERE")
    cuts = [at for at in run.top() if run.kind(at) in ("EQ", "LTE", "LT")]
    if len(cuts) != 1 or len(run) != cuts[0] + 2 or not run.name(-1).isdigit():
        raise run.problem(_EXPECTED)
    side, operator, number = run.part(0, cuts[0]), run.kind(cuts[0]), _count(run.part(len(run) - 1))
    if operator == "EQ" and number != 1:
        raise run.problem("only = 1 is available; for other ranks write <= n, and filter in another statement")
    n = number - (operator == "LT")
    rank = None
    if not read_over(side):
        name = side.name(-1).casefold()
        named = next((output for output in ranks if output.name.casefold() == name), None)
        if named is None or not (len(side) == 1 or (len(side) == 3 and side.kind(1) == "DOT")):
            raise run.problem(_EXPECTED)
        side, rank = named.run, named.name
    elif ranks:
        if ranks[0].run.normalized != side.normalized:
            raise run.problem("the ranking differs from that in the SELECT list")
        rank = ranks[0].name
    return _over(side, n, rank)


def _count(run: Tokens) -> int:
    """Return the number of rows that a query states. Raises SqlProblem: too many."""
    if len(run.name()) > len(str(MOST_ROWS)) or int(run.name()) > MOST_ROWS:
        raise run.problem(f"expected at most {MOST_ROWS:,}, because state has these rows")
    return int(run.name())


def _over(run: Tokens, n: int, rank: str | None) -> Ranking:
    call = read_over(run)[0]
    if call.function not in _TIES or len(call.tokens) != len(run):
        raise run.problem(_EXPECTED)
    if n < 1:
        raise run.problem("expected at least one row")
    return Ranking(run, call.partition, call.order, n, rank, ties=_TIES[call.function])


@dataclass
class RankCompiler:
    """Compiles the ranking of one SELECT.

    Attributes:
        expression: returns an expression over the input of the ranking. columns: the output columns.
        ranks_are_one: whether the operator emits no rank, because the rank of each row is 1.
    """

    emitter: Emitter
    scope: Scope
    outputs: Sequence[Output]
    expression: Callable[[Tokens], Fragment]
    ranking: Ranking
    columns: list[Column]
    ranks_are_one: bool = False

    def compile(self, uid: str, step: str, node: str, where: Sequence[Fragment]) -> str:
        """Add the step that computes keys and order, and the operator with the state; return its uid."""
        ranking, emitter, at = self.ranking, self.emitter, self.ranking.at
        key = sorted({self._column(run, "key") for run in ranking.partition})
        order: dict[str, bool] = {}
        for run, descends in ranking.order:
            order.setdefault(self._column(run, "order"), descends)
        if not key:
            self.columns.append(Column(ALL_ROWS, Fragment((("1", at.start),))))
        emitter.sql(step, node, self.columns, where, at)
        is_newest = ranking.n == 1 and not ranking.ties and all(order.values())
        if key and is_newest and emitter.rows[step].kind == APPEND:
            operator = {"uid": uid, "kind": "latest", "inputs": [step], "key": key, "sequence_by": list(order)}
            self.ranks_are_one = True
            return emitter.add(operator, at)
        ordered = [{column: "desc"} if descends else column for column, descends in order.items()]
        top: dict[str, object] = {
            "uid": uid,
            "kind": "top",
            "inputs": [step],
            "key": key or [ALL_ROWS],
            "order_by": ordered,
        }
        top |= {"n": ranking.n} | ({"rank": ranking.rank} if ranking.rank else {})
        emitter.add(top | ({"ties": ranking.ties} if ranking.ties else {}), at)
        unique: tuple[str, ...] | None = tuple(key)
        if ranking.ties or (ranking.n > 1 and ranking.rank is None):
            unique = emitter.unique_of(step)
        elif ranking.n > 1:
            unique = (*key, str(ranking.rank))
        if unique is not None:
            emitter.unique[uid] = unique
        return uid

    def _column(self, run: Tokens, prefix: str) -> str:
        """Return the column with the value of an expression, which is added if no output column has it."""
        output = self.ranking.named(run, self.outputs, self.scope)
        if output is not None:
            return output.name
        expression = self.expression(run)
        same = next((one.name for one in self.columns if one.text.digest == expression.digest), None)
        if same is None:
            same = self.emitter.label(f"{prefix}_{expression.digest}", run)
            self.columns.append(Column(same, expression))
        return same
