"""Read the event time conditions of a join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.jobspec.sql.emit import Emitter
from milepost.jobspec.sql.joins.sides import Frame
from milepost.jobspec.sql.names import Scope, read_bounds
from milepost.jobspec.sql.text import Tokens, duration_text
from milepost.operators.base import APPEND


@dataclass(frozen=True, slots=True)
class Within:
    """Constant time bounds of a join, and the offsets of the conditions that state them."""

    bounds: tuple[str, str]
    runs: frozenset[int]


def read_within(
    emitter: Emitter, scope: Scope, frame: Frame, index: int, conditions: Sequence[Tokens]
) -> Within | None:
    """Return the constant bounds on the event times of both sides, or None: rows match whatever their time."""
    relation = scope.relations[index]
    rows = emitter.read(frame.node), emitter.read(relation.node)
    if any(one.kind != APPEND or one.event_time is None for one in rows) or rows[0].shift_us != rows[1].shift_us:
        return None
    low: list[int] = []
    high: list[int] = []
    runs: dict[int, Tokens] = {}
    for run in conditions:
        bounds = read_bounds(run, index, scope.resolve)
        times = {(frame.name(bound.left), bound.right[1]) for bound in bounds}
        if times == {(rows[0].event_time, rows[1].event_time)}:
            low += [bound.low for bound in bounds if bound.low is not None]
            high += [bound.high for bound in bounds if bound.high is not None]
            runs[run.start] = run
            if any(bound.is_strict for bound in bounds):
                raise run.problem("a bound of a join includes its end; write <= or >=, or BETWEEN")
    if not (low and high):
        return None
    if max(low) > min(high):
        raise relation.item.keyword.problem("the time bounds of this join exclude each other: no rows could match")
    return Within((duration_text(max(low)), duration_text(min(high))), frozenset(runs))


def check_match(emitter: Emitter, scope: Scope, frame: Frame, index: int) -> None:
    """Raise SqlProblem if the MATCH_CONDITION of an ASOF join does not compare the event times."""
    relation = scope.relations[index]
    match = relation.item.match
    times = emitter.read(frame.node).event_time, emitter.read(relation.node).event_time
    expected = f"expected MATCH_CONDITION (left.{times[0] or 'time'} >= {relation.alias}.{times[1] or 'time'}): "
    if match is None:
        raise relation.item.keyword.problem(expected + "the event times of both sides")
    bounds = read_bounds(match, index, scope.resolve)
    same = emitter.read(frame.node).shift_us == emitter.read(relation.node).shift_us
    fits = same and len(bounds) == 1 and bounds[0].high == 0 and not bounds[0].is_strict
    if not fits or (frame.name(bounds[0].left), bounds[0].right[1]) != times:
        raise match.problem(expected + "the event times of both sides")
