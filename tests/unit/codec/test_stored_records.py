"""Declarations of stored records: field types, ranges, rows, formats and checks of several fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest

from milepost.codec.fields import Count, Sha256, StoredAs, StoredName, Text
from milepost.codec.readers import fields_of
from milepost.codec.records import decode, encode, from_json, prepare_codec, to_json
from milepost.errors import StateCorrupt
from milepost.protocol.records.own_keys import OwnKey
from milepost_testkit import wording


@dataclass(frozen=True, slots=True)
class Mark:
    stored_as_row: ClassVar[bool] = True

    version: Count
    timeline: str
    planned_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """Two ranges, the second within the first."""

    stored_format: ClassVar[str] = "part/2"

    groups: range
    valid: range

    def check(self) -> str | None:
        """Return what is wrong with values that fit one by one; None when they belong together."""
        return None if self.valid.stop <= self.groups.stop else f"{self.valid} is not within {self.groups}"


def _hex(value: bytes) -> str:
    return value.hex()


@dataclass(frozen=True, slots=True)
class Whole:
    name: Text
    body: Annotated[bytes, StoredAs(str, _hex, bytes.fromhex)]
    number: Annotated[int, StoredName("no")]
    key: OwnKey
    sha256: Sha256
    marks: Sequence[Mark]
    counts: Mapping[str, int | float]
    newest: Mark | None
    offsets: tuple[Count, ...]
    opaque: Any
    part: Part


WHOLE = Whole(
    "ä", b"\x01\xff", 7, "chk-1/x", "a" * 64, (Mark(1, "main", 3), Mark(2, "main")), {"rows": 1, "share": 0.5}, None,
    (0, 3), [1, {"a": None}], Part(range(4), range(1, 4)),
)  # fmt: skip
STORED: dict[str, Any] = {
    "name": "ä", "body": "01ff", "no": 7, "key": "chk-1/x", "sha256": "a" * 64,
    "marks": [[1, "main", 3], [2, "main", None]], "counts": {"rows": 1, "share": 0.5}, "newest": None,
    "offsets": [0, 3], "opaque": [1, {"a": None}], "part": {"format": "part/2", "groups": [0, 4], "valid": [1, 4]},
}  # fmt: skip


def test_declared_fields_are_stored_and_read_back() -> None:
    assert to_json(WHOLE) == STORED
    assert decode(Whole, encode(WHOLE), "whole") == WHOLE


def test_a_row_may_end_before_fields_that_have_defaults() -> None:
    assert from_json(Mark, [1, "main"], "mark") == Mark(1, "main")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"name": ""}, ".name"),
        ({"body": "0g"}, ".body"),
        ({"no": "7"}, ".no"),
        ({"number": 7}, "number"),
        ({"key": "../x"}, ".key"),
        ({"key": "chk-1/"}, ".key"),
        ({"sha256": "A" * 64}, ".sha256"),
        ({"marks": [[1]]}, ".marks[0]"),
        ({"marks": [[1, "main", 3, 4]]}, ".marks[0]"),
        ({"marks": [{"version": 1, "timeline": "main", "planned_ms": 3}]}, ".marks[0]"),
        ({"marks": [[-1, "main", 3]]}, ".marks[0][0]"),
        ({"marks": [[True, "main", 3]]}, ".marks[0][0]"),
        ({"marks": "main"}, ".marks"),
        ({"counts": {"rows": True}}, ".counts.rows"),
        ({"counts": {"rows": "1"}}, ".counts.rows"),
        ({"newest": [1, 2]}, ".newest[1]"),
        ({"offsets": [0, -3]}, ".offsets[1]"),
        ({"part": {"groups": [0, 4], "valid": [1, 4]}}, "whole: "),
        ({"part": {"format": "part/1", "groups": [0, 4], "valid": [1, 4]}}, "whole: "),
        ({"part": {"format": "part/2", "groups": [0, 4], "valid": [1, 5]}}, ".part"),
        ({"part": {"format": "part/2", "groups": [4, 4], "valid": [1, 4]}}, ".part.groups"),
        ({"part": {"format": "part/2", "groups": [-1, 4], "valid": [1, 4]}}, ".part.groups"),
        ({"part": {"format": "part/2", "groups": [4, 1], "valid": [1, 4]}}, ".part.groups"),
        ({"part": {"format": "part/2", "groups": [0, True], "valid": [1, 4]}}, ".part.groups"),
        ({"part": {"format": "part/2", "groups": [0, 1, 2], "valid": [1, 4]}}, ".part.groups"),
        ({"part": {"format": "part/2", "groups": 4, "valid": [1, 4]}}, ".part.groups"),
    ],
)
def test_a_mismatch_is_reported_with_its_path(change: dict[str, Any], place: str) -> None:
    with wording.raises(StateCorrupt) as refused:
        from_json(Whole, STORED | change, "whole")
    assert place in str(refused.value)


def test_an_error_has_the_hint_and_the_details_of_its_caller() -> None:
    with pytest.raises(StateCorrupt) as told:
        decode(Mark, b"[]", "mark", hint="delete it", key="a/b")
    assert (told.value.hint, told.value.details) == ("delete it", {"key": "a/b"})
    with wording.raises(StateCorrupt):
        decode(Mark, b"[", "mark")


def test_records_that_were_made_ready_find_out_nothing_when_they_are_read_and_written() -> None:
    for kind in (Whole, Part, Mark, int):  # of what is no record there is nothing to find out
        prepare_codec(kind)
    known = fields_of.cache_info().misses
    assert decode(Whole, encode(WHOLE), "x") == WHOLE
    assert fields_of.cache_info().misses == known
