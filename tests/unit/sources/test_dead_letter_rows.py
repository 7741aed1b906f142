"""A record that cannot be read becomes a row, whatever text the parser quotes."""

from __future__ import annotations

import pytest

from milepost.jobspec.job.sources.file_source import FileSourceSpec
from milepost.sources.contract import BadRecord
from milepost.sources.dead_letter_rows import dead_letter_schema, dead_letters


@pytest.mark.parametrize("field", ["value", "reason", "engine_message"])
def test_half_of_a_surrogate_pair_is_replaced_in_every_text_of_a_bad_record(field: str) -> None:
    """A parser quotes such a name of a schema as it is, and no file or table can hold it."""
    texts = {"value": "v", "reason": "cannot be parsed", "engine_message": "shop"} | {field: "shop.lo\ud800"}
    bad = BadRecord("1.csv", 2, "k", texts["value"], texts["reason"], engine_message=texts["engine_message"])
    source = FileSourceSpec.model_validate({"format": "csv", "path": "in/*.csv", "schema": {"k": "string"}})
    (row,) = dead_letters([bad], dead_letter_schema(source)).to_pylist()
    assert "shop.lo\ufffd" in f"{row['value']} {row['reason']}"
    str(bad).encode()
