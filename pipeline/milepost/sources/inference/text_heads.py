"""Read the beginnings of text files: decompressed, in UTF-8, and cut after a whole record."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
from dataclasses import dataclass, replace

from milepost.protocol.records import ObjectStore
from milepost.sources.contract import BadObject, SourceObject
from milepost.sources.inference.proposal import refused
from milepost.sources.kernel.streams import ObjectBody, ObjectStream, RangeReader

HEAD_BYTES = 4 << 20
"""Decompressed bytes of each text file that are read at most."""

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class TextHead:
    """The beginning of one text file.

    Attributes:
        key: of the file.
        text: decoded, with the byte order mark.
        encoding: `utf-16` if the file begins with its byte order mark, otherwise `utf-8`.
        is_whole: whether `text` is the whole file.
    """

    key: str
    text: str
    encoding: str
    is_whole: bool

    @property
    def size(self) -> int:
        return len(self.text.encode())

    def by_lines(self) -> TextHead:
        """Return it without a last line that was cut."""
        return self if self.is_whole else replace(self, text=self.text[: self.text.rfind("\n") + 1])

    def by_records(self, delimiter: str) -> TextHead:
        """Return it without a last CSV record that was cut. A quoted value may contain line ends."""
        if self.is_whole:
            return self
        lines = [*io.StringIO(self.text, newline="")]
        reader = csv.reader(iter(lines), delimiter=delimiter)
        ends = [0]
        with contextlib.suppress(csv.Error):
            ends += [reader.line_num for _ in reader]
        return replace(self, text="".join(lines[: ends[-2] if len(ends) > 1 else 0]))


def first_bytes(store: ObjectStore, obj: SourceObject) -> bytes:
    """Return the first bytes of a file, decompressed. Raises InvalidRequest: it cannot be decompressed."""
    return _read(obj.key, _body(store, obj).beginning(), 64)[0]


def read_head(store: ObjectStore, obj: SourceObject) -> TextHead:
    """Return the beginning of a text file. Raises InvalidRequest: it is not text in UTF-8 or UTF-16."""
    content, is_whole = _read(obj.key, _body(store, obj), HEAD_BYTES)
    encoding = "utf-16" if content.startswith(_UTF16) else "utf-8"
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(content, final=is_whole)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise refused(
            f"{obj.key} is not in UTF-8: line {line} has the byte 0x{content[error.start]:02x}.",
            "Convert it, such as by `iconv -f WINDOWS-1252 -t UTF-8`, or write the spec with `options: {encoding: …}`.",
        ) from error
    if "\x00" in text:
        line = text[: text.index("\x00")].count("\n") + 1
        raise refused(f"{obj.key} is not text: line {line} has a null character.", "Export it as CSV, JSON or Parquet.")
    return TextHead(obj.key, text, encoding, is_whole)


def _body(store: ObjectStore, obj: SourceObject) -> ObjectBody:
    return ObjectBody(obj.size, lambda: RangeReader(store, obj))


def _read(key: str, body: ObjectBody, most: int) -> tuple[bytes, bool]:
    """Return up to `most` bytes of a file, decompressed, and whether these are all."""
    stream = ObjectStream(key, body)
    content = io.BytesIO()
    try:
        while content.tell() <= most and (chunk := stream.read(most + 1 - content.tell())):
            content.write(chunk)
    except BadObject as error:
        raise refused(f"{error}.", "Remove it, or write it again.") from error
    read = content.getvalue()
    return read[:most], len(read) <= most
