"""Datetime patterns use Spark's letters, and refuse ambiguous or unsupported ones by name."""

from __future__ import annotations

import re

import pytest

from milepost.language.times.datetime_pattern import accepts_all_of, parse_pattern
from milepost_testkit import wording


@pytest.mark.parametrize(
    ("pattern", "text", "parts"),
    [
        ("dd.MM.yyyy HH", "03.01.2026 10", {"day": "03", "month": "01", "year": "2026", "hour": "10"}),
        ("yyyyMMdd", "20260103", {"year": "2026", "month": "01", "day": "03"}),
        ("d/M/yy", "3/1/26", {"day": "3", "month": "1", "short_year": "26"}),
        ("yyyy-MM-dd'T'X", "2026-01-03TZ", {"year": "2026", "month": "01", "day": "03", "offset": "Z"}),
        ("MMM d yyyy 'o''clock'", "Jan 3 2026 o'clock", {"short_month": "Jan", "day": "3", "year": "2026"}),
        ("MMMM dd yyyy ''", "May 03 2026 '", {"long_month": "May", "day": "03", "year": "2026"}),
        ("yyyy年MM月dd", "2026年01月03", {"year": "2026", "month": "01", "day": "03"}),
        ("yyyyMMdd[ HH[:mm]]", "20260103", {"year": "2026", "month": "01", "day": "03", "hour": None, "minute": None}),
    ],
)  # fmt: skip
def test_a_pattern_extracts_the_parts_of_a_text(pattern: str, text: str, parts: dict[str, str | None]) -> None:
    match = re.fullmatch(parse_pattern(pattern).expression, text)
    assert match is not None and match.groupdict() == parts
    assert re.fullmatch(parse_pattern(pattern).expression, text.replace("2", "two", 1)) is None


@pytest.mark.parametrize(
    "pattern",
    [
        "YYYY-MM-dd",
        "yyyy-MM-dd HH:mm z",
        "yyyy-MM-ddTHH",
        "EEE, dd MMM yyyy",
        "yyyyy-MM-dd",
        "%d.%m.%Y",
        "dd.MM",
        "yyyy-MM[-dd]",
        "yyyy-MM-dd mm",
        "dd.mm.yyyy HH:MM",
        "yyyy-m-dd hh:MM a",
        "yyyy-MM-dd hh:mm",
        "yyyy-MM-dd HH a",
        "yyyy-MM-dd MMM",
        "yyyy-MM-dd HH h a",
        "dMyyyy",
        "yyyy-MM-dd [HH",
        "yyyy-MM-dd]",
        "yyyy-MM-dd 'at",
        "yyyy-MM-dd #",
        "yyyy-MM-dd" + "." * 100,
    ],
)
def test_an_ambiguous_or_unsupported_pattern_is_refused(pattern: str) -> None:
    with wording.raises(ValueError):
        parse_pattern(pattern)


@pytest.mark.parametrize(
    ("pattern", "former", "expected"),
    [
        ("dd.MM.yyyy", "dd.MM.yyyy", True),
        ("dd.MM.yyyy[ HH:mm]", "dd.MM.yyyy", True),
        ("dd.MM.yyyy[ HH:mm]", "dd.MM.yyyy HH:mm", True),
        ("dd.MM.yyyy[ HH:mm[:ss[.SSS]]]", "dd.MM.yyyy[ HH:mm]", True),
        ("dd.MM.yyyy HH:mm", "dd.MM.yyyy[ HH:mm]", False),
        ("MM.dd.yyyy", "dd.MM.yyyy", False),
        ("dd.MM.yyyy'[ HH]'", "dd.MM.yyyy", False),
        ("dd.MM.yyyy" + "[.]" * 20, "dd.MM.yyyy", False),
        ("dd.MM.yyyy", "dd.MM.yyyy" + "[.]" * 20, False),
        ("dd.MM.yyyy", "dd.MM.yyyy]]", False),
    ],
)
def test_a_pattern_with_more_optional_parts_accepts_the_same_texts(pattern: str, former: str, expected: bool) -> None:
    assert accepts_all_of(pattern, former) is expected
