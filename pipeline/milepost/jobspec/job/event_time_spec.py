"""The `event_time` key of a source."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    WrapSerializer,
)
from pydantic.json_schema import JsonSchemaValue

from milepost.language import INTEGERS, ColumnName, ColumnType, SpecModel
from milepost.language.times import parse_pattern, zone_data

_TIMESTAMP = ColumnType("timestamp", unit="us", utc=True)


def _zone(name: str) -> str:
    zone_data(name)
    return name


def _pattern(text: str) -> str:
    parse_pattern(text)
    return text


class EventTimeSpec(SpecModel):
    """The event time column of a source, and how its values are read as times.

    Attributes:
        column: a column of `schema`: a timestamp, a date (midnight), a whole number with `unit`, or a string with
            `format`. Operators and sinks see it as timestamp[us, UTC], unless it is a timestamp that is in UTC already
            or has no `timezone`. A value that cannot be read as a time makes the record a bad record.
        unit: unit of whole numbers, counted from 1970-01-01T00:00Z: s, ms or us.
        format: pattern of strings, in Spark's pattern letters: `dd.MM.yyyy HH:mm`.
        timezone: time zone of dates, of timestamps without a zone and of strings without an offset, such as
            Europe/Berlin. null: UTC.
    """

    column: ColumnName
    unit: Literal["s", "ms", "us"] | None = None
    format: Annotated[str, AfterValidator(_pattern)] | None = None
    timezone: Annotated[str, AfterValidator(_zone)] | None = None

    @property
    def is_column_alone(self) -> bool:
        """Whether only the column name is given."""
        return self.unit is None and self.format is None and self.timezone is None

    @property
    def reading(self) -> str | dict[str, str]:
        """The canonical form for comparison: `timezone: UTC` equals no time zone."""
        parts = {"unit": self.unit, "format": self.format, "timezone": self.timezone}
        given = {key: text for key, text in parts.items() if text is not None and (key, text) != ("timezone", "UTC")}
        return {"column": self.column, **given} if given else self.column

    def type_of(self, declared: ColumnType) -> ColumnType:
        """Return the column's type in the source's rows, given its type in `schema`."""
        if declared.kind == "timestamp" and (declared.utc or self.timezone is None):
            return declared
        return _TIMESTAMP

    def problem(self, declared: ColumnType) -> tuple[str | None, str] | None:
        """Return (key at fault, message) for a column of this type, or None if it is valid.

        The key is None when the column itself is at fault.
        """
        kind = "integer" if declared.kind in INTEGERS else declared.kind
        if kind not in ("timestamp", "date", "integer", "string"):
            expected = "a timestamp, a date, a whole number with `unit`, or a string with `format`"
            return None, f"{self.column} is {declared}; an event time is {expected}"
        if kind == "integer" and self.unit is None:
            return None, f"{self.column} is {declared}: give its unit, {{column: {self.column}, unit: ms}}"
        if kind == "string" and self.format is None:
            form = f'{{column: {self.column}, format: "dd.MM.yyyy HH:mm"}}'
            return None, f"{self.column} is {declared}: declare it as a timestamp, or give its format, {form}"
        if self.unit is not None and kind != "integer":
            return "unit", f"{self.column} is {declared}; `unit` applies only to whole numbers"
        if self.format is not None and kind != "string":
            return "format", f"{self.column} is {declared}; `format` applies only to strings"
        if self.timezone is not None and (why := self._why_zone_is_fixed(declared)):
            return "timezone", f"{self.column} {why}; remove `timezone`"
        return None

    def _why_zone_is_fixed(self, declared: ColumnType) -> str | None:
        """Return why the values need no time zone, or None if they do."""
        if declared.kind in INTEGERS:
            return "counts from 1970-01-01T00:00Z"
        if declared.kind == "timestamp" and declared.utc:
            return f"is {declared}"
        if self.format is not None and parse_pattern(self.format).has_offset:
            return "has its offset from UTC"
        return None


def _parse(value: object) -> object:
    if isinstance(value, str):
        return {"column": value}
    if not isinstance(value, dict | EventTimeSpec):
        raise ValueError(f"expected a column name, or {{column: at, unit: ms}}, got {value!r}")
    return value


def _shortest(value: EventTimeSpec, handler: SerializerFunctionWrapHandler) -> Any:
    return value.column if value.is_column_alone else handler(value)


class _NameOrMapping:
    """JSON Schema for both forms."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(core_schema)]}


EventTime = Annotated[EventTimeSpec, BeforeValidator(_parse), WrapSerializer(_shortest), _NameOrMapping]
"""A column name or a mapping."""
