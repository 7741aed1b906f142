"""What the state of each kind of operator holds, and what bounds it.

There is one function per kind. A test fails for a kind without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import singledispatch

from milepost.jobspec.job.operators.asof import AsofOperator
from milepost.jobspec.job.operators.join import JoinOperator
from milepost.jobspec.job.operators.latest import LatestOperator
from milepost.jobspec.job.operators.lookup import LookupOperator
from milepost.jobspec.job.operators.process import ProcessOperator
from milepost.jobspec.job.operators.top import TopOperator
from milepost.jobspec.job.operators.window import length_text
from milepost.jobspec.job.spec import (
    AggregateOperator,
    DeduplicateOperator,
    RowWiseSpec,
    SqlOperator,
    StatefulSpec,
    WindowOperator,
)
from milepost.language import AggregateCall
from milepost.language.times import format_duration


@dataclass(frozen=True, slots=True)
class StateBound:
    """What one table of an operator's state holds, and for how long.

    Attributes:
        table: name of the table; "" if the operator has only one.
        holds: description of its rows.
        until: condition under which a row is removed, where W is the time up to which the operator has fired; None:
            never.
        grows_with: what the table grows with without bound; None: it is bounded.
    """

    table: str
    holds: str
    until: str | None = None
    grows_with: str | None = None

    @property
    def text(self) -> str:
        """The bound as text."""
        if self.grows_with is not None:
            return f"grows without bound with: {self.grows_with}"
        return "bounded" if self.until is None else f"bounded: until {self.until}"


@singledispatch
def state_bounds(operator: RowWiseSpec | StatefulSpec) -> tuple[StateBound, ...]:
    """Return the bounds of an operator's state tables; () for an operator without state."""
    raise NotImplementedError(f"jobspec/graph/state_rules.py: add a rule for the state of kind: {operator.kind}")


@state_bounds.register
def _sql(operator: SqlOperator) -> tuple[StateBound, ...]:
    return ()


@state_bounds.register
def _lookup(operator: LookupOperator) -> tuple[StateBound, ...]:
    return ()


@state_bounds.register
def _aggregate(operator: AggregateOperator) -> tuple[StateBound, ...]:
    values = [
        replace(_per_key(f"a value of {call.column}", operator.key), table=table, grows_with=f"distinct {call.column}")
        for table, call in _value_tables(operator)
    ]
    return (_per_key("a row", operator.key), *values)


def _value_tables(operator: AggregateOperator | WindowOperator) -> Iterator[tuple[str, AggregateCall]]:
    """Yield the (table, call) of distinct counts; calls that share a table occur once."""
    tables = {call.value_table: call for call in operator.aggregates.values() if call.value_table is not None}
    yield from tables.items()


@state_bounds.register
def _top(operator: TopOperator) -> tuple[StateBound, ...]:
    return (_per_key(f"at most {operator.n:,} rows", operator.key),)


@state_bounds.register
def _latest(operator: LatestOperator) -> tuple[StateBound, ...]:
    key, ttl = _joined(operator.key), operator.tombstone_ttl
    if operator.delete_when is None:
        return (_per_key("a row", operator.key),)
    if ttl is None:
        holds = f"a row per {key}, including deleted ones"
        return (StateBound("", holds, grows_with=f"distinct {key}, including deleted ones"),)
    holds = f"a row per {key}; a deleted one until event time{_plus(ttl)} < W"
    return (StateBound("", holds, grows_with=f"distinct {key} that are not deleted"),)


@state_bounds.register
def _window(operator: WindowOperator) -> tuple[StateBound, ...]:
    windows, lateness = operator.window, _plus(operator.allowed_lateness)
    per_key = f" and {_joined(operator.key)}" if operator.key else ""
    if windows.session is not None:
        until = f"its last event time{_plus(windows.session.gap)}{lateness} ≤ W"
        return _of_windows(operator, f"session that may grow{per_key}", until)
    if windows.sliding is not None:
        until = f"start of the pane + {length_text(windows.sliding.size)}{lateness} ≤ W"
        return _of_windows(operator, f"pane of {length_text(windows.sliding.slide)}{per_key}", until)
    return _of_windows(operator, f"window{per_key}", f"window_end{lateness} ≤ W")


