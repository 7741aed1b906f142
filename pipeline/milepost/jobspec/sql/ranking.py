"""Compile QUALIFY and ORDER BY … LIMIT into a `latest` or `top` operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.jobspec.sql.clauses import Select
from milepost.jobspec.sql.expressions import RANKS, conjuncts, window_calls
from milepost.jobspec.sql.outputs import Output
from milepost.jobspec.sql.tokens import Tokens

_EXPECTED = "expected QUALIFY row_number() OVER (PARTITION BY … ORDER BY …) <= n"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The first n rows per partition.

    Attributes:
        order: (expression, whether it sorts descending). rank: output column with the rank, or None.
    """

    at: Tokens
    partition: list[Tokens]
    order: list[tuple[Tokens, bool]]
    n: int
    rank: str | None = None


def read_ranking(select: Select, outputs: Sequence[Output]) -> Ranking | None:
    """Return the ranking of a SELECT, if it has QUALIFY or LIMIT. Raises SqlProblem."""
    ranks = [output for output in outputs if output.is_rank]
    if len(ranks) > 1:
        raise ranks[1].run.problem("a SELECT can have only one ranking; use a common table expression")
    if select.qualify is not None:
        if select.limit is not None:
            raise select.limit.problem("QUALIFY and LIMIT in one SELECT: put one into a common table expression")
        return _qualified(select.qualify, ranks)
    if select.limit is not None:
        if select.order is None:
            raise select.limit.problem("LIMIT without ORDER BY: which rows it takes would not be determined")
        if len(select.limit) != 1 or not select.limit.name().isdigit():
            raise select.limit.problem("expected LIMIT with a number")
        if ranks:
            raise ranks[0].run.problem("write QUALIFY with the number of rows instead of LIMIT")
        return Ranking(select.limit, [], read_order(select.order), int(select.limit.items[0].text))
    if ranks:
        raise ranks[0].run.problem("row_number() needs a number of rows: QUALIFY … <= n")
    return None


def _qualified(run: Tokens, ranks: Sequence[Output]) -> Ranking:
    conditions = conjuncts(run)
    run = conditions[0]
    if len(conditions) > 1:
        raise conditions[1].problem("QUALIFY takes one condition; put the others in WHERE")
    cuts = [at for at in run.top() if run.kind(at) in ("EQ", "LTE", "LT")]
    if len(cuts) != 1 or len(run) != cuts[0] + 2 or not run.name(-1).isdigit():
        raise run.problem(_EXPECTED)
    side, operator, number = run.part(0, cuts[0]), run.kind(cuts[0]), int(run.items[-1].text)
    if operator == "EQ" and number != 1:
        raise run.problem("only = 1 is available; for other ranks write <= n, and filter in another statement")
    n = number - (operator == "LT")
    rank = None
    if not window_calls(side):
        name = side.name(-1).casefold()
        named = next((output for output in ranks if output.name.casefold() == name), None)
        if named is None or len(side) not in (1, 3):
            raise run.problem(_EXPECTED)
        side, rank = named.run, named.name
    elif ranks:
        if ranks[0].run.normalized != side.normalized:
            raise run.problem("the ranking differs from that in the SELECT list")
        rank = ranks[0].name
    return _over(side, n, rank)


def _over(run: Tokens, n: int, rank: str | None) -> Ranking:
    name_at, over, end = window_calls(run)[0]
    function = run.word(name_at).lower()
    if function not in RANKS or name_at != 0 or end != len(run) or run.kind(over + 1) != "L_PAREN":
        raise run.problem(_EXPECTED)
    if function != "row_number":
        raise run.problem(f"{function}() is not available in this version; use row_number(), which breaks ties by the "
                          "whole row")  # fmt: skip
    if n < 1:
        raise run.problem("expected at least one row")
    inside = run.part(over + 2, end - 1)
    cuts = {inside.kind(at): at for at in inside.top() if inside.kind(at) in ("PARTITION_BY", "ORDER_BY")}
    if "ORDER_BY" not in cuts:
        raise run.problem("ORDER BY is missing in OVER: which rows come first would not be determined")
    partition: list[Tokens] = []
    if "PARTITION_BY" in cuts:
        partition = inside.part(cuts["PARTITION_BY"] + 1, cuts["ORDER_BY"]).split("COMMA")
    for at in inside.top():
        if inside.kind(at) in ("ROWS", "RANGE") and inside.kind(at - 1) != "DOT":
            raise inside.problem("row_number() takes no frame", at)
    return Ranking(run, partition, read_order(inside.part(cuts["ORDER_BY"] + 1)), n, rank)


def read_order(run: Tokens) -> list[tuple[Tokens, bool]]:
    """Return (expression, whether it sorts descending) of an ORDER BY. Raises SqlProblem: nulls are not as in Spark."""
    order = []
    for part in run.split("COMMA"):
        nulls = part.word(len(part) - 1) if part.word(len(part) - 2) == "NULLS" else ""
        part = part.part(0, len(part) - 2) if nulls else part
        direction = part.word(len(part) - 1)
        descends = direction == "DESC"
        part = part.part(0, len(part) - 1) if direction in ("ASC", "DESC") else part
        if nulls and nulls != ("LAST" if descends else "FIRST"):
            raise part.problem("nulls are the smallest values: NULLS FIRST with ASC, NULLS LAST with DESC")
        if not len(part):
            raise run.problem("an expression is missing in ORDER BY")
        order.append((part, descends))
    return order
