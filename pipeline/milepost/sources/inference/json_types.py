"""Decide the types of the fields of JSON objects."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from milepost.language import ColumnType, parse_type
from milepost.sources.inference.proposal import ProposedColumn, refused, shown
from milepost.sources.inference.text_types import STRING, classify, decide

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FLOAT_DIGITS = 15
_MAX_DEPTH = 8
_KINDS = {
    bool: "true or false",
    int: "whole numbers",
    Decimal: "numbers",
    float: "numbers",
    str: "text",
    list: "lists",
    dict: "objects",
}


class _Mixed(Exception):
    """The values have no common type. The message is the reason, as one line."""


@dataclass(slots=True)
class JsonFields:
    """The values of each field of JSON lines, in the order in which the fields occur.

    Attributes:
        lines: number of objects.
    """

    lines: int = 0
    values: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, text: str, file: str) -> None:
        """Add the objects of a file. A line that is not an object is left to the reader, which reports it.

        Raises: InvalidRequest: the file is one JSON value, and not one object per line.
        """
        first = text.lstrip("\ufeff \t\r\n")[:1]
        if first == "[":
            raise refused(
                f"{file} is one JSON array; a source reads one JSON object per line.",
                f"Convert it: `jq -c '.[]' {file} > {file}l`",
            )
        objects = [*_objects(text)]
        if not objects:
            raise refused(
                f"{file} has no line that is a JSON object; a source reads one JSON object per line.",
                f"Convert an object of several lines: `jq -c . {file} > {file}l`",
            )
        self.lines += len(objects)
        for one in objects:
            for name, value in one.items():
                self.values.setdefault(name, []).append(value)

    def columns(self) -> list[ProposedColumn]:
        """Return the fields with their types."""
        return [_column(name, values, self.lines) for name, values in self.values.items()]


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    for line in re.split(r"\r\n?|\n", text.removeprefix("\ufeff")):
        try:
            value = json.loads(line, parse_float=Decimal, parse_int=_integer)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            yield value


def _integer(digits: str) -> int | Decimal:
    """Convert digits to a number; more than Python converts to an int become a Decimal."""
    return int(digits) if len(digits) < 1000 else Decimal(digits)


def _column(name: str, values: list[Any], lines: int) -> ProposedColumn:
    present = [value for value in values if value is not None]
    absent = lines - len(values)
    missing = f", missing from {absent:,} of {lines:,} lines" if absent else ""
    if not present:
        return ProposedColumn(name, None, "only nulls in the sample, so its type is unknown")
    try:
        type_, note = _type_of(present, 0)
    except _Mixed as reason:
        return ProposedColumn(name, None, str(reason))
    nulls = len(values) - len(present)
    return ProposedColumn(
        name, type_, note + (f", {nulls:,} of {len(values):,} null" if nulls else "") + missing, is_optional=absent > 0
    )


def _type_of(values: Sequence[Any], depth: int) -> tuple[ColumnType, str]:
    """Return the type of values that are not null, with a note. Raises _Mixed: there is none."""
    kinds = {type(value) for value in values}
    if kinds == {bool}:
        return parse_type("bool"), "true or false"
    if kinds <= {int, Decimal, float}:
        return _number(values)
    if kinds == {str}:
        if depth:  # the JSON reader takes no times inside lists and structs
            return STRING, "text"
        decision = decide(classify(pa.array(map(_text, values), pa.string())), only_times=True)
        return decision.type, decision.note
    if kinds == {list} and depth < _MAX_DEPTH:
        items = [item for value in values for item in value if item is not None]
        if not items:
            raise _Mixed("only empty lists in the sample, so the type of their values is unknown")
        element, _ = _type_of(items, depth + 1)
        return ColumnType("list", element=element), "lists"
    if kinds == {dict} and depth < _MAX_DEPTH:
        return _struct(values, depth)
    if len(kinds) == 1:
        raise _Mixed(f"nested deeper than {_MAX_DEPTH}")
    raise _Mixed(_mixture(values))


def _text(value: str) -> str:
    return value.encode("utf-8", "replace").decode()


def _number(values: Sequence[Any]) -> tuple[ColumnType, str]:
    noun = "whole numbers" if all(type(value) is int for value in values) else "numbers"
    integers = [value for value in values if type(value) is int]
    if len(integers) == len(values):
        if all(-(2**63) <= value < 2**63 for value in integers):
            return parse_type("int64"), noun
        if all(abs(value) < 10**38 for value in integers):
            return parse_type("decimal(38,0)"), f"{noun}, some beyond the range of int64"
        raise _Mixed(f"{noun}, some with more than 38 digits")
    exact = [value for value in values if isinstance(value, Decimal)] + [Decimal(value) for value in integers]
    if any(len(value.normalize().as_tuple().digits) > _FLOAT_DIGITS for value in exact):
        return _exact(exact, noun)
    return parse_type("float64"), noun


def _exact(values: Sequence[Decimal], noun: str) -> tuple[ColumnType, str]:
    """Return a decimal for numbers that a float64 would round, such as 0.1234567890123456789."""
    scale = max(max(-int(value.as_tuple().exponent), 0) for value in values)
    whole = max(max(value.adjusted() + 1, 0) for value in values)
    if scale + whole > 38:
        return parse_type("float64"), f"{noun}, some with more than {_FLOAT_DIGITS} digits, which are rounded"
    return parse_type(f"decimal(38,{scale})"), f"{noun}, some with more than {_FLOAT_DIGITS} digits"


def _struct(values: Sequence[Mapping[str, Any]], depth: int) -> tuple[ColumnType, str]:
    """Return a struct of the fields that a spec can name and that have a type."""
    fields: list[tuple[str, ColumnType]] = []
    left_out: list[str] = []
    for name in dict.fromkeys(name for value in values for name in value):
        present = [value[name] for value in values if value.get(name) is not None]
        taken = name.casefold() in {other.casefold() for other, _ in fields}
        try:
            if taken or not present or not _NAME.fullmatch(name):
                raise _Mixed
            fields.append((name, _type_of(present, depth + 1)[0]))
        except _Mixed:
            left_out.append(name)
    if not fields:
        raise _Mixed("objects without a field that can be declared")
    note = f"objects; left out: {_names(left_out)}" if left_out else "objects"
    return ColumnType("struct", fields=tuple(fields)), note


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(shown, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _mixture(values: Iterable[Any]) -> str:
    counts: dict[str, int] = {}
    for value in values:
        counts[_KINDS[type(value)]] = counts.get(_KINDS[type(value)], 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    parts = [f"{count:,} are {noun}" for noun, count in ordered]
    return f"of {sum(counts.values()):,} values {', '.join(parts)}: no type reads all of them"
