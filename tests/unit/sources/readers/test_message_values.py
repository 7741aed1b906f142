"""Random messages are decoded as Python's json module decodes them, by the rules of the declared types."""

from __future__ import annotations

import json
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from milepost.jobspec.job import KafkaSourceSpec
from milepost.sources.contract import PARTITION, BadMessage, SourceObject, whole_object
from milepost.sources.formats import build_reader
from milepost_testkit.jobs.landed_messages import kafka_source, message_object, numbered
from milepost_testkit.stores.memory_store import MemoryStore

SCHEMA = {
    "n": "int32",
    "x": "float64",
    "yes": "bool",
    "name": "string",
    "at": "timestamp[us, UTC]",
    "day": "date",
    "price": "decimal(10, 2)",
    "tags": "list<int8>",
    "place": "struct<city: string, x: float64>",
}
WIDE = kafka_source(SCHEMA, event_time="at", metadata={"o": "offset"})
NARROW = kafka_source({"n": "int32", "s": "string"}, metadata={"o": "offset"})
T = "2013-01-01T10:00:00Z"
PAIR = re.compile(r"\\u[dD][89abAB]..\\u[dD][c-fC-F]..")
MARK = b"\xef\xbb\xbf"


class Bad(Exception):
    """The message cannot be decoded."""


class Pairs(list[tuple[str, Any]]):
    """The fields of an object, with their names as often as they occur."""


def row_of(spec: KafkaSourceSpec, value: bytes) -> dict[str, Any]:
    """Decode a value with Python's json. Raises Bad."""
    text = value.removeprefix(MARK).decode("utf-8", "surrogateescape")
    assume(not re.search(r"\\u[dD][89a-fA-F]", PAIR.sub("", text)))  # Python accepts half of a surrogate pair
    try:
        fields = json.loads(text, object_pairs_hook=Pairs, parse_constant=_no_constant)
    except ValueError:
        raise Bad from None
    if not isinstance(fields, Pairs):
        raise Bad
    row = _struct(fields, {name: str(type_) for name, type_ in spec.value_columns.items()})
    if spec.time_column is not None and row[spec.time_column] is None:
        raise Bad
    return row


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _struct(fields: Pairs, types: dict[str, str]) -> dict[str, Any]:
    names = [name for name, _ in fields if name in types]
    if len({*names}) < len(names):
        raise Bad
    return {name: _value(dict(fields).get(name), type_) for name, type_ in types.items()}


def _value(value: Any, type_: str) -> Any:
    if value is None:
        return None
    if type_.startswith("struct"):
        if not isinstance(value, Pairs):
            raise Bad
        return _struct(value, {"city": "string", "x": "float64"})
    if type_.startswith("list"):
        if isinstance(value, Pairs) or not isinstance(value, list):
            raise Bad
        return [_value(item, "int8") for item in value]
    if type_ in ("int8", "int32"):
        bound = 1 << (7 if type_ == "int8" else 31)
        if type(value) is not int or not -bound <= value < bound:
            raise Bad
        return value
    if type_ == "float64":
        if type(value) not in (int, float):
            raise Bad
        assume(abs(value) < 1e308)
        return float(value)
    if type_ == "bool":
        if type(value) is not bool:
            raise Bad
        return value
    if type(value) is not str and not type_.startswith("decimal"):
        raise Bad
    try:
        if type_.startswith("decimal"):
            if not re.fullmatch(r"-?\d{1,8}(\.\d{1,2})?", str(value)) or type(value) is bool:
                raise Bad
            return Decimal(str(value)).quantize(Decimal("0.01"))
        if type_ == "date":
            if not re.fullmatch(r"\d{4}-\d\d-\d\d", value):
                raise Bad
            return date.fromisoformat(value)
        if type_.startswith("timestamp"):
            if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", value):
                assume(not re.fullmatch(r"[\d:.T -]+Z", value))  # of other forms, each parser accepts some
                raise Bad
            return datetime.fromisoformat(value).astimezone(UTC)
        value.encode()  # invalid UTF-8 became surrogates
    except (ValueError, UnicodeEncodeError):
        raise Bad from None
    return value


def decoded(spec: KafkaSourceSpec, values: list[bytes | None]) -> tuple[list[dict[str, Any]], list[int], int | None]:
    """Return the rows, the offsets of the messages that are bad, and that of the first one when all must be good."""
    store = MemoryStore("memory://")
    stat = store.put("1/a/00000-00000.parquet", message_object(numbered(values), row_group=7))
    part, reader = whole_object(SourceObject(stat.key, stat.etag, stat.size, 0)), build_reader("clicks", spec)
    rows: list[dict[str, Any]] = []
    bad: list[int] = []
    for item in reader.salvage_part(store, part):
        if isinstance(item, pa.RecordBatch):
            item.validate(full=True)
            rows += [{name: row[name] for name in row if name != PARTITION} for row in item.to_pylist()]
        else:
            assert isinstance(item, BadMessage), item
            bad.append(item.offset)
    whole: list[dict[str, Any]] = []
    try:
        for batch in reader.read_part(store, part):
            whole += [{name: row[name] for name in row if name != PARTITION} for row in batch.to_pylist()]
    except BadMessage as first:
        assert whole == rows[: len(whole)]
        return rows, bad, first.offset
    assert whole == rows
    return rows, bad, None


