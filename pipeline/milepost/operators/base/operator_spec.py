"""What every kind of operator declares: its keys in a spec, and what they mean before anything runs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from milepost.language import Aggregate, ColumnName, ColumnType, Many, OrderColumn, Path, Problem, SpecModel, StepName
from milepost.operators.base.origins import RowsLineage
from milepost.operators.base.output_rows import OutputRows
from milepost.operators.base.row_trace import RowTrace, same_names
from milepost.operators.base.state_bounds import InputMode, StateBound, growth_over_updates

REMEMBERS = "remembers"
"""Key of a signature: how long after its watermark an operator remembers keys (allowed lateness or ttl)."""
FOR_EVER = "for ever"
NOTHING = "nothing"


def distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return `names`. Raises ValueError if one occurs twice."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{twice[0]} occurs twice")
    return names


def ordered_columns(order_by: tuple[tuple[str, bool], ...]) -> tuple[str, ...]:
    """Return the columns of an order."""
    return tuple(name for name, _ in order_by)


def order_texts(order_by: tuple[tuple[str, bool], ...]) -> list[str]:
    """Return each column of an order as text: ``views desc``, ``page asc``."""
    return [f"{name} {'desc' if descends else 'asc'}" for name, descends in order_by]


def _distinct_columns(order: tuple[tuple[str, bool], ...]) -> tuple[tuple[str, bool], ...]:
    distinct(ordered_columns(order))
    return order


OrderColumns = Annotated[Many[OrderColumn], AfterValidator(_distinct_columns)]
AnyColumns = Annotated[Many[ColumnName], AfterValidator(distinct)]
KeyColumns = Annotated[Many[ColumnName], Field(min_length=1), AfterValidator(distinct)]
OneInput = Annotated[Many[StepName], Field(min_length=1, max_length=1)]
Aggregates = Annotated[dict[ColumnName, Aggregate], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class EventTimeRule:
    """How an operator treats event time, as text for the reference.

    Attributes:
        event_time: the event time of its rows.
        holds_back: how far the watermark of its rows is behind its own.
        late: condition on event time and stamp under which input rows go to `<uid>.late`.
    """

    event_time: str
    holds_back: str = NOTHING
    late: str = NOTHING


class OperatorSpec(SpecModel, ABC):
    """One operator of a job.

    The graph, compatibility checks, column lineage and reports ask these methods and never the kind of an operator.
    They parse SQL at most, and load neither Arrow nor Spark.

    Attributes:
        uid: name of the operator: `[a-z][a-z0-9_]{0,62}` without `__`, unique among sources and operators.
        inputs: names of sources and operators.
    """

    uid: StepName
    kind: str
    inputs: Many[StepName]

    event_time_rule: ClassVar[EventTimeRule]
    lifetime_key: ClassVar[str] = REMEMBERS
    """The spec key that decides how long the operator remembers keys."""

    @abstractmethod
    def output_rows(
        self, inputs: Sequence[OutputRows], path: Path, declared: Mapping[str, ColumnType] | None
    ) -> OutputRows | list[Problem]:
        """Return the rows that the operator emits, or why it cannot read its inputs.

        Args:
            inputs: rows of its inputs, in order.
            path: path of the operator in the spec, for problems.
            declared: output columns that user code declares. None: there is none, or it was not loaded.
        """

    @abstractmethod
    def lineage(self, inputs: Sequence[RowsLineage], times: Sequence[str | None]) -> RowsLineage:
        """Return what the emitted rows depend on.

        Columns that only break ties are not included: equal rows are ordered by all their columns, which would make
        every column depend on every other.

        Args:
            inputs: lineage of its inputs, in order. times: the event time column of each; None if it has none.
        """

    @abstractmethod
    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        """Return how an output row's values select the rows of its inputs that made it; see `RowTrace`.

        Args:
            inputs: columns of its inputs, in order. times: the event time column of each; None if it has none.
        """

    @property
    def key_texts(self) -> list[str]:
        """The key as signatures record it: column names, or ``left = right`` for a pair. [] without a key."""
        return []

    @property
    def dimension(self) -> str | None:
        """The static source that it reads as its second input, or None."""
        return None

    @property
    def named_columns(self) -> tuple[str, ...]:
        """Output columns that the spec names; they must be distinct."""
        return ()

    @property
    def has_late_rows(self) -> bool:
        """Whether input rows can be late, so that `<uid>.late` exists."""
        return False

    @property
    def emits_early(self) -> bool:
        """Whether every epoch emits rows that are not complete."""
        return False

    @property
    def conditions(self) -> tuple[tuple[str, str], ...]:
        """(column name, SQL condition) of each boolean column that Spark adds to its input before the exchange.

        They occur neither in the rows of the producer nor in late rows. Their names begin with "__", as all reserved
        names.
        """
        return ()


class RowWiseSpec(OperatorSpec):
    """Operators without state, which need no exchange."""

    definition_text: ClassVar[str]
    """Its definition in a message about a changed spec: "its SQL changed after checkpoint 7"."""

    @abstractmethod
    def columns_read(
        self, input_name: str, columns: Sequence[str], read_of_output: Callable[[], frozenset[str]]
    ) -> frozenset[str]:
        """Return the columns of one input that it reads, which may include columns that the input does not have.

        Args:
            columns: columns of the input.
            read_of_output: returns which columns of its own rows are read downstream.
        """

    @property
    @abstractmethod
    def definition(self) -> dict[str, Any]:
        """What its rows are made of, besides the columns of its inputs. Rows in flight downstream depend on it."""


class StatefulSpec(OperatorSpec):
    """Operators with state.

    Attributes:
        uid: name of the operator, under which its state is stored: `[a-z][a-z0-9_]{0,62}` without `__`.
        renamed_from: the uid under which earlier checkpoints store its state.
    """

    renamed_from: StepName | None = None

    lost_state: ClassVar[str]
    """The loss if an epoch discards its state, as text."""
    publishes_state: ClassVar[bool] = False
    """Whether its updates are a function of its state, so that a new sink can be filled from it."""
    can_be_bootstrapped: ClassVar[bool] = False
    """Whether its state can be read from a table with the columns of its only state table."""
    ordered_inputs: ClassVar[bool] = True
    """Whether the order and number of inputs is part of the state, so that changing it is incompatible."""
    spreads_null_keys: ClassVar[bool] = False
    """Whether rows with a null in their key are routed by all columns, so that they do not go to one subtask."""

    @abstractmethod
    def signature(self, *, retracts: bool) -> dict[str, Any]:
        """Return what the state depends on besides kind, key, inputs and event time, JSON-compatible.

        Args:
            retracts: whether state holds emitted rows, because operators read its updates.
        """

    @abstractmethod
    def state_bounds(self) -> tuple[StateBound, ...]:
        """Return the bounds of its state tables, over append rows."""

    def bounds_over_updates(
        self, input_name: str, key: Sequence[str] | None, event_time: str | None
    ) -> tuple[StateBound, ...]:
        """Return the bounds of its state tables over updates: state holds all rows that are not retracted.

        Args:
            input_name: the node that emits the updates. key: key of its rows, () for a single row, or None without a
                key. event_time: event time column of its rows, or None.
        """
        holds = f"the {'row' if key == () else 'rows'} of {input_name}"
        return (StateBound("", holds, grows_with=growth_over_updates(input_name, key)),)

    def bounds_by_input(self, inputs: Sequence[InputMode]) -> tuple[StateBound, ...]:
        """Return the bounds of its state tables over these inputs."""
        updates = [one for one in inputs if not one.is_append]
        if not updates:
            return self.state_bounds()
        return tuple(bound for one in updates for bound in self.bounds_over_updates(one.name, one.key, one.event_time))

    @property
    def update_calls(self) -> dict[str, str]:
        """Aggregate calls, as text, that determine its updates besides its key and columns: output column -> call."""
        return {}

    def output_bound(self, output_key: Sequence[str]) -> StateBound | None:
        """Return the bound of the table of emitted rows, which it has if operators read its updates; None: no table."""
        return None

    def needed_columns(self, columns: Sequence[str], event_time: str | None) -> frozenset[str] | None:
        """Return the input columns that it needs, or None for all of them.

        Args:
            columns: columns of its input. event_time: event time column of its input, or None.
        """
        return None

    @abstractmethod
    def state_columns(self) -> list[tuple[str, list[str]]]:
        """Return, per input, the state table that records its column types and the columns that the operator reads."""

    @property
    def uses_watermark(self) -> bool:
        """Whether watermarks decided the contents of its state: which rows were late, and which windows have fired."""
        return self.has_late_rows

    def holds_event_times(self, event_time: str | None) -> bool:
        """Return whether state contains event times or depends on them.

        Args:
            event_time: event time column of the (left) input, or None.
        """
        return self.has_late_rows


class KeyedOperator(StatefulSpec):
    """Stateful operators with one input.

    Attributes:
        inputs: name of one source or operator. Its rows must be append, not updates.
        key: key columns, each once.
    """

    inputs: OneInput
    key: KeyColumns

    def row_traces(self, inputs: Sequence[Sequence[str]], times: Sequence[str | None]) -> tuple[RowTrace, ...]:
        return (RowTrace(0, same_names(self.key)),)

    @property
    def key_texts(self) -> list[str]:
        return list(self.key)

    def state_columns(self) -> list[tuple[str, list[str]]]:
        return [("", list(self.key))]

    @property
    def named_columns(self) -> tuple[str, ...]:
        return self.key
