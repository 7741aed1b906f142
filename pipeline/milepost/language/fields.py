"""Pydantic field types for durations, names, column types and calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    GetJsonSchemaHandler,
    PlainSerializer,
    Strict,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue

from milepost.language import names
from milepost.language.aggregates import SYNTAX, AggregateCall, parse_aggregate
from milepost.language.docstrings import parse_docstring
from milepost.language.times.cron import check_cron
from milepost.language.times.durations import (
    format_duration,
    format_signed_duration,
    in_ms,
    parse_duration,
    parse_precise_duration,
    parse_signed_duration,
    parse_size,
)
from milepost.language.times.time_zones import system_zone
from milepost.language.times.timestamps import EPOCH, parse_timestamp
from milepost.language.types import TYPE_GRAMMAR, ColumnType, parse_type

T = TypeVar("T")


class SpecModel(BaseModel):
    """Base of all spec models: frozen, rejects unknown keys, coerces nothing.

    Attributes:
        unavailable_keys: keys that are planned but not available in this version. Null is accepted and means off.
        unavailable_values: key -> values that are planned but not available in this version.
        refused_keys: key that similar models have -> why this one has none, and what to write instead.
    """

    unavailable_keys: ClassVar[frozenset[str]] = frozenset()
    unavailable_values: ClassVar[Mapping[str, frozenset[str]]] = {}
    refused_keys: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, hide_input_in_errors=True, arbitrary_types_allowed=True
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Return the JSON Schema, with key descriptions from the docstrings of the class and its bases."""
        schema = handler(core_schema)
        part = handler.resolve_ref_schema(schema)
        part["description"], texts = parse_docstring(cls.__doc__ or "")
        for base in cls.__mro__[1 : cls.__mro__.index(SpecModel)]:
            texts = parse_docstring(base.__doc__ or "")[1] | texts
        for name, field in cls.model_fields.items():
            key = part["properties"][field.alias or name]
            if name in texts:
                key["description"] = texts[name]
            if isinstance(field.default, timedelta):  # pydantic would write ISO 8601, which a spec does not accept
                key["default"] = format_duration(field.default)
        return schema


def _text_schema(pattern: str | None, description: str) -> WithJsonSchema:
    patterns = {"pattern": pattern} if pattern else {}
    return WithJsonSchema({"type": "string", **patterns, "description": description})


DURATION_PATTERN = r"^\d{1,9}(ms|s|m|h|d)$"

Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    _text_schema(DURATION_PATTERN, "30s 5m 2h 3d"),
]


def _positive(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("expected a duration above 0s")
    return value


PositiveDuration = Annotated[Duration, AfterValidator(_positive)]

PreciseDuration = Annotated[
    timedelta,
    BeforeValidator(parse_precise_duration),
    PlainSerializer(format_duration, return_type=str),
    _text_schema(r"^(\d{1,9}(ms|s|m|h|d)|\d{1,16}us)$", "30s 5m 2h 3d 1800000001us"),
    AfterValidator(_positive),
]
"""A duration above 0s that may have microseconds."""

SignedDuration = Annotated[
    timedelta,
    BeforeValidator(parse_signed_duration),
    PlainSerializer(format_signed_duration, return_type=str),
    _text_schema(r"^-?\d{1,9}(ms|s|m|h|d)$", "30s -5m 2h -3d"),
]

SIZE_EXAMPLE = "64MB"
"""Description of a size in the JSON schema."""

Size = Annotated[
    int,
    BeforeValidator(parse_size),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "description": SIZE_EXAMPLE}]}),
]

Type = Annotated[
    ColumnType, BeforeValidator(parse_type), PlainSerializer(str, return_type=str), _text_schema(None, TYPE_GRAMMAR)
]

Aggregate = Annotated[
    AggregateCall,
    BeforeValidator(parse_aggregate),
    PlainSerializer(str, return_type=str),
    _text_schema(None, SYNTAX),
]

JobName = Annotated[str, AfterValidator(names.check_job_name)]


def _parse_pair(value: object) -> tuple[str, str]:
    if isinstance(value, dict) and len(value) == 1:
        ((left, right),) = value.items()
    else:
        left = right = value
    if not (isinstance(left, str) and isinstance(right, str)):
        raise ValueError(f"expected a column, or {{left column: right column}}, got {value!r}")
    return names.check_column_name(left), names.check_column_name(right)


KeyPair = Annotated[
    tuple[str, str],
    BeforeValidator(_parse_pair),
    PlainSerializer(lambda pair: pair[0] if pair[0] == pair[1] else {pair[0]: pair[1]}),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "object", "additionalProperties": {"type": "string"}, "minProperties": 1, "maxProperties": 1},
            ]
        }
    ),
]


