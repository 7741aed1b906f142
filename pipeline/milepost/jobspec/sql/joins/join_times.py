"""Read the event time conditions of a join."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from milepost.jobspec.sql.emit import Column, Emitter
from milepost.jobspec.sql.joins.sides import Frame
from milepost.jobspec.sql.names import Bound, Scope, read_bounds
from milepost.jobspec.sql.text import Fragment, Tokens, digest, duration_text
from milepost.language.sql import quote
from milepost.operators.base import APPEND
from milepost.operators.join import RowBound


@dataclass(frozen=True, slots=True)
class Within:
    """Time bounds of a join.

    Attributes:
        bounds: as in `within`. runs: offsets of the conditions that state nothing but these bounds.
        is_of_row: whether the upper bound is a left column. computed: that column, if a step before the join adds it.
    """

    # b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR   0s, 1h
    # b.at BETWEEN a.at AND a.expires                0s, expires - at
    # b.at >= a.at AND b.at < a.expires              0s, bound_1c9e3a57 - at, which is `expires` less a microsecond
    bounds: tuple[str, str]
    runs: frozenset[int]
    is_of_row: bool = False
    computed: Column | None = None


@dataclass(frozen=True, slots=True)
class _Stated:
    """What one condition states of the right event time: constant bounds, and an upper one that is a left column.

    Attributes:
        of_row: (left column, milliseconds after it, whether the bound is before that).
    """

    run: Tokens
    constant: list[Bound]
    of_row: tuple[str, int, bool] | None


def read_within(
    emitter: Emitter, scope: Scope, frame: Frame, index: int, conditions: Sequence[Tokens]
) -> Within | None:
    """Return the bounds on the right event time, or None: rows match whatever their time."""
    relation = scope.relations[index]
    rows = emitter.read(frame.node), emitter.read(relation.node)
    if any(one.kind != APPEND or one.event_time is None for one in rows) or rows[0].shift_us != rows[1].shift_us:
        return None
    found = [one for run in conditions if (one := _stated(emitter, scope, frame, index, run)) is not None]
    constant = [bound for one in found for bound in one.constant]
    lows = [bound.low for bound in constant if bound.low is not None]
    highs = [bound.high for bound in constant if bound.high is not None]
    if lows and highs:
        if max(lows) > min(highs):
            raise relation.item.keyword.problem("the time bounds of this join exclude each other: no rows could match")
        runs = frozenset(one.run.start for one in found if one.of_row is None)
        return Within((duration_text(max(lows)), duration_text(min(highs))), runs)
    return None if not lows or rows[0].shift_us else _of_row(emitter, rows[0].event_time, max(lows), found)


def _stated(emitter: Emitter, scope: Scope, frame: Frame, index: int, run: Tokens) -> _Stated | None:
    """Return what a condition states of the right event time; None: it is another condition."""
    times = emitter.read(frame.node).event_time, emitter.read(scope.relations[index].node).event_time
    bounds = read_bounds(run, index, scope.resolve)
    if not bounds or any(bound.right[1] != times[1] for bound in bounds):
        return None
    constant = [bound for bound in bounds if frame.name(bound.left) == times[0]]
    of_row = None
    for bound in bounds:
        if bound in constant:
            continue
        name = frame.name(bound.left)
        type_ = emitter.derived.type_of(frame.node, name)
        if bound.high is None or type_ is None or type_.kind != "timestamp":
            return None
        of_row = name, bound.high, bound.is_strict
    if any(bound.is_strict for bound in constant):
        raise run.problem("a bound of a join includes its end; write <= or >=, or BETWEEN")
    return _Stated(run, constant, of_row)


def _of_row(emitter: Emitter, event_time: str | None, low: int, found: Sequence[_Stated]) -> Within | None:
    """Return bounds of which the upper one is a left column: of several the first by name."""
    stated = [(one.of_row, one.run.start) for one in found if one.of_row is not None]
    if not stated:
        return None
    first, at = min(stated)
    name, later_ms, is_strict = first
    runs = frozenset(one.run.start for one in found if one.of_row in (None, first))
    computed = None
    if later_ms or is_strict:
        later_us = later_ms * 1000 - is_strict
        text = f"{quote(name)} {'-' if later_us < 0 else '+'} INTERVAL {abs(later_us)} MICROSECONDS"
        computed = Column(f"bound_{digest([text])}", Fragment(((text, at),)))
        emitter.labels[computed.name] = f"{name} + {duration_text(later_ms)}" if later_ms else name
    bound = RowBound(computed.name if computed else name, str(event_time))
    return Within((duration_text(low), str(bound)), runs, is_of_row=True, computed=computed)


def reversed_bound(
    emitter: Emitter, scope: Scope, frame: Frame, index: int, conditions: Sequence[Tokens]
) -> str | None:
    """Return the right column that would be an upper bound if the right relation were the left one, or None."""
    # FROM bid b JOIN auction a ON b.auction = a.id AND b.at BETWEEN a.at AND a.expires   ->  expires
    relation = scope.relations[index]
    times = emitter.read(frame.node).event_time, emitter.read(relation.node).event_time
    found, is_bounded = None, False
    for run in conditions:
        for bound in read_bounds(run, index, scope.resolve):
            if frame.name(bound.left) == times[0] and bound.right[1] == times[1]:
                is_bounded |= bound.high is not None
            elif frame.name(bound.left) == times[0] and bound.low is not None:
                type_ = emitter.derived.type_of(relation.node, bound.right[1])
                found = bound.right[1] if type_ is not None and type_.kind == "timestamp" else found
    is_append = all(emitter.read(node).kind == APPEND for node in (frame.node, relation.node))
    return found if is_append and is_bounded else None


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
