"""Whatever texts a CSV column has, the proposed type reads each of them as the same value."""

from __future__ import annotations

import csv
import io
import tempfile
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidRequest
from milepost.jobspec.job import FileSourceSpec
from milepost.protocol.records import StoreConfig, file_url
from milepost.sources import build_reader, whole_object
from milepost.sources.inference import ProposedSource, infer_source
from milepost.sources.planning import list_objects
from milepost.storage import open_store
from milepost_testkit.profiles import examples

DIGITS = st.text("0123456789", min_size=1, max_size=40)
CELLS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    DIGITS,
    st.builds("{}{}.{}".format, st.sampled_from(["", "-", "+"]), DIGITS, DIGITS),
    st.floats().map(repr),
    st.sampled_from(
        ["", "NA", "n/a", "null", "NaN", "true", "FALSE", "True", "0", "1", "-0", " 5", "5 ", "1,5", "1e3"]
    ),
    st.datetimes().map(str),
    st.datetimes().map(lambda time: f"{time.isoformat()}Z"),
    st.dates().map(str),
    st.dates().map(lambda day: f"{day.day:02}.{day.month:02}.{day.year:04}"),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8),
)
COLUMNS = st.one_of(
    st.lists(CELLS, min_size=1, max_size=6),
    *(st.lists(cell, min_size=1, max_size=6) for cell in (DIGITS, st.dates().map(str), st.integers().map(str))),
)


def proposed_and_read(column: list[str]) -> tuple[ProposedSource, list[Any]]:
    """Propose a source over a file with this column and another one; return the values that its reader reads."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["a", "b"], *([cell, "x"] for cell in column)])
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "cells.csv").write_text(text.getvalue(), encoding="utf-8")
        store = open_store(StoreConfig(url=file_url(Path(folder).resolve())))
        source = infer_source(store, "cells.csv", "cells.csv")
        schema = {one.name: one.type for one in source.declared}
        spec = {"format": "csv", "path": "x", "options": dict(source.options), "schema": schema}
        reader = build_reader("s", FileSourceSpec.model_validate(spec))
        (obj,) = list_objects(store, "cells.csv").objects
        rows = [row for batch in reader.read_part(store, whole_object(obj)) for row in batch.to_pylist()]
    return source, [row["a"] for row in rows]


def is_same(text: str, value: Any, decimal_point: str) -> bool:
    """Return whether a value is what a text says. Only an empty text is null."""
    number = text.strip(" \t").replace(decimal_point, ".")
    match value:
        case None:
            return text == ""
        case bool():
            return text.lower() == str(value).lower()
        case int():
            return str(value) == number or (number == "-0" and value == 0)
        case Decimal():
            return Decimal(number) == value
        case float():
            return Decimal(number) == Decimal(repr(value)) or (float(number) == value and "e" in number.lower())
        case datetime():
            return datetime.fromisoformat(text.replace("Z", "+00:00")) == value
        case date():
            return str(value) == text
        case _:
            return value == text


@given(COLUMNS)
@examples(share=0.5)
def test_the_proposed_type_reads_every_value_as_it_is_written(column: list[str]) -> None:
    try:
        source, values = proposed_and_read(column)
    except InvalidRequest as refusal:
        assert "Nothing was written" in refusal.message
        return
    point = str(source.options.get("decimal_point", "."))
    assert len(values) == len(column)
    wrong = [(text, value) for text, value in zip(column, values, strict=True) if not is_same(text, value, point)]
    assert not wrong, source.columns
