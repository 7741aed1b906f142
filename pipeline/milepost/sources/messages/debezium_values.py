"""Decode Debezium's change events: rows after an insert, update or snapshot read, and before a delete."""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

from milepost.jobspec.job import CHANGE_METADATA, ChangeRules
from milepost.language import ColumnType
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.messages.debezium_encodings import Encoding, EventEncodings, field_of
from milepost.sources.messages.exact_values import Convert, Unfit, plain_converter, time_in_unit, unfit
from milepost.sources.messages.rowwise_values import BadValue, RowwiseValues

_MARK = "\ufeff"
_SCHEMA, _PAYLOAD = '{"schema":{', ',"payload":'
_BLANK = " \t\r\n"
_NO_SCHEMA = "\0"
_MAX_CACHED_PLANS = 64
_TRUNCATED = (
    "is a TRUNCATE: the table lost all rows, and the event has no keys of them. Read the messages after it as a new "
    "source, from the offset that follows, with new operator uids and a new table"
)


def debezium_values(declared: DeclaredColumns, rules: ChangeRules) -> RowwiseValues:
    """Return the decoder of change events.

    Args:
        declared: the columns of the table, and those of `rules.fields`.
    """
    return RowwiseValues(declared, ChangeEvents(declared.types, rules))


_Plan: TypeAlias = Sequence[tuple[int, str, Convert]]
"""How rows of one schema are read: index, name and converter of each column."""


class ChangeEvents:
    """Reads one event per call; picklable, without the plans that it has made.

    Args:
        types: of the columns, in order.
    """

    def __init__(self, types: Mapping[str, ColumnType], rules: ChangeRules) -> None:
        self._types, self._rules = dict(types), rules
        self._encodings = EventEncodings(rules.time_precision_mode, rules.decimal_handling_mode)
        self._has_decimals = any(_has_decimal(type_) for type_ in types.values())
        self._placeholders = _placeholders(rules.placeholder)
        self._placeholder_texts = frozenset(text for text in self._placeholders if isinstance(text, str))
        self._forget()

    def _forget(self) -> None:
        self._plans: dict[str, _Plan] = {}
        self._prefix = _NO_SCHEMA
        parse: Callable[[str], Any] | None = Decimal if self._has_decimals else None
        self._decoder = json.JSONDecoder(parse_float=parse)
        names = list(self._types)
        self._of_event = [
            (names.index(name), path.split("."), _event_converter(path)) for name, path in self._rules.fields.items()
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {"types": self._types, "rules": self._rules}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["types"], state["rules"])  # type: ignore[misc]

    def __call__(self, value: bytes) -> list[Any]:
        """Return the values of the columns. Raises BadValue."""
        event, plan = self._event(value)
        op = event.get("op")
        row, before = event.get("after"), event.get("before")
        if op == "d":
            row, before = before, None
        elif op == "t":
            raise BadValue(_TRUNCATED, ends=True)
        elif op not in ("c", "r", "u"):
            raise BadValue("is not a change event of a row: its `op` is none of c, r, u, d and t")
        if not isinstance(row, dict):
            raise BadValue(f"has no row: `{'before' if op == 'd' else 'after'}` is not an object")
        values: list[Any] = [None] * len(self._types)
        for at, name, convert in plan:
            item = row.get(name)
            if item is None:
                continue
            if self._is_unavailable(item):
                if op == "d":  # a delete is about the key, which always has its value
                    continue
                item = before.get(name) if isinstance(before, dict) else None
                if item is None or self._is_unavailable(item):
                    reason = "is unchanged, and the event does not have its value: set REPLICA IDENTITY FULL"
                    raise BadValue(reason, name)
            try:
                values[at] = convert(item)
            except Unfit as error:
                raise BadValue(str(error), name, _shown(item)) from None
        for at, path, convert in self._of_event:
            item = event
            for step in path:
                item = item.get(step) if isinstance(item, dict) else None
            if item is not None:
                try:
                    values[at] = convert(item)
                except Unfit as error:
                    raise BadValue(f"`{'.'.join(path)}` {error}", list(self._types)[at], _shown(item)) from None
        return values

    def _event(self, value: bytes) -> tuple[dict[str, Any], _Plan]:
        """Return an event without its schema, and how its columns are read."""
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise BadValue("is not valid UTF-8") from None
        try:
            if text.startswith(self._prefix):  # the schema of the message before, which is most of the text
                event, end = self._decoder.raw_decode(text, len(self._prefix))
                plan = self._plans.get(self._prefix)
                if text[end:].strip(_BLANK) == "}" and isinstance(event, dict) and plan is not None and "op" in event:
                    return event, plan
            message = self._decoder.decode(text.removeprefix(_MARK))
        except RecursionError:
            raise BadValue("is nested too deeply to be read") from None
        except ValueError:
            raise BadValue("is not JSON") from None
        if not isinstance(message, dict):
            raise BadValue("is not a JSON object")
        if "op" in message:
            return message, self._plan(_NO_SCHEMA, None)
        event, schema = message.get("payload"), message.get("schema")
        if not isinstance(event, dict) or "op" not in event:
            raise BadValue("is not a change event: it has no `op`. Read flattened events with `value: {format: json}`")
        if not isinstance(schema, dict):
            return event, self._plan(_NO_SCHEMA, None)
        prefix = self._prefix_of(text)
        if prefix is None:
            return event, self._make_plan(schema)
        self._prefix = prefix
        return event, self._plan(prefix, schema)

    def _prefix_of(self, text: str) -> str | None:
        """Return the text up to the payload, as Kafka Connect writes it; None if it is written otherwise."""
        if not text.startswith(_SCHEMA):
            return None
        _, end = self._decoder.raw_decode(text, len(_SCHEMA) - 1)
        return text[: end + len(_PAYLOAD)] if text.startswith(_PAYLOAD, end) else None

    def _plan(self, key: str, schema: Encoding) -> _Plan:
        if key not in self._plans:
            if len(self._plans) >= _MAX_CACHED_PLANS:
                self._plans.clear()
            self._plans[key] = self._make_plan(schema)
        return self._plans[key]

    def _make_plan(self, schema: Encoding) -> _Plan:
        row = field_of(schema, "after") or field_of(schema, "before")
        return [
            (at, name, self._encodings.converter(type_, field_of(row, name)))
            for at, (name, type_) in enumerate(self._types.items())
            if name not in self._rules.fields
        ]

    def _is_unavailable(self, value: Any) -> bool:
        if isinstance(value, str):
            return value in self._placeholder_texts
        return isinstance(value, (list, dict)) and value in self._placeholders


