"""The type that is proposed for a column of texts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from milepost.sources.inference.text_types import classify, decide, has_decimal_comma


def type_of(*texts: str, only_times: bool = False, decimal_comma: bool = False) -> str:
    classes = classify(pa.array(texts, pa.string()))
    return str(decide(classes, only_times=only_times, decimal_comma=decimal_comma).type)


@pytest.mark.parametrize(
    ("texts", "type_"),
    [
        (("1", "-7", ""), "int64"),
        (("9223372036854775807",), "int64"),
        (("9223372036854775808",), "decimal(38,0)"),
        (("1" * 38,), "decimal(38,0)"),
        (("1" * 39,), "string"),
        (("0.123456789012345",), "float64"),
        (("0.1234567890123456",), "decimal(38,16)"),
        (("1.1234567890123456", "1" * 23), "string"),
        (("007", "1"), "string"),
        (("true", "FALSE"), "bool"),
        (("true", "1"), "string"),
        (("2024-01-01",), "date"),
        (("2024-01-01T10:00:00Z",), "timestamp[us, UTC]"),
        (("2024-01-01 10:00",), "timestamp[us]"),
        (("2024-01-01T10:00:00Z", "2024-01-01T10:00:00"), "string"),
        (("2024-01-01T10:00:00.1234567Z",), "string"),
        (("", None), "string"),
    ],
)
def test_a_type_holds_every_text_without_loss(texts: tuple[str, ...], type_: str) -> None:
    assert type_of(*texts) == type_


def test_texts_that_a_file_quotes_are_times_or_strings() -> None:
    assert type_of("1", "2", only_times=True) == "string"
    assert type_of("true", only_times=True) == "string"
    assert type_of("2024-01-01", only_times=True) == "date"


def test_a_decimal_comma_makes_numbers_only_of_a_reader_that_takes_it() -> None:
    assert (type_of("1,5", "2"), type_of("1,5", "2", decimal_comma=True)) == ("string", "float64")


@pytest.mark.parametrize(
    ("texts", "is_comma"),
    [(("1,5", "2"), True), (("1,500", "2"), False), (("1,5", "2.5"), False), (("1,5", "x"), False)],
)
def test_a_comma_before_three_digits_may_separate_thousands(texts: tuple[str, ...], is_comma: bool) -> None:
    assert has_decimal_comma(classify(pa.array(texts, pa.string()))) is is_comma


@pytest.mark.parametrize(
    ("texts", "pattern"),
    [
        (("31.01.2024", "01.02.2024"), "dd.MM.yyyy"),
        (("01/31/2024", "02/01/2024"), "MM/dd/yyyy"),
        (("31.1.2024", "1.2.2024"), "d.M.yyyy"),
        (("31.01.2024 10:20:30",), "dd.MM.yyyy HH:mm:ss"),
        (("12.01.2024", "01.12.2024"), None),
        (("31.01.2024", "01.31.2024"), None),
        (("31.01.2024", "31/01/2024"), None),
        (("31.01.2024", "31.01.2024 10:20"), None),
    ],
)
def test_dates_with_the_year_last_have_a_pattern_if_their_order_is_certain(
    texts: tuple[str, ...], pattern: str | None
) -> None:
    decision = decide(classify(pa.array(texts, pa.string())))
    assert (str(decision.type), decision.time_format) == ("string", pattern)
