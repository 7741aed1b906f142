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
        is_of_row: whether a bound is a left column. computed: such columns that a step before the join adds.
    """

    # b.at BETWEEN a.at AND a.at + INTERVAL 1 HOUR   0s, 1h
    # b.at BETWEEN a.at AND a.expires                0s, expires - at
    # b.at >= a.at AND b.at < a.expires              0s, bound_1c9e3a57 - at, which is `expires` less a microsecond
    # LEFT JOIN b ON b.at >= a.at AND b.at >= a.opens AND b.at <= a.at + INTERVAL 1 HOUR     [0s, opens - at], 1h
    bounds: tuple[str | list[str], str | list[str]]
    runs: frozenset[int]
    is_of_row: bool = False
    computed: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True)
class _Stated:
    """What one condition states of the right event time: constant bounds, and bounds that are left columns.

    Attributes:
        lower, upper: (left column, milliseconds after it, whether that moment itself does not match).
    """

    run: Tokens
    constant: list[Bound]
    lower: tuple[str, int, bool] | None
    upper: tuple[str, int, bool] | None

    @property
    def is_of_row(self) -> bool:
        return self.lower is not None or self.upper is not None


def read_within(
    emitter: Emitter, scope: Scope, frame: Frame, index: int, conditions: Sequence[Tokens], how: str
) -> Within | None:
    """Return the bounds on the right event time, or None: rows match whatever their time.

    Left columns that only narrow constant bounds filter the pairs of an inner join. Other joins take them as bounds.
    """
    relation = scope.relations[index]
    rows = emitter.read(frame.node), emitter.read(relation.node)
    if any(one.kind != APPEND or one.event_time is None for one in rows) or rows[0].shift_us != rows[1].shift_us:
        return None
    found = [one for run in conditions if (one := _stated(emitter, scope, frame, index, run)) is not None]
    constant = [bound for one in found for bound in one.constant]
    low = max((bound.low for bound in constant if bound.low is not None), default=None)
    high = min((bound.high for bound in constant if bound.high is not None), default=None)
    if low is None:
        return None
    if high is not None and low > high:
        raise relation.item.keyword.problem("the time bounds of this join exclude each other: no rows could match")
    if not rows[0].shift_us:
        return _bounds_of_row(emitter, rows[0].event_time, (low, high), found, how)
    return None if high is None else _constants(low, high, found)


def _stated(emitter: Emitter, scope: Scope, frame: Frame, index: int, run: Tokens) -> _Stated | None:
    """Return what a condition states of the right event time; None: it is another condition."""
    times = emitter.read(frame.node).event_time, emitter.read(scope.relations[index].node).event_time
    bounds = read_bounds(run, index, scope.resolve)
    if not bounds or any(bound.right[1] != times[1] for bound in bounds):
        return None
    constant = [bound for bound in bounds if frame.name(bound.left) == times[0]]
    lower = upper = None
    for bound in bounds:
        if bound in constant:
            continue
        name = frame.name(bound.left)
        type_ = emitter.derived.type_of(frame.node, name)
        if type_ is None or type_.kind != "timestamp":
            return None
        if bound.high is not None:
            upper = name, bound.high, bound.is_strict
        elif bound.low is not None:
            lower = name, bound.low, bound.is_strict
    if any(bound.is_strict for bound in constant):
        raise run.problem("a bound of a join includes its end; write <= or >=, or BETWEEN")
    return _Stated(run, constant, lower, upper)


def _constants(low: int, high: int, found: Sequence[_Stated]) -> Within:
    runs = frozenset(one.run.start for one in found if not one.is_of_row)
    return Within((duration_text(low), duration_text(high)), runs)


def _bounds_of_row(
    emitter: Emitter,
    event_time: str | None,
    constants: tuple[int, int | None],
    found: Sequence[_Stated],
    how: str,
) -> Within | None:
    """Return bounds of which at least one is a left column, of several the first by name; otherwise constant ones.

    A lower bound that is a column has a constant one as well, which bounds the state of the right side.
    """
    low, high = constants
    lowers = [(one.lower, one.run.start) for one in found if one.lower is not None and how != "inner"]
    uppers = [(one.upper, one.run.start) for one in found if one.upper is not None and (how != "inner" or high is None)]
    if not lowers and not uppers:
        return None if high is None else _constants(low, high, found)
    if high is None and not uppers:
        return None
    chosen = [min(stated, default=None) for stated in (lowers, uppers)]
    bounds: list[str | list[str]] = []
    computed: list[Column] = []
    for constant, one, is_upper in zip(constants, chosen, (False, True), strict=True):
        texts = [] if constant is None else [duration_text(constant)]
        if one is not None:
            column, steps = _bound_column(emitter, *one, is_upper=is_upper)
            computed += steps
            texts.append(str(RowBound(column, str(event_time))))
        bounds.append(texts if len(texts) > 1 else texts[0])
    taken = [None if one is None else one[0] for one in chosen]
    runs = frozenset(one.run.start for one in found if one.lower in (None, taken[0]) and one.upper in (None, taken[1]))
    return Within((bounds[0], bounds[1]), runs, is_of_row=True, computed=tuple(computed))


def _bound_column(
    emitter: Emitter, stated: tuple[str, int, bool], at: int, *, is_upper: bool
) -> tuple[str, list[Column]]:
    """Return the left column of a bound, which includes its end, and the column to compute if it is none."""
    name, later_ms, is_strict = stated
    if not later_ms and not is_strict:
        return name, []
    later_us = later_ms * 1000 + (-is_strict if is_upper else is_strict)
    text = f"{quote(name)} {'-' if later_us < 0 else '+'} INTERVAL {abs(later_us)} MICROSECONDS"
    column = Column(f"bound_{digest([text])}", Fragment(((text, at),)))
    emitter.labels[column.name] = f"{name} + {duration_text(later_ms)}" if later_ms else name
    return column.name, [column]


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
