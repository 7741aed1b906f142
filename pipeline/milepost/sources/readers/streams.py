"""The bytes of one object as a reader sees them: of the planned version, decompressed, in UTF-8, and bounded."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable

import pyarrow as pa

from milepost.protocol.records.object_store import ObjectStore
from milepost.sources.contract import BadObject, SourceObject
from milepost.sources.readers.arrow_errors import DATA_ERRORS
from milepost.sources.readers.forward_file import ForwardFile
from milepost.sources.readers.text_parts import TextPart

CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
"""Extension of a key -> compression; every other object is read as it is."""

MAX_EXPANSION = 1_000
"""An object that grows beyond this factor when it is decompressed is refused (the worker would not survive it)."""

EXPANSION_FREE_BYTES = 64 << 20
"""Decompressed bytes up to which the factor is not looked at."""

_CHUNK = 1 << 20


MAX_WHOLE_READ_BYTES = 32 << 20
"""An object of at most so many bytes is read in one request and held; of a larger one only blocks are."""

_BLOCK = 8 << 20

_TAIL = 1 << 18
"""Where a part of an object has its end somewhere, so much is asked for at a time."""


class ObjectBody:
    """The raw bytes of one object version, to be read any number of times.

    Attributes:
        size: bytes. held: whether they are in memory.

    Args:
        content: the bytes, or what opens an object that is read in parts.
    """

    def __init__(self, size: int, content: bytes | Callable[[], RangeReader]) -> None:
        self.size = size
        self.held = isinstance(content, bytes)
        self._content = content

    def stream(self, *, beginning: bool = False) -> pa.NativeFile:
        """Opened for reading forward, a block in memory at a time. beginning: little will be read."""
        if isinstance(self._content, bytes):
            return pa.BufferReader(self._content)
        raw = self._content()
        raw.small_reads_from = 0 if beginning else None
        return pa.PythonFile(io.BufferedReader(raw, _BLOCK), mode="r")

    def part(self, start: int, stop: int) -> pa.NativeFile:
        """The lines of a text that begin in a range of its bytes, opened for reading forward."""
        first = max(start - 1, 0)
        if isinstance(self._content, bytes):
            return pa.PythonFile(TextPart(io.BytesIO(self._content[first:]), start, stop), mode="r")
        raw = self._content()
        raw.seek(first)
        raw.small_reads_from = stop
        return pa.PythonFile(TextPart(io.BufferedReader(raw, _BLOCK), start, stop), mode="r")

    def lines_before(self, start: int) -> int:
        """Return how many lines of a text begin before an offset, by reading them."""
        lines, last = 0, b""
        with self.part(0, start) as text:
            while chunk := text.read(_CHUNK):
                lines += chunk.count(b"\n") + chunk.count(b"\r") - chunk.count(b"\r\n")
                lines -= last == b"\r" and chunk.startswith(b"\n")
                last = chunk[-1:]
        return lines

    def file(self) -> pa.NativeFile:
        """Opened for reading anywhere; each read is a request of its own unless the body is held."""
        if isinstance(self._content, bytes):
            return pa.BufferReader(self._content)
        return pa.PythonFile(self._content(), mode="r")


class RangeReader(io.RawIOBase):
    """One version of a large object as a file; `readinto` raises what `ObjectStore.get_range` raises.

    Attributes:
        slow_from: little is read beyond it, of whatever is wanted; None: all of it is.
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
    """Return the object's raw body, in exactly the planned version; of a large one nothing was read yet.

    Raises:
        CommitConflict: it has another version now. NotFound: it is gone. So does each read of a large one.
    """
    if obj.size > MAX_WHOLE_READ_BYTES:
        return ObjectBody(obj.size, lambda: RangeReader(store, obj))
    body = store.get_if_match(obj.key, obj.etag)
    return ObjectBody(len(body), body)


class ObjectStream(ForwardFile):
    """Reads an object's content forward; pyarrow takes it as a file.

    Attributes:
        quotes: how often `quote` occurred in what was read so far.

    Args:
        beginning: little will be read.
        lines: a range of the object's bytes: only what begins there is read, of a text in UTF-8; None: all of it.
    """

    def __init__(
        self,
        key: str,
        body: ObjectBody,
        *,
        encoding: str = "utf-8",
        quote: str = "",
        beginning: bool = False,
        lines: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        self.quotes = 0
        self._key = key
        self._size = body.size
        self._quote = quote.encode()
        self._codec = next((codec for suffix, codec in CODECS.items() if key.endswith(suffix)), None)
        raw = body.stream(beginning=beginning) if lines is None else body.part(*lines)
        try:
            self._source = raw if self._codec is None else pa.CompressedInputStream(raw, self._codec)
        except (*DATA_ERRORS, OSError) as error:
            raise self._broken(error) from error
        self._expanded = 0
        self._lines = 0
        self._encoding = encoding
        utf8 = codecs.lookup(encoding).name == "utf-8"
        self._decoder = None if utf8 else codecs.getincrementaldecoder(encoding)("strict")

    def _next(self, wanted: int) -> bytes:
        """Return what follows.

        Raises:
            BadObject: the compressed data is broken or expands beyond its bound, or the text is not in its encoding.
        """
        while True:
            try:
                chunk = self._source.read(max(min(wanted, _CHUNK), 4096))
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
        except UnicodeError as error:  # a UTF-16 text without its mark is not even a UnicodeDecodeError
            good = error.object[: error.start] if isinstance(error, UnicodeDecodeError) else b""
            line = self._lines + good.count(b"\n") + 1
            raise BadObject(self._key, line, None, None, f"the text is not {self._encoding}") from error
        self._lines += text.count("\n")
        return text.encode()

    def _broken(self, error: Exception) -> BadObject:
        return BadObject(self._key, None, None, None, f"its {self._codec} data cannot be decompressed ({error})")


def decompressed(key: str, body: ObjectBody) -> ObjectBody:
    """Return the content of an object whose format needs random access; of a compressed one it is held whole.

    Raises:
        BadObject: as `ObjectStream`.
    """
    if not key.endswith(tuple(CODECS)):
        return body
    content = ObjectStream(key, body).readall() or b""
    return ObjectBody(len(content), content)
