"""Open the planned version of an object as a stream: decompressed, in UTF-8, bounded in size."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable

import pyarrow as pa

from milepost.protocol.records import ObjectStore
from milepost.sources.contract import BadObject, SourceObject
from milepost.sources.kernel.arrow_errors import DATA_ERRORS
from milepost.sources.kernel.text_parts import ForwardFile, TextPart

CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""Key extension to compression. Objects with another extension are not compressed."""

MAX_EXPANSION = 1_000
"""An object that expands by more than this factor is refused: it would exhaust the worker's memory."""

EXPANSION_FREE_BYTES = 64 << 20
"""The factor is not checked up to this many decompressed bytes."""

_CHUNK = 1 << 20

MAX_WHOLE_READ_BYTES = 32 << 20
"""Objects up to this size are read in one request and cached in memory. Larger ones are read in blocks."""

_BLOCK = 8 << 20

_TAIL = 1 << 18
"""Bytes per request beyond the end of a part, where only the rest of one line is needed."""


class ObjectBody:
    """The raw bytes of one object version, which can be read any number of times.

    Attributes:
        size: size in bytes.
        in_memory: whether the bytes are cached in memory.

    Args:
        content: the bytes, or a function that opens an object too large to cache.
    """

    def __init__(self, size: int, content: bytes | Callable[[], RangeReader]) -> None:
        self.size = size
        self.in_memory = isinstance(content, bytes)
        self._content = content

    def beginning(self) -> ObjectBody:
        """Return this body for reading only its first lines, which takes small requests."""
        opened = self._content
        if isinstance(opened, bytes):
            return self

        def content() -> RangeReader:
            raw = opened()
            raw.small_reads_from = 0
            return raw

        return ObjectBody(self.size, content)

    def stream(self) -> pa.NativeFile:
        """Open the body for reading forward, block by block."""
        if isinstance(self._content, bytes):
            return pa.BufferReader(self._content)
        return pa.PythonFile(io.BufferedReader(self._content(), _BLOCK), mode="r")

    def part(self, start: int, stop: int) -> pa.NativeFile:
        """Open the lines that begin in a byte range of a text, for reading forward."""
        first = max(start - 1, 0)
        if isinstance(self._content, bytes):
            return pa.PythonFile(TextPart(io.BytesIO(self._content[first:]), start, stop), mode="r")
        raw = self._content()
        raw.seek(first)
        raw.small_reads_from = stop
        return pa.PythonFile(TextPart(io.BufferedReader(raw, _BLOCK), start, stop), mode="r")

    def lines_before(self, start: int) -> int:
        """Count the lines of a text that begin before an offset, by reading it up to there."""
        lines, last = 0, b""
        with self.part(0, start) as text:
            while chunk := text.read(_CHUNK):
                lines += chunk.count(b"\n") + chunk.count(b"\r") - chunk.count(b"\r\n")
                lines -= last == b"\r" and chunk.startswith(b"\n")
                last = chunk[-1:]
        return lines

    def file(self) -> pa.NativeFile:
        """Open the body for random access. Each read is one request, unless the body is in memory."""
        if isinstance(self._content, bytes):
            return pa.BufferReader(self._content)
        return pa.PythonFile(self._content(), mode="r")


class RangeReader(io.RawIOBase):
    """One version of a large object as a file. `readinto` raises what `ObjectStore.get_range` raises.

    Attributes:
        small_reads_from: offset from which one read returns at most `_TAIL` bytes; None: reads are not shortened.
    """

    def __init__(self, store: ObjectStore, obj: SourceObject) -> None:
        super().__init__()
        self.small_reads_from: int | None = None
        self._store, self._object, self._position = store, obj, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._object.size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, target: memoryview) -> int:  # type: ignore[override]
        stop = min(self._position + len(target), self._object.size)
        if stop <= self._position:
            return 0
        if self.small_reads_from is not None:
            stop = min(stop, max(self._position, self.small_reads_from) + _TAIL)
        part = self._store.get_range(self._object.key, self._object.etag, self._position, stop)
        target[: len(part)] = part
        self._position = stop
        return len(part)


def open_object(store: ObjectStore, obj: SourceObject) -> ObjectBody:
    """Open the planned version of an object. A small one is read immediately, a large one later.

    Raises:
        CommitConflict: the object has another version now. NotFound: it was deleted. A large object raises both on
            each read.
    """
    if obj.size > MAX_WHOLE_READ_BYTES:
        return ObjectBody(obj.size, lambda: RangeReader(store, obj))
    body = store.get_if_match(obj.key, obj.etag)
    return ObjectBody(len(body), body)


class ObjectStream(ForwardFile):
    """Reads an object's content forward, decompressed and as UTF-8; pyarrow accepts it as a file.

    Attributes:
        quotes: occurrences of `quote` so far.

    Args:
        lines: byte range of an uncompressed UTF-8 text: only lines that begin in it are read; None: all.
    """

    def __init__(
        self,
        key: str,
        body: ObjectBody,
        *,
        encoding: str = "utf-8",
        quote: str = "",
        lines: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.quotes = 0
        self._key = key
        self._size = body.size
        self._quote = quote.encode()
        self._codec = next((codec for suffix, codec in CODECS.items() if key.endswith(suffix)), None)
        raw = body.stream() if lines is None else body.part(*lines)
        try:
            self._source = raw if self._codec is None else pa.CompressedInputStream(raw, self._codec)
        except (*DATA_ERRORS, OSError) as error:
            raise self._broken(error) from error
        self._expanded = 0
        self._lines = 0
        self._encoding = encoding
        utf8 = codecs.lookup(encoding).name == "utf-8"
        self._decoder = None if utf8 else codecs.getincrementaldecoder(encoding)("strict")

    def _next(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            BadObject: the compressed data is broken or expands too far, or the text is not in its encoding.
        """
        while True:
            try:
                chunk = self._source.read(max(min(size, _CHUNK), 4096))
            except (*DATA_ERRORS, OSError) as error:
                raise self._broken(error) from error
            self._expanded += len(chunk)
            if self._expanded > max(EXPANSION_FREE_BYTES, self._size * MAX_EXPANSION):
                raise BadObject(
                    self._key, None, None, None, f"it expands to more than {MAX_EXPANSION} times its {self._size} bytes"
                )
            text = chunk if self._decoder is None else self._decoded(chunk)
            if text or not chunk:
                if self._quote:
                    self.quotes += text.count(self._quote)
                return text

    def _decoded(self, chunk: bytes) -> bytes:
        assert self._decoder is not None
        try:
            text = self._decoder.decode(chunk, final=not chunk)
        except UnicodeError as error:  # UTF-16 without a byte order mark raises a plain UnicodeError
            valid = error.object[: error.start] if isinstance(error, UnicodeDecodeError) else b""
            line = self._lines + valid.count(b"\n") + 1
            raise BadObject(self._key, line, None, None, f"the text is not {self._encoding}") from error
        self._lines += text.count("\n")
        return text.encode()

    def _broken(self, error: Exception) -> BadObject:
        return BadObject(self._key, None, None, None, f"its {self._codec} data cannot be decompressed ({error})")


def decompressed(key: str, body: ObjectBody) -> ObjectBody:
    """Return a body with random access to the content. A compressed object is decompressed in memory.

    Raises:
        BadObject: as `ObjectStream`.
    """
    if not key.endswith(tuple(CODECS)):
        return body
    content = ObjectStream(key, body).readall() or b""
    return ObjectBody(len(content), content)
