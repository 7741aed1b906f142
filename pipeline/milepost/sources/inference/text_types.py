"""Decide the type of a column of texts from what its values look like.

A type is declared only if every value of the sample is written in its way. pyarrow's own inference is not used for
texts: it reads 007 as 7, and the text NA as null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from milepost.language import ColumnType, parse_type
from milepost.sources.inference.proposal import shown

STRING = parse_type("string")
_MAX_DIGITS = 38
_FLOAT_DIGITS = 15
"""A decimal number of up to this many digits survives a float64 unchanged."""

_FEW_TEXTS, _MOST = 3, 0.9
"""Up to `_FEW_TEXTS` distinct other values may mean null, if at least `_MOST` of all are of one kind."""

_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_CLOCK = r"[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?"
_OFFSET = r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)"
_CLASSES = {
    "empty": r"",
    "whole": r"[ \t]*-?(?:0|[1-9][0-9]*)[ \t]*",
    "fraction": r"[ \t]*-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?|\.[0-9]+)[ \t]*",
    "comma": r"-?(?:0|[1-9][0-9]*),[0-9]+",
    "boolean": r"true|True|TRUE|false|False|FALSE",
    "zoned": _DAY + _CLOCK + _OFFSET,
    "local": _DAY + _CLOCK,
    "date": _DAY,
    "ordered": r"[0-9]{1,2}([./-])[0-9]{1,2}[./-][0-9]{4}(?: [0-9]{2}:[0-9]{2}(?::[0-9]{2})?)?",
    "zeros": r"-?0[0-9]+",
    "nanos": rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}\.[0-9]{{7,}}{_OFFSET}?",
}
"""Class of values -> regular expression. A value is of the first class that it matches; any other is a text."""
_NOUNS = {
    "empty": "empty",
    "whole": "whole numbers",
    "fraction": "numbers",
    "comma": "numbers with a decimal comma",
    "boolean": "true or false",
    "zoned": "times with a zone",
    "local": "times without a zone",
    "date": "dates",
    "ordered": "dates with the year last",
    "zeros": "numbers with leading zeros",
    "nanos": "times with more than 6 decimals",
    "text": "text",
}
_SAME_TYPE = {
    "boolean": parse_type("bool"),
    "zoned": parse_type("timestamp[us, UTC]"),
    "local": parse_type("timestamp[us]"),
    "date": parse_type("date"),
}
_NUMBER_TYPES = {"whole": parse_type("int64"), "fraction": parse_type("float64")}
_TIMES = ("zoned", "local", "date")


@dataclass(frozen=True, slots=True)
class TextType:
    """A type for a column of texts, and why. `time_format`: a pattern that reads them as times; None: there is none."""

    type: ColumnType
    note: str
    time_format: str | None = None


@dataclass(frozen=True, slots=True)
class TextClasses:
    """The distinct values of a column, and how many values are of which class.

    Attributes:
        texts: class -> its distinct values with their counts.
    """

    texts: Mapping[str, Mapping[str, int]]

    def count(self, name: str) -> int:
        return sum(self.texts.get(name, {}).values())

    @property
    def names(self) -> list[str]:
        """The classes that occur, except empty values, the most frequent first."""
        return sorted((name for name in self.texts if name != "empty"), key=lambda name: -self.count(name))

    @property
    def values(self) -> int:
        """Number of values that are not empty."""
        return sum(map(self.count, self.names))


def classify(values: pa.ChunkedArray | pa.Array) -> TextClasses:
    """Return the classes of texts. Nulls count as empty."""
    counted = pc.value_counts(pc.fill_null(values, ""))
    if isinstance(counted, pa.ChunkedArray):
        counted = counted.combine_chunks()
    distinct, counts = counted.field("values"), counted.field("counts")
    texts: dict[str, dict[str, int]] = {}
    left = pa.array([True] * len(distinct), pa.bool_())
    for name, pattern in [*_CLASSES.items(), ("text", "(?s).*")]:
        fits = pc.and_(left, pc.match_substring_regex(distinct, rf"\A(?:{pattern})\z"))
        left = pc.and_(left, pc.invert(fits))
        if pc.any(fits).as_py():
            members = zip(distinct.filter(fits).to_pylist(), counts.filter(fits).to_pylist(), strict=True)
            texts[name] = dict(members)
    return TextClasses(texts)


def decide(classes: TextClasses, *, only_times: bool = False, decimal_comma: bool = False) -> TextType:
    """Return the type of a column of texts.

    Args:
        only_times: texts that the file itself distinguishes from numbers, as JSON does, stay strings unless they are
            times.
        decimal_comma: the reader takes a comma as the decimal point.
    """
    names = classes.names
    if not names:
        return TextType(STRING, "only empty values in the sample: declared as string")
    kinds = {"fraction" if decimal_comma and name == "comma" else name for name in names}
    if len(kinds) == 1 and (same := _SAME_TYPE.get(names[0])) and (names[0] in _TIMES or not only_times):
        return TextType(same, f"{_NOUNS[names[0]]}{_nulls(classes)}")
    if only_times:
        mixed = len(kinds) > 1 and kinds & {*_TIMES}
        return TextType(STRING, _mixture(classes).partition("; to read")[0] if mixed else "text")
    if kinds <= {"whole", "fraction"}:
        return _number(classes)
    if kinds == {"ordered"}:
        return _ordered_date(classes)
    if kinds == {"text"}:
        return TextType(STRING, f"text, {len(classes.texts['text']):,} distinct{_empty(classes)}")
    if "zeros" in kinds and kinds <= {"zeros", "whole"}:
        return TextType(STRING, "leading zeros, which a number would lose: declared as string")
    if len(kinds) == 1:
        return TextType(STRING, f"{_NOUNS[names[0]]}: declared as string")
    return TextType(STRING, _mixture(classes))


def has_decimal_comma(classes: TextClasses) -> bool:
    """Return whether a column has numbers with a decimal comma, and not only ones that may be thousands."""
    values = classes.texts.get("comma", {})
    return {*classes.names} <= {"whole", "comma"} and any(len(text.rpartition(",")[2]) != 3 for text in values)


def _nulls(classes: TextClasses) -> str:
    count = classes.count("empty")
    return f", {count:,} of {count + classes.values:,} empty (null)" if count else ""


def _empty(classes: TextClasses) -> str:
    count = classes.count("empty")
    return f", {count:,} of {count + classes.values:,} empty (empty string)" if count else ""


def _number(classes: TextClasses) -> TextType:
    texts = [text.strip().replace(",", ".") for name in classes.names for text in classes.texts[name]]
    plain = [text.lstrip("-").partition(".") for text in texts if "e" not in text.lower()]
    whole_digits = max((len(whole) for whole, _, _ in plain), default=0)
    scale = max((len(part) for _, _, part in plain), default=0)
    noun = _NOUNS["whole" if classes.names == ["whole"] else "fraction"]
    if classes.names == ["whole"]:
        if all(-(2**63) <= int(text) < 2**63 for text in texts if len(text) <= _MAX_DIGITS + 1) and whole_digits < 20:
            return TextType(parse_type("int64"), noun + _nulls(classes))
        beyond = "some beyond the range of int64"
        if whole_digits <= _MAX_DIGITS:
            return TextType(parse_type(f"decimal({_MAX_DIGITS},0)"), f"{noun}, {beyond}{_nulls(classes)}")
        return TextType(STRING, f"{noun}, some with {whole_digits:,} digits: declared as string")
    digits = max((len((whole + part).lstrip("0")) for whole, _, part in plain), default=0)
    if digits > _FLOAT_DIGITS:
        if len(plain) == len(texts) and whole_digits + scale <= _MAX_DIGITS:
            exact = parse_type(f"decimal({_MAX_DIGITS},{scale})")
            return TextType(exact, f"{noun}, some with {digits} digits, which a float64 would round{_nulls(classes)}")
        return TextType(
            STRING, f"{noun}, some with {digits} digits: declared as string, because numbers would be rounded"
        )
    exact_sums = f'; for exact sums: "decimal(18,{scale})"' if len(plain) == len(texts) and scale <= 4 else ""
    return TextType(parse_type("float64"), noun + _nulls(classes) + exact_sums)


def _ordered_date(classes: TextClasses) -> TextType:
    """Return a string, with a pattern if the values show whether the day or the month is first."""
    texts = classes.texts["ordered"]
    example = next(iter(texts))
    parts = [re.split(r"[./ -]", text, maxsplit=3) for text in texts]
    first, second = (max(int(part[at]) for part in parts) for at in (0, 1))
    if first <= 12 and second <= 12:
        note = f"dates such as {shown(example)}, ambiguous: day or month first; declared as string"
        return TextType(STRING, note)
    if first > 12 and second > 12:
        return TextType(
            STRING, f"dates such as {shown(example)}, some with the day first, some with the month first: string"
        )
    padded = all(len(part[0]) == 2 == len(part[1]) for part in parts)
    day, month = ("dd", "MM") if padded else ("d", "M")
    mark, clocks = example.strip("0123456789")[0], {text.count(":") for text in texts}
    order = "day" if first > 12 else "month"
    same = len(clocks) == 1 and all(text.count(mark) == 2 for text in texts)
    clock = {0: "", 1: " HH:mm", 2: " HH:mm:ss"}[min(clocks)]
    pattern = mark.join((day, month, "yyyy") if order == "day" else (month, day, "yyyy")) + clock if same else None
    return TextType(STRING, f"dates with the {order} first: declared as string", pattern)


def _mixture(classes: TextClasses) -> str:
    """Return which values are of which class, and why they are declared as string."""
    first, *others = classes.names
    parts = [f"{classes.count(first):,} of {classes.values:,} values are {_NOUNS[first]}"]
    counts = {name: classes.count(name) for name in others[:3]}
    parts += [f"{count:,} {_are(count)} {_of(name, [*classes.texts[name]])}" for name, count in counts.items()]
    other = _SAME_TYPE.get(first) or _NUMBER_TYPES.get(first)
    texts = [text for name in others for text in classes.texts[name]]
    null = f"; to read the others as null, declare {other} and add them to null_values"
    is_rare = len(texts) <= _FEW_TEXTS and classes.count(first) >= _MOST * classes.values
    return "; ".join(parts) + ": declared as string" + (null if other and is_rare else "")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _of(name: str, texts: list[str]) -> str:
    if name != "text":
        return _NOUNS[name]
    more = ", …" if len(texts) > 3 else ""
    return ", ".join(map(shown, texts[:3])) + more