def _of_windows(operator: WindowOperator, what: str, until: str) -> tuple[StateBound, ...]:
    values = [
        StateBound(table, f"a value of {call.column} per {what}", until) for table, call in _value_tables(operator)
    ]
    return (StateBound("", f"a row per {what}", until), *values)


@state_bounds.register
def _deduplicate(operator: DeduplicateOperator) -> tuple[StateBound, ...]:
    if operator.ttl is None:
        return (_per_key("a key", operator.key),)
    return (StateBound("", f"a key per {_joined(operator.key)}", f"event time{_plus(operator.ttl)} < W"),)


@state_bounds.register
def _join(operator: JoinOperator) -> tuple[StateBound, ...]:
    low, high = operator.bounds
    unmatched = " without a match so far" if operator.how in ("semi", "anti") else ""
    return (
        StateBound("left", f"rows of {operator.inputs[0]}{unmatched}", f"event time{_plus(high)} < W"),
        StateBound("right", f"rows of {operator.inputs[1]}", f"event time{_plus(-low)} < W"),
    )


@state_bounds.register
def _asof(operator: AsofOperator) -> tuple[StateBound, ...]:
    rows, versions = operator.inputs
    key = _joined([right for _, right in operator.key])
    return (
        StateBound("left", f"rows of {rows}", "event time < W"),
        StateBound(
            "right",
            f"the newest row of {versions} per {key}, and older ones until event time of the next one ≤ W",
            grows_with=f"distinct {key}",
        ),
    )


@state_bounds.register
def _process(operator: ProcessOperator) -> tuple[StateBound, ...]:
    grows_with = f"distinct {_joined(operator.key)}, except those that {operator.function} clears"
    return (StateBound("", f"the state of {operator.function} per {_joined(operator.key)}", grows_with=grows_with),)


def bounds_over_updates(
    operator: RowWiseSpec | StatefulSpec, name: str, key: Sequence[str] | None, event_time: str | None
) -> tuple[StateBound, ...]:
    """Return the bounds of an operator's state over updates: it holds all rows that are not retracted.

    Args:
        name: the node that emits the updates. key: key of its rows, or None. event_time: of its rows, or None.
    """
    grows_with = f"distinct {_joined(key)} of {name}" if key else f"rows of {name}" if key is None else None
    if not isinstance(operator, AggregateOperator):
        return (StateBound("", f"the {'row' if key == () else 'rows'} of {name}", grows_with=grows_with),)
    calls = [call.timed(event_time) for call in operator.aggregates.values()]
    tables = {call.weighted_table: call for call in calls if call.weighted_table is not None}
    values = [
        StateBound(table, _per_key(f"a value of {_with_order(call)}", operator.key).holds, grows_with=grows_with)
        for table, call in tables.items()
    ]
    return (_per_key("a row", operator.key), *values)


def _with_order(call: AggregateCall) -> str:
    return f"{call.column} with {call.by}" if call.by is not None else str(call.column)


OUTPUT_TABLE = "output"
"""The table of rows that an operator has emitted, if it has to retract them."""


def bound_of_output(operator: WindowOperator | ProcessOperator, output_key: Sequence[str]) -> StateBound:
    """Return the bound of the output table of an operator whose updates other operators read."""
    if isinstance(operator, WindowOperator):
        return StateBound(OUTPUT_TABLE, "emitted windows", f"window_end{_plus(operator.allowed_lateness)} ≤ W")
    grows_with = f"distinct {_joined(output_key)}, except those that {operator.function} deletes"
    return StateBound(OUTPUT_TABLE, "emitted rows", grows_with=grows_with)


def _per_key(what: str, key: Sequence[str]) -> StateBound:
    if not key:
        return StateBound("", f"{what} in total")
    return StateBound("", f"{what} per {_joined(key)}", grows_with=f"distinct {_joined(key)}")


def _joined(key: Sequence[str]) -> str:
    return ", ".join(key)


def _plus(value: timedelta) -> str:
    """Return ` + 5m` or ` − 5m`, and "" for zero."""
    if not value:
        return ""
    return f" + {format_duration(value)}" if value > timedelta(0) else f" − {format_duration(-value)}"
