"""Convert types in Delta's log to Arrow."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

PLAIN_TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""Types without parameters, by their names in Delta's log."""

_DECIMAL = re.compile(r"decimal\((\d+), ?(-?\d+)\)")


def arrow_type(delta: str | dict[str, Any]) -> pa.DataType:
    """Return the Arrow type of a type in Delta's log. Raises KeyError: the type is unknown."""
    if isinstance(delta, str):
        if digits := _DECIMAL.fullmatch(delta):
            return pa.decimal128(int(digits[1]), int(digits[2]))
        return PLAIN_TYPES[delta]
    if delta["type"] == "array":
        return pa.list_(pa.field("item", arrow_type(delta["elementType"]), nullable=delta["containsNull"]))
    if delta["type"] == "map":
        value = pa.field("value", arrow_type(delta["valueType"]), nullable=delta["valueContainsNull"])
        return pa.map_(arrow_type(delta["keyType"]), value)
    if delta["type"] == "struct":
        return pa.struct(
            [
                pa.field(field["name"], arrow_type(field["type"]), nullable=field["nullable"])
                for field in delta["fields"]
            ]
        )
    raise KeyError(delta["type"])
