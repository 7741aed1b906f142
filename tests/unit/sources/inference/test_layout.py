"""How the separator, header and end of text files are recognised, and which files are sampled."""

from __future__ import annotations

import pytest

from milepost.errors import InvalidRequest
from milepost.sources.contract import SourceObject
from milepost.sources.inference.csv_columns import csv_layout
from milepost.sources.inference.files import FoundFiles, format_of, partition_columns
from milepost.sources.inference.text_heads import TextHead


def head(text: str, *, is_whole: bool = True, key: str = "a.csv") -> TextHead:
    return TextHead(key, text, "utf-8", is_whole)


def test_a_head_ends_with_a_whole_line_or_record() -> None:
    assert head("a\nb\nc", is_whole=False).by_lines().text == "a\nb\n"
    assert head("a\nb\nc").by_lines().text == "a\nb\nc"
    assert head('a,b\n1,"x\ny"\n2,"z\n', is_whole=False).by_records(",").text == 'a,b\n1,"x\ny"\n'


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_separator_is_the_one_by_which_records_have_equal_numbers_of_fields(delimiter: str) -> None:
    text = f"a{delimiter}b\n1{delimiter}x,y\n2{delimiter}z\n"
    if delimiter == ",":
        text = "a,b\n1,x;y\n2,z\n"
    assert csv_layout([head(text)]).delimiter == delimiter


def test_a_first_line_with_a_number_is_no_header_unless_it_is_a_year() -> None:
    assert csv_layout([head("1,x\n2,y\n")]).headers == (("column_1", "column_2"),)
    assert csv_layout([head("name,2024\nx,5\n")]).headers == (("name", "2024"),)


def test_files_of_different_kinds_are_refused() -> None:
    with pytest.raises(InvalidRequest):
        csv_layout([head("a,b\nx,y\n"), head("c,d\nx,y\n", key="b.csv")])
    with pytest.raises(InvalidRequest):
        csv_layout([head("a,b\nx,y\n"), head("1,x\n2,y\n", key="b.csv")])
    assert len(csv_layout([head("a,b\nx,y\n"), head("a,c\nx,y\n", key="b.csv")]).headers) == 2


@pytest.mark.parametrize(
    ("count", "chosen"), [(1, [0]), (3, [0, 1, 2]), (100, [0, 11, 22, 33, 44, 55, 66, 77, 88, 99])]
)
def test_a_sample_has_the_first_and_the_last_file(count: int, chosen: list[int]) -> None:
    objects = tuple(SourceObject(f"{at:03}.csv", "e", 1, 0) for at in range(count))
    assert [int(obj.key[:3]) for obj in FoundFiles("*", objects, ()).sample] == chosen


@pytest.mark.parametrize(
    ("key", "beginning", "format_"),
    [
        ("a.csv", b"PAR1", "parquet"),
        ("a", b'\xef\xbb\xbf {"a": 1}', "json"),
        ("a", b"a,b", "csv"),
        ("a.json.gz", b"", "json"),
    ],
)
def test_a_format_is_recognised_by_the_first_bytes_and_then_by_the_name(
    key: str, beginning: bytes, format_: str
) -> None:
    assert format_of(key, beginning) == format_


@pytest.mark.parametrize(
    ("key", "beginning"), [("a.parquet", b"a,b"), ("a.csv", b"PK\x03\x04"), ("a.csv", b"\x1f\x8b")]
)
def test_a_file_that_no_source_reads_is_refused(key: str, beginning: bytes) -> None:
    with pytest.raises(InvalidRequest):
        format_of(key, beginning)


def test_only_names_that_all_keys_have_are_partitions() -> None:
    objects = [
        SourceObject(key, "e", 1, 0) for key in ("day=2024-01-01/n=1/a", "day=2024-01-02/n=x/b", "day=2024-01-03/c")
    ]
    assert [(column.name, str(column.type)) for column in partition_columns(objects, ())] == [("day", "date")]
    of_two = partition_columns(objects[:2], ("DAY",))
    assert [(column.name, str(column.type)) for column in of_two] == [("day", "None"), ("n", "string")]
