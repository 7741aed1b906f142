"""The part of a source that names the column which times its rows."""

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

from milepost.spec.values.fields import ColumnName, SpecModel
from milepost.spec.values.times.datetime_pattern import parse_pattern
from milepost.spec.values.times.time_zones import zone_data
from milepost.spec.values.types import INTEGERS, ColumnType

_TIMESTAMP = ColumnType("timestamp", unit="us", utc=True)


def _zone(name: str) -> str:
    zone_data(name)
    return name


def _pattern(text: str) -> str:
    parse_pattern(text)
    return text


class EventTimeSpec(SpecModel):
    """The column that times the rows of a source, and how its values are read as times.

    Attributes:
        column: of `schema`: a timestamp, a date (its first moment), a whole number with `unit`, or a string with
            `format`. Other than a timestamp in UTC or without `timezone`, it becomes a timestamp[us, UTC]: that is what
            operators and sinks see. A value that is no such time is a bad record.
        unit: of whole numbers, which count from 1970-01-01T00:00Z: s, ms or us.
        format: of texts, in Spark's pattern letters: `dd.MM.yyyy HH:mm`.
        timezone: whose clocks a date, a timestamp without a zone or a text without an offset is of, such as
            Europe/Berlin; null: UTC.
    """

    column: ColumnName
    unit: Literal["s", "ms", "us"] | None = None
    format: Annotated[str, AfterValidator(_pattern)] | None = None
    timezone: Annotated[str, AfterValidator(_zone)] | None = None

    @property
    def is_column_alone(self) -> bool:
        """Whether its name says it all."""
        return self.unit is None and self.format is None and self.timezone is None

    @property
    def reading(self) -> str | dict[str, str]:
        """What decides which time a value is, as a spec says it: UTC is the same as no time zone."""
        parts = {"unit": self.unit, "format": self.format, "timezone": self.timezone}
        given = {key: text for key, text in parts.items() if text is not None and (key, text) != ("timezone", "UTC")}
        return {"column": self.column, **given} if given else self.column

    def type_of(self, declared: ColumnType) -> ColumnType:
        """Return the type that the column has in the source's rows."""
        if declared.kind == "timestamp" and (declared.utc or self.timezone is None):
            return declared
        return _TIMESTAMP

    def problem(self, declared: ColumnType) -> tuple[str | None, str] | None:
        """Return the key that is wrong for a column of a type, or None for the column, and why; None: all is right."""
        kind = "integer" if declared.kind in INTEGERS else declared.kind
        if kind not in ("timestamp", "date", "integer", "string"):
            expected = "a timestamp, a date, a whole number with `unit`, or a string with `format`"
            return None, f"{self.column} is {declared}; an event time is {expected}"
        if kind == "integer" and self.unit is None:
            return None, f"{self.column} is {declared}: say what it counts, {{column: {self.column}, unit: ms}}"
        if kind == "string" and self.format is None:
            form = f'{{column: {self.column}, format: "dd.MM.yyyy HH:mm"}}'
            return None, f"{self.column} is {declared}: declare it as a timestamp, or say its format, {form}"
        if self.unit is not None and kind != "integer":
            return "unit", f"{self.column} is {declared}; a `unit` is of whole numbers"
        if self.format is not None and kind != "string":
            return "format", f"{self.column} is {declared}; a `format` is of strings"
        if self.timezone is not None and (why := self._knows_zone(declared)):
            return "timezone", f"{self.column} {why}; remove `timezone`"
        return None

    def _knows_zone(self, declared: ColumnType) -> str | None:
        """Return why the values need no time zone, if they do not."""
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
        raise ValueError(f"expected a column, or {{column: at, unit: ms}}, got {value!r}")
    return value


def _shortest(value: EventTimeSpec, handler: SerializerFunctionWrapHandler) -> Any:
    return value.column if value.is_column_alone else handler(value)


class _NameOrMapping:
    """The JSON Schema of both forms."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"anyOf": [{"type": "string"}, handler(core_schema)]}


EventTime = Annotated[EventTimeSpec, BeforeValidator(_parse), WrapSerializer(_shortest), _NameOrMapping]
"""A column, or a mapping."""