def _parse_order(value: object) -> tuple[str, bool]:
    if isinstance(value, tuple):
        return value
    column, direction = next(iter(value.items())) if isinstance(value, dict) and len(value) == 1 else (value, "asc")
    if not isinstance(column, str) or direction not in ("asc", "desc"):
        raise ValueError(f"expected a column, or {{column: desc}}, got {value!r}")
    return names.check_column_name(column), direction == "desc"


def _order_text(order: tuple[str, bool]) -> dict[str, str]:
    return {order[0]: "desc" if order[1] else "asc"}


OrderColumn = Annotated[
    tuple[str, bool],
    BeforeValidator(_parse_order),
    PlainSerializer(_order_text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "additionalProperties": {"enum": ["asc", "desc"]},
                    "minProperties": 1,
                    "maxProperties": 1,
                },
            ]
        }
    ),
]
"""(column, whether it sorts descending)."""

_RIGHT = r"^right\.[^.]+$"


def _check_right(text: str) -> str:
    if not re.fullmatch(_RIGHT, text):
        raise ValueError(f"expected right.COLUMN, a column of the right input, got {text!r}")
    return text


RightColumn = Annotated[str, AfterValidator(_check_right), _text_schema(_RIGHT, "right.COLUMN")]
NodeName = Annotated[str, AfterValidator(names.check_node_name)]
QueryName = Annotated[str, AfterValidator(names.check_query_name)]
StepName = Annotated[str, AfterValidator(names.check_step_name)]
"""Name of an operator, which may be a step of a SQL statement: `revenue__agg`."""
SinkName = Annotated[str, AfterValidator(names.check_sink_name)]
ColumnName = Annotated[str, AfterValidator(names.check_column_name)]


_CONN_ID = r"^[A-Za-z0-9_.-]{1,250}$"


def _check_conn_id(text: str) -> str:
    if not re.fullmatch(_CONN_ID, text):
        raise ValueError(f"expected the id of an Airflow Connection (letters, digits and `_.-`), got {text!r}")
    return text


ConnId = Annotated[str, AfterValidator(_check_conn_id), _text_schema(_CONN_ID, "id of an Airflow Connection")]


def _non_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("expected a string that is not empty")
    return text


Text = Annotated[str, AfterValidator(_non_empty)]


def parse_start(text: str) -> str:
    """Return `text` if it is earliest, latest or an ISO 8601 time (default zone UTC). Raises ValueError."""
    if text not in ("earliest", "latest"):
        start_time_ms(text)
    return text


def start_time_ms(text: str) -> int:
    """Return an ISO 8601 time in milliseconds since 1970-01-01T00:00Z. Raises ValueError."""
    try:
        return in_ms(parse_timestamp(text) - EPOCH)
    except ValueError:
        raise ValueError(f"expected earliest, latest or a time such as 2026-01-31T00:00:00Z, got {text!r}") from None


def is_same_start(one: str, other: str) -> bool:
    """Return whether two texts of a `start` mean the same. One time may be written in several ways."""
    # "2026-01-01", "2026-01-01T01:00:00+01:00": True.  "earliest", "2026-01-01": False.
    # Digits alone are the number of a version, which a time of the basic format could equal.
    if one == other or one.isdigit() or other.isdigit():
        return one == other
    try:
        return start_time_ms(one) == start_time_ms(other)
    except ValueError:
        return False


def _check_timezone(name: str) -> str:
    system_zone(name)
    return name


_ASSET_URI = r"^[a-z][a-z0-9+.-]*://[^\s${}]+$"


def _check_asset(text: str) -> str:
    if not re.fullmatch(_ASSET_URI, text):
        raise ValueError(f"expected the URI of an Airflow asset, such as s3://lake/carriers, got {text!r}")
    return text


_QUEUE_URL = r"^https?://[^\s${}@/]+/[^\s${}@?#]+$"


def _check_queue(text: str) -> str:
    if not re.fullmatch(_QUEUE_URL, text):
        example = "https://sqs.eu-west-1.amazonaws.com/123456789012/landing"
        raise ValueError(f"expected the URL of an SQS queue, such as {example}, got {text!r}")
    return text


_FUNCTION = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*$"


def _check_function(text: str) -> str:
    if not re.fullmatch(_FUNCTION, text, re.ASCII):
        raise ValueError(f'expected "module:Class", such as flights_ops:Turnaround, got {text!r}')
    return text


Function = Annotated[str, AfterValidator(_check_function), _text_schema(_FUNCTION, "module:Class")]

Start = Annotated[str, AfterValidator(parse_start)]
TimeZone = Annotated[str, AfterValidator(_check_timezone)]
Cron = Annotated[str, AfterValidator(check_cron)]
QueueUrl = Annotated[str, AfterValidator(_check_queue), _text_schema(_QUEUE_URL, "URL of an SQS queue")]
AssetUri = Annotated[str, AfterValidator(_check_asset), _text_schema(_ASSET_URI, "URI of an Airflow asset")]

Many = Annotated[tuple[T, ...], Strict(False)]
"""A YAML list of T, stored as a tuple."""
