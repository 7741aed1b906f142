"""What the specs of all sources share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from milepost.jobspec.job.event_time_spec import EventTime
from milepost.jobspec.job.sources.messages import MessageLayout
from milepost.language import ColumnType, Duration, PositiveDuration, SpecModel


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """How the rows of a source are stored in its objects.

    Attributes:
        format: the format whose reader reads an object.
        options: options of that reader.
        optional_columns: columns that an object may lack.
        partitions: columns that are taken from an object's key.
        messages: how its rows are made of the messages that the objects hold; None: they hold the rows.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    optional_columns: tuple[str, ...] = ()
    partitions: Mapping[str, ColumnType] = field(default_factory=dict)
    messages: MessageLayout | None = None


@dataclass(frozen=True, slots=True)
class BadRecordRules:
    """How many unreadable records of a source become dead letters. The attributes are the spec's keys.

    Attributes:
        includes_objects: whether an object that cannot be read at all becomes a dead letter.
    """

    includes_objects: bool
    max_bad_records: int | None
    max_bad_ratio: float | None
    min_rows: int


class SourceSpec(SpecModel, ABC):
    """One source of a job.

    The graph, planning and reports use these properties. Only code that lists objects knows a source as files.

    Attributes:
        event_time: the column that holds the event time: its name if it is a timestamp or a date, or a mapping that
            says how to read it as a time. null: no event time, and no watermark.
        watermark_delay: how far the watermark stays behind the newest event time read. Needs `event_time`.
        max_event_time_ahead: a row whose event time is further ahead of the epoch's trigger time is processed but does
            not advance the watermark. null: every row advances it. Needs `event_time`.
        idle_timeout: a source without new input for this long no longer holds back operators that also read other
            sources. When it produces rows again, those are late for windows that were emitted in the meantime. Needs
            `event_time`. null: it holds them back indefinitely.
        expect_every: how long the source may receive nothing before it counts as overdue: `status` then exits with 6,
            and `run`, `show` and the Checkpoints page report it. They also report a source that has never received
            anything. null: no expectation.
    """

    is_landed: ClassVar[bool] = False
    """Whether `milepost land` appends its rows to a log, which epochs read."""

    format: str
    event_time: EventTime | None = None
    watermark_delay: Duration = timedelta(0)
    max_event_time_ahead: Duration | None = timedelta(days=7)
    idle_timeout: PositiveDuration | None = None
    expect_every: PositiveDuration | None = None

    if TYPE_CHECKING:  # a field where the spec declares the columns; pydantic cannot replace a property by a field

        @property
        @abstractmethod
        def columns(self) -> Mapping[str, ColumnType]:
            """The columns of the source's rows as they are stored, by name, without those of an object's key."""

    @property
    @abstractmethod
    def identity(self) -> dict[str, str]:
        """What a position in the source refers to. After a change, recorded positions mean something else."""

    @property
    @abstractmethod
    def layout(self) -> ObjectLayout:
        """How its rows are stored in the objects that an epoch reads."""

    @property
    @abstractmethod
    def location(self) -> str:
        """Where its rows come from, as messages show it."""

    @property
    def connection_texts(self) -> dict[tuple[str, ...], str]:
        """Texts that may refer to environment variables, by their path below the source."""
        return {}

    def with_connection_texts(self, texts: Mapping[tuple[str, ...], str]) -> Self:
        """Return the spec with other values of its `connection_texts`."""
        return self

    @property
    def dataset(self) -> tuple[str, str] | None:
        """Namespace and name of the external data set in OpenLineage events. None: it is named by its location."""
        return None

    @property
    def starts_at_latest(self) -> bool:
        """Whether the first epoch only records what exists, and reads nothing of it."""
        return False

    @property
    def is_static(self) -> bool:
        """Whether it is a lookup table, not a stream."""
        return False

    @property
    def bad_record_rules(self) -> BadRecordRules | None:
        """Which unreadable records go to `<source>.bad`. None: that output does not exist."""
        return None

    @property
    def indivisible_reason(self) -> str | None:
        """The setting that forces one reader per object. None: several readers share a large object."""
        return None

    @property
    def skips_missing(self) -> bool:
        """Whether an epoch skips a planned object that is deleted before it is read."""
        return False

    @property
    def time_column(self) -> str | None:
        """The event time column, or None."""
        return None if self.event_time is None else self.event_time.column

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of its rows, in order. A name that occurs twice is a problem of the spec."""
        return (*self.columns, *self.layout.partitions)

    @property
    def declared_types(self) -> dict[str, ColumnType]:
        """The columns of the rows as they are declared, then the columns from an object's key."""
        return {**self.columns, **self.layout.partitions}

    @property
    def row_types(self) -> dict[str, ColumnType]:
        """As `declared_types`, with the event time as a timestamp."""
        types = self.declared_types
        if self.event_time is not None and self.event_time.column in self.columns:
            types[self.event_time.column] = self.event_time.type_of(self.columns[self.event_time.column])
        return types