def assert_decoded(spec: KafkaSourceSpec, values: list[bytes | None]) -> None:
    """Messages become what the model makes of each."""
    rows: list[dict[str, Any]] = []
    bad: list[int] = []
    for offset, value in enumerate(values):
        try:
            rows += [] if value is None else [row_of(spec, value) | {"o": offset}]
        except Bad:
            bad.append(offset)
    assert decoded(spec, values) == (rows, bad, bad[0] if bad else None)


texts = st.text(max_size=6)
nothing = st.none()
fields = {
    "n": nothing | st.integers(-(2**31), 2**31 - 1) | st.sampled_from([2**31, -(2**31) - 1, 10**30, 0.5, "1", True]),
    "x": nothing | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**50), 2**50) | texts,
    "yes": nothing | st.booleans() | st.sampled_from([0, "true"]),
    "name": nothing | texts | st.sampled_from(["}\n{", '"', "\\", "\u2028", "\x00", 1, ["a"]]),
    "at": st.integers(0, 10**12).map(lambda ms: f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%S.%fZ}")
    | st.sampled_from([T, T, T, None, "never", "2013-01-01T10:00:00", 5]),
    "day": nothing | st.dates().map(str) | st.sampled_from(["2013-02-30", "", 5]),
    "price": nothing
    | st.integers(-(10**10) + 1, 10**10 - 1).map(lambda cents: f"{Decimal(cents) / 100:.2f}")
    | st.sampled_from(["x", 12, "12.345", 10**9, [1]]),
    "tags": nothing | st.lists(nothing | st.integers(-128, 127), max_size=3) | st.sampled_from([[128], ["a"], 1, {}]),
    "place": nothing
    | st.fixed_dictionaries({}, optional={"city": nothing | texts, "x": nothing | st.integers(0, 9), "more": texts})
    | st.sampled_from([[], "x", {"city": 1}]),
    "more": st.recursive(
        nothing | texts | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(texts, inner)
    ),
}


@st.composite
def json_values(draw: st.DrawFn) -> bytes:
    """One JSON object with some of the fields, mostly right, laid out in some way."""
    at = {"at": draw(fields["at"])}
    names = draw(st.lists(st.sampled_from([*fields]), unique=True, max_size=4))
    document = at | {name: draw(fields[name]) for name in names}
    text = json.dumps(document, indent=draw(st.sampled_from([None, None, 1])), ensure_ascii=draw(st.booleans()))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n", "\r"])))
    before, after = (draw(st.sampled_from(["", "", " ", "\n", "\r\n\t"])) for _ in range(2))
    return draw(st.sampled_from([b"", b"", b"", MARK])) + (before + text + after).encode()


@st.composite
def broken_values(draw: st.DrawFn) -> bytes:
    """A JSON object of which something was cut, doubled or replaced."""
    value = draw(json_values())
    at = draw(st.integers(0, len(value)))
    upto = draw(st.integers(at, len(value)))
    part = draw(st.sampled_from([b"", b"\n", b"\x00", b"\xff", b'"', b"}", b"{", b"}{", b"\\", value[at:upto] * 2]))
    return value[:at] + part + value[upto:]


values_ = json_values() | json_values() | broken_values() | st.sampled_from([None, b"", b"null", b"[]"])


@pytest.mark.deep
@given(st.lists(values_, max_size=9))
def test_random_messages_are_decoded_as_by_python(values: list[bytes | None]) -> None:
    assert_decoded(WIDE, values)


pieces = [
    *(
        b"{",
        b"}",
        b'"',
        b":",
        b",",
        b"[",
        b"]",
        b"\\",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b"\x00",
        b"\xff",
        b"1",
        b"-",
        b"null",
    ),
    *(
        b'"n"',
        b'"s"',
        b'{"n": 1}',
        b'{"s": "a"}',
        b'{"n": 1',
        b', "s": "b"}',
        b'"n": 2',
        b'{"s": "',
        b'"}',
        b"{}",
        MARK,
    ),
]


@pytest.mark.deep
@given(st.lists(st.lists(st.sampled_from(pieces), max_size=6).map(b"".join), min_size=1, max_size=6))
@example([b'{"n": 1', b', "s": "b"}', b'{"n": 1}{"n": 1}'])
@example([b'{"n": 1}{"n": 1}', b'{"n": 1}\x00{}', b"{}", b"{}"])
@example([b'{"s": "', b'"}', b"{}{}"])
@example([b'{"s": "\n', b'"}', b"{}{}"])
@example([MARK + b"{}", MARK + MARK + b"{}", b"{}" + MARK])
@example([b"{\r}", b"\r{}", b"{}\r\r{}"])
def test_hostile_bytes_are_decoded_as_by_python(values: list[bytes]) -> None:
    assert_decoded(NARROW, values)


@pytest.mark.parametrize("depth", [2_000, 200_000])
def test_a_deeply_nested_value_is_read_or_bad_and_its_neighbours_are_read(depth: int) -> None:
    """Only undeclared fields can be so deep, which the parser skips."""
    deep = b'{"n": 1, "deep": ' + b"[" * depth + b"]" * depth + b"}"
    rows, bad, _ = decoded(NARROW, [b'{"n": 0}', deep, deep[:-1], b'{"n": 2}'])
    assert ([row["n"] for row in rows], bad) == ([0, 1, 2], [2])