def _placeholders(text: str) -> list[Any]:
    """Return the placeholder as it is in columns of each type: a text, bytes, and lists of texts, bytes and numbers."""
    content = text.encode()
    in_base64 = base64.b64encode(content).decode()
    digest = bytearray(hashlib.md5(content, usedforsecurity=False).digest())
    as_uuid = str(uuid.UUID(bytes=bytes(digest), version=3))
    return [text, in_base64, [text], [in_base64], [as_uuid], as_uuid, list(content), {text: text}]


def _event_converter(path: str) -> Convert:
    type_ = CHANGE_METADATA[path]
    if type_.kind == "timestamp":
        return partial(_milliseconds, type_)
    plain = plain_converter(type_)
    assert plain is not None, path
    return _snapshot if path == "source.snapshot" else plain


def _milliseconds(type_: ColumnType, value: Any) -> int:
    if type(value) is not int:
        raise unfit(type_)
    return time_in_unit(value, 1_000_000, type_)


def _snapshot(value: Any) -> str:
    """Return whether an event is of a snapshot: true, false, first, last or incremental. Old connectors send a bool."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        raise Unfit("is not of type string")
    return value


def _has_decimal(type_: ColumnType) -> bool:
    if type_.is_nested:
        inner = [type_.element] if type_.element is not None else [field for _, field in type_.fields]
        return any(_has_decimal(one) for one in inner)
    return type_.kind == "decimal"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)
