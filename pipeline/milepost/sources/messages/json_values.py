"""Decode message values that are one JSON object each, by the rules of JSON lines.

The values of a batch are joined by line ends and parsed together.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from milepost.sources.contract import BadRecord
from milepost.sources.json_lines import BLANK, JsonObjects
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.sources.kernel.diagnosis import RawRecord, find_rejected

_MARK = b"\xef\xbb\xbf"
_BLANK = BLANK.encode()
_OPENS, _CLOSES = b"{}"
_STRING = rb'"(?:[^"\\\r\n]|\\[^\r\n])*"'
_STRINGS = re.compile(_STRING)
_STRING_OR_END = re.compile(b"(" + _STRING + rb")|[\r\n]")


class JsonValues:
    """Decodes values as rows of the declared columns; picklable.

    Attributes:
        schema: of the rows.
    """

    def __init__(self, declared: DeclaredColumns) -> None:
        self.schema = declared.schema
        self._columns, self._objects = declared.file_schema, JsonObjects(declared)

    def decode(self, values: pa.Array) -> pa.RecordBatch:
        """Return one row per value.

        Args:
            values: binary, without nulls.
        Raises:
            DATA_ERRORS, UnicodeDecodeError: a value cannot be decoded. `errors` finds out which.
        """
        if not len(values):
            return pa.RecordBatch.from_pylist([], self.schema)
        if not _are_braced(values):
            values = pa.array([_one_line(value) for value in values.to_pylist()], pa.binary())
            if values.null_count or not _are_braced(values):
                raise pa.ArrowInvalid("a value is not a JSON object")
        return self._objects.rows(_joined(values), len(values))

    def errors(self, key: str, values: pa.Array) -> dict[int, BadRecord]:
        """Return the error of each value that cannot be decoded, by its index. `key` is that of their object."""
        readable: list[RawRecord] = []
        bad: list[RawRecord] = []
        for at, value in enumerate(values.to_pylist()):
            line = _one_line(value)
            record = RawRecord(at, _text(value if line is None else line) + "\n")
            (bad if line is None else readable).append(record)
        bad += find_rejected(
            readable, lambda records: self._objects.complaint(self._columns, records) is None, self._objects.looks_bad
        )
        return {record.line: self._objects.explain(key, record) for record in bad}


def _are_braced(values: pa.Array) -> bool:
    """Return whether each value begins with `{` and ends with `}`."""
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    if (np.diff(bounds) < 2).any():
        return False
    content = np.frombuffer(data, np.uint8)
    return bool((content[bounds[:-1]] == _OPENS).all() and (content[bounds[1:] - 1] == _CLOSES).all())


def _joined(values: pa.Array) -> pa.Buffer:
    """Return the values as one text, separated by line ends."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    return pc.binary_join(whole, b"\n")[0].as_buffer()


def _one_line(value: bytes) -> bytes | None:
    r"""Return a value on one line, without a byte order mark; None if it is blank or has a line end in a string.

    ``{\n "a": 1\n}`` becomes ``{  "a": 1 }``. A line end in a string is not JSON, so no string spans two lines.
    """
    text = value.removeprefix(_MARK).strip(_BLANK)
    if b"\n" not in text and b"\r" not in text:
        return text or None
    if b'"' in _STRINGS.sub(b"", text):
        return None
    return _STRING_OR_END.sub(lambda match: match[1] or b" ", text)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")
