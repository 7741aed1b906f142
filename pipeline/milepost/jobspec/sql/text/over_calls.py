"""Read functions with OVER, and the order of rows."""

from __future__ import annotations

from dataclasses import dataclass

from milepost.jobspec.sql.text.expressions import window_calls
from milepost.jobspec.sql.text.tokens import Tokens
from milepost.operators.over import FUNCTIONS, MOST_ROWS, NEIGHBOURS, RANKS, OverCall, RowFrame, parse_frame

OVER = {
    **{name: name for name in FUNCTIONS},
    "mean": "avg",
    "first": "first_value",
    "last": "last_value",
}
"""Function of Spark SQL with OVER -> the function of an `over` operator, for the compiler and the reference."""

SPLIT_QUERY = "put the {} into a common table expression, and write OVER in a query that reads it"
"""Refusal of a clause or call next to a function with OVER."""


@dataclass(frozen=True, slots=True)
class Over:
    """One call of a function with OVER.

    Attributes:
        tokens: from its name to the bracket that closes OVER. function: as in an `over` operator.
        argument: None for ranks and `count(*)`. distance: of lag and lead.
        order: (expression, whether it sorts descending).
    """

    tokens: Tokens
    function: str
    argument: Tokens | None
    distance: int
    partition: list[Tokens]
    order: list[tuple[Tokens, bool]]
    frame: RowFrame | None

    @property
    def partition_and_order(self) -> tuple[object, ...]:
        """PARTITION BY and ORDER BY, comparable with those of another call."""
        order = tuple((run.normalized, descends) for run, descends in self.order)
        return tuple(sorted(run.normalized for run in self.partition)), order

    @property
    def expressions(self) -> list[Tokens]:
        """The expressions that the call reads."""
        argument = [] if self.argument is None else [self.argument]
        return [*argument, *self.partition, *(run for run, _ in self.order)]


def read_over(run: Tokens) -> list[Over]:
    """Return the calls with OVER in an expression. Raises SqlProblem: one is not available in this version."""
    for at in range(len(run)):
        if run.kind(at) == "OVER" and run.word(at - 1) == "NULLS":
            raise run.problem("IGNORE NULLS is not available in this version", at - 2)
    return [_read(run, *place) for place in window_calls(run)]


def _read(run: Tokens, name_at: int, over: int, end: int) -> Over:
    name = run.word(name_at).lower()
    if run.kind(name_at) == "FILTER":
        raise run.problem("Spark has no FILTER with OVER; write CASE WHEN condition THEN value END", name_at)
    if name not in OVER:
        raise run.problem(f"{name} with OVER is not available in this version; available: {', '.join(OVER)}", name_at)
    if run.kind(over + 1) != "L_PAREN":
        raise run.problem("a named window is not available in this version; write OVER (…) in full", over)
    if not _is_expression(run, name_at):
        raise run.problem(f"expected {name}(…) OVER (…)", name_at)
    function, whole = OVER[name], run.part(name_at, end)
    argument, distance = _arguments(function, run.part(name_at + 2, over - 1), whole)
    inside = run.part(over + 2, end - 1)
    cuts = {inside.kind(at): at for at in inside.top() if inside.kind(at) in ("PARTITION_BY", "ORDER_BY")}
    frame_at = next((at for at in inside.top() if _begins_frame(inside, at)), len(inside))
    order_at = cuts.get("ORDER_BY", frame_at)
    partition = inside.part(cuts["PARTITION_BY"] + 1, order_at).split("COMMA") if "PARTITION_BY" in cuts else []
    order = read_order(inside.part(order_at + 1, frame_at)) if "ORDER_BY" in cuts else []
    frame = _frame(function, inside.part(frame_at)) if frame_at < len(inside) else None
    call = Over(whole, function, argument, distance, partition, order, frame)
    for expression in call.expressions:
        if len(expression) == 1 and expression.kind(0) == "NUMBER" and expression is not argument:
            raise expression.problem("a number in OVER is a constant, not a position; write the expression")
        if window_calls(expression):
            raise expression.problem(SPLIT_QUERY.format("inner function with OVER"))
    if not order and OverCall(function, frame=frame).needs_order:
        raise whole.problem("ORDER BY is missing in OVER: which rows come first would not be determined")
    return call


def _is_expression(run: Tokens, name_at: int) -> bool:
    return name_at >= 0 and run.kind(name_at + 1) == "L_PAREN" and run.kind(name_at - 1) != "DOT"


def _begins_frame(inside: Tokens, at: int) -> bool:
    is_word = inside.word(at) in ("ROWS", "RANGE", "GROUPS") and inside.kind(at - 1) != "DOT"
    return is_word and (inside.word(at + 1) in ("BETWEEN", "UNBOUNDED", "CURRENT") or inside.kind(at + 1) == "NUMBER")


def _arguments(function: str, inside: Tokens, call: Tokens) -> tuple[Tokens | None, int]:
    """Return the argument, None for ranks and `count(*)`, and the distance of lag and lead."""
    if inside.kind(0) == "DISTINCT":
        raise inside.problem("Spark has no DISTINCT with OVER; aggregate over SELECT DISTINCT")
    arguments = inside.split("COMMA") if len(inside) else []
    if function in RANKS:
        if arguments:
            raise inside.problem(f"{function} takes no arguments, got {len(arguments)}")
        return None, 1
    if function in NEIGHBOURS:
        if len(arguments) == 3:
            frame = "" if function == "lag" else " ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
            place = f"{'row_number()' if function == 'lag' else 'count(*)'} OVER (…{frame}) <= {arguments[1].text}"
            raise arguments[2].problem(f"a default of {function} is not available in this version; write CASE WHEN "
                                       f"{place} THEN default ELSE {function}(…) OVER (…) END")  # fmt: skip
        distance = arguments[1].name() if len(arguments) == 2 and len(arguments[1]) == 1 else "1"
        if not 1 <= len(arguments) <= 2 or not distance.isdigit() or (len(arguments) == 2 and len(arguments[1]) > 1):
            raise call.problem(f"expected {function}(value) or {function}(value, number of rows)")
        if len(distance) > len(str(MOST_ROWS)):
            raise arguments[1].problem(f"a distance of {function} is at most {MOST_ROWS:,} rows")
        return arguments[0], int(distance)
    if len(arguments) != 1:
        raise call.problem(f"{function} takes 1 argument, got {len(arguments)}")
    is_count_of_rows = function == "count" and arguments[0].kind(0) in ("STAR", "NUMBER") and len(arguments[0]) == 1
    return (None if is_count_of_rows else arguments[0]), 1


def _frame(function: str, run: Tokens) -> RowFrame:
    if function in (*RANKS, *NEIGHBOURS):
        raise run.problem(f"{function}() takes no frame")
    if run.word(0) != "ROWS":
        message = f"a frame of {run.word(0)} is not available in this version; write ROWS BETWEEN …, or no frame: then "
        raise run.problem(f"{message}all rows up to those that tie with the current one count")
    try:
        return parse_frame(" ".join(str(token.text) for token in run.items))
    except ValueError as problem:
        raise run.problem(str(problem)) from None


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
