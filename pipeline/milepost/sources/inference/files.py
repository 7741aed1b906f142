"""Find the files of a request, choose those of the sample, and recognise their format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote

import pyarrow as pa

from milepost.errors import NotFound
from milepost.language import check_column_name, parse_type
from milepost.protocol.records import ObjectStore
from milepost.sources.contract import SourceObject
from milepost.sources.inference.proposal import ProposedColumn, refused, shown
from milepost.sources.inference.text_types import STRING, classify, decide
from milepost.sources.kernel.streams import CODECS
from milepost.sources.path_columns import NULL_PARTITION
from milepost.sources.planning import list_objects

MAX_FILES = 10
"""Files of a sample: the first, the last, and others evenly between them."""

FORMATS_BY_ENDING = {
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), "json"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
}
_OTHER_FILES = {
    b"PK\x03\x04": "a zip archive, such as an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an Office document",
    b"Obj\x01": "an Avro file",
    b"ORC": "an ORC file",
    b"SQLite format 3": "an SQLite database",
    b"\x1f\x8b": "compressed by gzip, and its name does not end in .gz",
    b"\x28\xb5\x2f\xfd": "compressed by zstd, and its name does not end in .zst",
    b"BZh": "compressed by bzip2, and its name does not end in .bz2",
}
"""First bytes of a file that no source reads -> what it is."""
_TABLES = {
    "_delta_log/": "a Delta table",
    "metadata/version-hint.text": "an Iceberg table",
    "metadata/00000-": "an Iceberg table",
    "_milepost/": "a table that Milepost publishes",
}
"""Keys below a folder that is a table -> what it is. Not every data file below it belongs to its current rows."""
_TYPES_IN_KEYS = (parse_type("int64"), parse_type("date"))


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files that a pattern matches.

    Attributes:
        pattern: relative to the store's root.
        objects: in ascending order of keys, without empty ones.
        notes: parts that are not read, one line each.
    """

    pattern: str
    objects: tuple[SourceObject, ...]
    notes: tuple[str, ...]

    @property
    def sample(self) -> list[SourceObject]:
        """Up to `MAX_FILES` of the objects. Of 100 objects these are 0, 11, 22, … 88 and 99."""
        most = len(self.objects) - 1
        count = min(MAX_FILES, len(self.objects))
        return [self.objects[at * most // max(count - 1, 1)] for at in range(count)]


def find_files(store: ObjectStore, path: str, named: str) -> FoundFiles:
    """Return the files of a path: one file, those of a pattern, or those in a folder.

    Args:
        path: relative to the store's root; "" is the root.
        named: the path as the caller wrote it, for messages.
    Raises:
        NotFound: there is none. InvalidRequest: they are empty, of several formats, or those of a table.
    """
    is_pattern = "*" in path
    _require_no_table(store, path.partition("*")[0].rpartition("/")[0] if is_pattern else path.rstrip("/"), named)
    listing = list_objects(store, path) if path else None
    if not is_pattern and (listing is None or not (listing.objects or listing.empty or listing.bad_names)):
        return _in_folder(store, path.rstrip("/"), named)
    assert listing is not None
    notes = _notes(listing.skipped_hidden, listing.empty, len(listing.bad_names))
    if not listing.objects:
        if listing.empty:
            raise refused(f"{named} is empty.", "A source needs files with rows to propose a schema from.")
        raise NotFound(f"no file matches {named}. Nothing was written.", hint="Only `*` and `**` are wildcards.")
    if len(kinds := {kind for obj in listing.objects if (kind := FORMATS_BY_ENDING.get(extension(obj.key)))}) > 1:
        raise _several(named, listing.objects, kinds)
    return FoundFiles(path, listing.objects, notes)


def _require_no_table(store: ObjectStore, folder: str, named: str) -> None:
    prefix = f"{folder}/" if folder else ""
    for key, what in _TABLES.items():
        if next(iter(store.list(f"{prefix}{key}")), None) is not None:
            raise refused(
                f"the files of {named} belong to {what}: some may have been replaced or deleted since.",
                "Read it as a table: docs/how-to/read-tables.md has its source.",
            )


def _in_folder(store: ObjectStore, folder: str, named: str) -> FoundFiles:
    """Return the files in a folder, by a pattern that names their extension if all have the same."""
    prefix = f"{folder}/" if folder else ""
    listing = list_objects(store, f"{prefix}**/*")
    if not listing.objects:
        if listing.empty:
            raise refused(
                f"all files of {named} are empty.", "A source needs files with rows to propose a schema from."
            )
        raise NotFound(f"{named} does not exist, or has no files. Nothing was written.", hint="Check the path.")
    read = [obj for obj in listing.objects if extension(obj.key) in FORMATS_BY_ENDING]
    kinds = {FORMATS_BY_ENDING[extension(obj.key)] for obj in read}
    if len(kinds) > 1:
        raise _several(named, read, kinds)
    read = read or [*listing.objects]
    endings = {_ending(obj.key) for obj in read}
    others = len(listing.objects) - len(read)
    if len(endings) > 1 and others:
        raise refused(
            f"the files of {named} have the endings {', '.join(sorted(endings))}, and {others:,} others are there.",
            f"Choose by a pattern, such as --from '{named.rstrip('/')}/**/*{min(endings)}'.",
        )
    deep = any("/" in obj.key[len(prefix) :] for obj in read)
    pattern = f"{prefix}{'**/' if deep else ''}*{endings.pop() if len(endings) == 1 else ''}"
    ignored = (f"{others:,} files with other endings are not read",) if others else ()
    empty = tuple(key for key in listing.empty if not others or key.endswith(pattern.rpartition("*")[2]))
    return FoundFiles(pattern, tuple(read), (*ignored, *_notes(listing.skipped_hidden, empty, len(listing.bad_names))))


def extension(key: str) -> str:
    """Return the extension of a name in lower case, without that of a compression."""
    for codec in CODECS:
        key = key.removesuffix(codec)
    return PurePosixPath(key).suffix.lower()


def _ending(key: str) -> str:
    """Return the extension as it is written, with that of a compression."""
    codec = next((codec for codec in CODECS if key.endswith(codec)), "")
    return PurePosixPath(key.removesuffix(codec)).suffix + codec


def _several(named: str, objects: Sequence[SourceObject], kinds: set[str]) -> Exception:
    counts = Counter(_ending(obj.key) for obj in objects)
    files = ", ".join(f"{count:,} {ending}" for ending, count in sorted(counts.items()))
    folder = named.partition("*")[0].rstrip("/") if "*" in named else named.rstrip("/")
    return refused(
        f"{named} has files of several formats ({files}); a source reads one.",
        f"Choose by a pattern, such as --from '{folder}/**/*{min(counts)}'.",
    )


def _notes(hidden: int, empty: Sequence[str], bad_names: int) -> tuple[str, ...]:
    notes = [f"{hidden:,} files are not read: a part of the name begins with _ or ."] if hidden else []
    notes += [f"{len(empty):,} empty files have no rows, such as {shown(empty[0])}"] if empty else []
    notes += [f"{bad_names:,} files have names that cannot be read; see `on_bad_name`"] if bad_names else []
    return tuple(notes)


def format_of(key: str, beginning: bytes) -> str:
    """Return the format of a file by its first bytes and its name.

    Raises:
        InvalidRequest: no source reads it.
    """
    if beginning.startswith(b"PAR1"):
        return "parquet"
    named = FORMATS_BY_ENDING.get(extension(key))
    if named == "parquet":
        raise refused(f"{key} is not a Parquet file: it does not begin with PAR1.", "Remove it, or write it again.")
    other = next((what for magic, what in _OTHER_FILES.items() if beginning.startswith(magic)), None)
    if other is not None:
        raise refused(
            f"{key} is {other}.", "Export it as CSV, JSON lines or Parquet; a compressed file keeps its ending."
        )
    if named is not None:
        return named
    text = beginning.lstrip(b"\xef\xbb\xbf \t\r\n")
    return "json" if text[:1] in (b"{", b"[") else "csv"


def partition_columns(objects: Sequence[SourceObject], taken: Sequence[str]) -> list[ProposedColumn]:
    """Return the columns that `name=value` parts of all keys give, other than columns of the files."""
    parts = [[part.split("=", 1) for part in obj.key.split("/")[:-1] if "=" in part] for obj in objects]
    names = [name for name, _ in parts[0] if all(name in dict(of) for of in parts)] if parts else []
    folded = {name.casefold() for name in taken}
    columns = []
    for name in dict.fromkeys(names):
        try:
            check_column_name(name)
            texts = [unquote(dict(of)[name], errors="strict") for of in parts]
        except (ValueError, UnicodeDecodeError):
            continue
        if name.casefold() in folded:
            columns.append(ProposedColumn(name, None, "the files have a column of this name"))
            continue
        folded.add(name.casefold())
        values = pa.array([text for text in texts if text != NULL_PARTITION], pa.string())
        decision = decide(classify(values))
        type_ = decision.type if decision.type in _TYPES_IN_KEYS and "" not in texts else STRING
        columns.append(ProposedColumn(name, type_, "from the names of the folders"))
    return columns
