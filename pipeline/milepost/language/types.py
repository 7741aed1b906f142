"""Column types of a spec: parser, canonical text, and the equivalent pyarrow type.

pyarrow is imported on the first conversion, because DAG files parse specs and must stay fast.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

INTEGERS = ("int8", "int16", "int32", "int64")
FLOATS = ("float32", "float64")
_SIMPLE = ("bool", *INTEGERS, *FLOATS, "string", "binary", "date")
_UNITS = ("s", "ms", "us", "ns")
TYPE_GRAMMAR = (
    "bool, int8, int16, int32, int64, float32, float64, decimal(p,s), string, binary, date, "
    "timestamp[us], timestamp[us, UTC], list<T>, struct<a: T>"
)
SPARK_NAMES = {
    "boolean": "bool",
    **dict.fromkeys(("tinyint", "byte"), "int8"),
    **dict.fromkeys(("smallint", "short"), "int16"),
    **dict.fromkeys(("int", "integer"), "int32"),
    **dict.fromkeys(("bigint", "long"), "int64"),
    **dict.fromkeys(("float", "real"), "float32"),
    "double": "float64",
    **dict.fromkeys(("dec", "numeric"), "decimal"),
    **dict.fromkeys(("timestamp", "timestamp_ltz"), "timestamp[us, UTC]"),
    "timestamp_ntz": "timestamp[us]",
    "array": "list",
}
"""Type name in Spark, in lower case -> canonical name. Names that are not listed are the same in both."""
_INSTEAD = {
    **dict.fromkeys(("char", "str", "text", "varchar"), "string"),
    **dict.fromkeys(("bytea", "bytes"), "binary"),
    **dict.fromkeys(("datetime", "timestamptz"), "timestamp[us, UTC]"),
    "map": "list<struct<key: T, value: T>>",
}
"""Type name that is not accepted -> type with the same values."""
_TOKEN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*|\d+|[<>\[\](),:])")
_MAX_DEPTH = 16


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One column type.

    Attributes:
        kind: bool, int8…int64, float32, float64, decimal, string, binary, date, timestamp, list or struct.
        unit: unit of a timestamp: s, ms, us or ns. utc: whether a timestamp has the zone UTC (otherwise none).
        precision, scale: of a decimal.
        element: element type of a list.
        fields: (name, type) of each field of a struct.
    """

    kind: str
    unit: str = ""
    utc: bool = False
    precision: int = 0
    scale: int = 0
    element: ColumnType | None = None
    fields: tuple[tuple[str, ColumnType], ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether values can be summed and averaged."""
        return self.kind in INTEGERS or self.kind in FLOATS or self.kind == "decimal"

    @property
    def is_nested(self) -> bool:
        return self.kind in ("list", "struct")

    def __str__(self) -> str:
        """Return the canonical text, which `parse_type` reads back."""
        if self.kind == "timestamp":
            return f"timestamp[{self.unit}, UTC]" if self.utc else f"timestamp[{self.unit}]"
        if self.kind == "decimal":
            return f"decimal({self.precision},{self.scale})"
        if self.element is not None:
            return f"list<{self.element}>"
        if self.kind == "struct":
            return "struct<" + ", ".join(f"{name}: {type_}" for name, type_ in self.fields) + ">"
        return self.kind


def parse_type(text: object) -> ColumnType:
    """Parse a column type, in Arrow's or in Spark's names. Case matters only in names of fields.

    Raises:
        ValueError: the text is not a type; the message contains the grammar.
    """
    if isinstance(text, ColumnType):
        return text
    if not isinstance(text, str):
        raise ValueError(f"expected a column type, got {text!r}. Types are {TYPE_GRAMMAR}")
    try:
        parser = _Parser(text)
        parsed = parser.type(0)
        parser.end()
    except _Malformed as problem:
        raise ValueError(f"{text!r} is not a column type{problem}{_hint(text)} Types are {TYPE_GRAMMAR}") from None
    return parsed


def _hint(text: str) -> str:
    """Return the end of the first sentence, which suggests what was probably meant."""
    # In `{a: decimal(12,2)}` YAML ends the value at the comma, so the type arrives as `decimal(12`.
    if any(text.count(opening) > text.count(closing) for opening, closing in ("()", "[]", "<>")):
        return '; quote a type with a comma inside {}: "decimal(12,2)".'
    name = re.split(r"[^a-z0-9]", text.strip().lower(), maxsplit=1)[0]
    return f"; did you mean {_INSTEAD[name]}?" if name in _INSTEAD else "."


def to_arrow(type_: ColumnType | str) -> pa.DataType:
    """Return the pyarrow type of a column type or of its text."""
    import pyarrow as pa

    t = parse_type(type_)
    if t.kind == "timestamp":
        return pa.timestamp(t.unit, tz="UTC" if t.utc else None)
    if t.kind == "decimal":
        return pa.decimal128(t.precision, t.scale)
    if t.element is not None:
        return pa.list_(to_arrow(t.element))
    if t.kind == "struct":
        return pa.struct([(name, to_arrow(field)) for name, field in t.fields])
    if t.kind == "bool":
        return pa.bool_()
    if t.kind == "date":
        return pa.date32()
    return getattr(pa, t.kind)()


def arrow_schema(columns: Mapping[str, ColumnType]) -> pa.Schema:
    """Return the pyarrow schema of columns by name, in their order."""
    import pyarrow as pa

    return pa.schema([(name, to_arrow(type_)) for name, type_ in columns.items()])


class _Malformed(Exception):
    """The text does not match the grammar. The message is a clause or empty."""


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[str] = []
        position = 0
        while position < len(text.rstrip()):
            match = _TOKEN.match(text, position)
            if match is None:
                raise _Malformed
            self._tokens.append(match[1])
            position = match.end()
        self._next = 0

    def _take(self) -> str:
        if self._next >= len(self._tokens):
            raise _Malformed(" (it ends too early)")
        self._next += 1
        return self._tokens[self._next - 1]

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise _Malformed

    def _number(self) -> int:
        token = self._take()
        if not token.isdigit():
            raise _Malformed
        return int(token)

    def end(self) -> None:
        if self._peek():
            raise _Malformed

    def type(self, depth: int) -> ColumnType:
        if depth > _MAX_DEPTH:
            raise _Malformed(f" (nested deeper than {_MAX_DEPTH})")
        word = self._take().lower()
        if word == "timestamp" and self._peek() == "[":
            return self._timestamp()
        kind = SPARK_NAMES.get(word, word)
        if kind in _SIMPLE:
            return ColumnType(kind)
        if kind.startswith("timestamp["):
            return ColumnType("timestamp", unit="us", utc=kind.endswith("UTC]"))
        if kind == "decimal":
            return self._decimal()
        if kind == "list":
            self._expect("<")
            element = self.type(depth + 1)
            self._expect(">")
            return ColumnType("list", element=element)
        if kind == "struct":
            return self._struct(depth)
        raise _Malformed

    def _timestamp(self) -> ColumnType:
        self._expect("[")
        unit, utc = self._take(), False
        if unit not in _UNITS:
            raise _Malformed(" (the unit is one of s, ms, us, ns)")
        if self._peek() == ",":
            self._take()
            if self._take() != "UTC":
                raise _Malformed(" (the only zone is UTC)")
            utc = True
        self._expect("]")
        return ColumnType("timestamp", unit=unit, utc=utc)

    def _decimal(self) -> ColumnType:
        """Parse the arguments of a decimal. As in Spark, `decimal` is decimal(10,0), and decimal(p) is decimal(p,0)."""
        precision, scale = 10, 0
        if self._peek() == "(":
            self._take()
            precision = self._number()
            if self._peek() == ",":
                self._take()
                scale = self._number()
            self._expect(")")
        if not 1 <= precision <= 38 or scale > precision:
            raise _Malformed(" (1 <= p <= 38, s <= p)")
        return ColumnType("decimal", precision=precision, scale=scale)

    def _struct(self, depth: int) -> ColumnType:
        self._expect("<")
        fields: list[tuple[str, ColumnType]] = []
        while True:
            name = self._take()
            if not name.isidentifier():
                raise _Malformed
            self._expect(":")
            fields.append((name, self.type(depth + 1)))
            closing = self._take()
            if closing == ">":
                break
            if closing != ",":
                raise _Malformed
        if len({name.lower() for name, _ in fields}) < len(fields):
            raise _Malformed(" (a field name occurs twice)")
        return ColumnType("struct", fields=tuple(fields))
