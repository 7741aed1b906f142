"""The kinds of stored objects that the product knows, and those that a fixture has.

The product's own registries are the source: the classes and constants that name a stored format, every record type that
these refer to with each of its fields, the keys in the docstrings of the layouts, and the kinds of operators and
tables. A kind is a text, such as ``field Mark.previous`` or ``operator window``.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Annotated, Any, NewType, get_args, get_origin, get_type_hints

from milepost.codec.fields import StoredAs
from milepost.codec.records import decode
from milepost.epoch.metadata import CheckpointMetadata, decode_metadata
from milepost.epoch.plan import InputRecord, decode_input_record
from milepost.jobmaster.job.savepoint_document import SavepointDocument, decode_document
from milepost.language.sink_formats import SINK_FORMATS
from milepost.operators.kinds import STATEFUL_KINDS
from milepost.protocol.landed.records import LogRecord, decode_record
from milepost.protocol.log.entry_codec import FORMAT, TOMBSTONE_FORMAT, decode_entry
from milepost.protocol.log.log_entries import LogEntry, Tombstone
from milepost.protocol.records.reasons import CheckpointFailureReason
from milepost.tables.records.reservation import Reservation
from milepost_testkit.compatibility.stored_job import StoredJob
from scripts.reference.source_pages import JOB_KEYS, PRODUCT, TABLE_KEYS, key_lines, stored_formats

NOT_STORED = {"milepost.cache/1", "milepost.lookup/2"}
"""Formats of files of a node, which may be lost at any time."""

_NAMED = re.compile(rb'(?:^\[|"format": ?)"(milepost\.[a-z-]+/\d+)"')
_DECODERS: Mapping[str, Callable[[bytes, str], object]] = {
    FORMAT: decode_entry,
    TOMBSTONE_FORMAT: decode_entry,
    CheckpointMetadata.stored_format: decode_metadata,
    InputRecord.stored_format: lambda body, key: decode_input_record(body),
    SavepointDocument.stored_format: decode_document,
    LogRecord.stored_format: decode_record,
}
"""Formats that are stored otherwise than as the plain record."""


def known_kinds() -> set[str]:
    """Return every kind that the product knows."""
    classes = _record_classes()
    kinds = {f"format {name}" for name, _ in stored_formats() if name not in NOT_STORED}
    for kind in _reached([LogEntry, Tombstone, *classes.values()]):
        if issubclass(kind, Enum):
            kinds |= {f"value {kind.__name__}.{member.value}" for member in kind if kind is not CheckpointFailureReason}
        else:
            kinds |= {f"field {kind.__name__}.{field.name}" for field in dataclasses.fields(kind)}
    kinds |= {f"key {pattern}" for pattern in _key_patterns()}
    kinds |= {f"operator {kind}" for kind in STATEFUL_KINDS}
    kinds |= {f"table {name} {mode}" for name, format_ in SINK_FORMATS.items() for mode in format_.modes}
    return kinds


def kinds_of(job: StoredJob) -> set[str]:
    """Return the kinds that are stored of a job. Raises StateCorrupt: this version cannot read one of its objects."""
    kinds: set[str] = set()
    classes, patterns = _record_classes(), _key_patterns()
    operators = {operator.uid: operator.kind for operator in job.loaded().spec.operators}
    for path in sorted(path for path in job.folder.rglob("*") if path.is_file()):
        kinds |= {f"key {pattern}" for pattern, regex in patterns.items() if regex.search(path.as_posix())}
        body = path.read_bytes()
        named = _NAMED.search(body) if body[:1] in (b"{", b"[") else None
        if named is None:
            continue
        name = named[1].decode()
        kinds.add(f"format {name}")
        decoder = _DECODERS.get(name) or _plain_decoder(classes[name])
        for record in _records_in(decoder(body, path.relative_to(job.folder).as_posix())):
            kinds |= set(_kinds_of_record(record))
            if isinstance(record, CheckpointMetadata):
                kinds |= {f"operator {operators[uid]}" for uid in record.operators if uid in operators}
    return kinds | {"format milepost.figures/1"} if "key figures/<day>/<version>-<write id>.parquet" in kinds else kinds


def _plain_decoder(kind: type) -> Callable[[bytes, str], object]:
    return lambda body, key: decode(kind, body, key)


def _record_classes() -> dict[str, type]:
    """Return the product's record types that name their format, by format."""
    classes: dict[str, type] = {}
    for file in PRODUCT.rglob("*.py"):
        if "stored_format: ClassVar[str] = " in file.read_text(encoding="utf-8"):
            module = importlib.import_module(".".join(("milepost", *file.relative_to(PRODUCT).with_suffix("").parts)))
            own = [item for item in vars(module).values() if isinstance(item, type) and "stored_format" in vars(item)]
            classes |= {item.stored_format: item for item in own if item.__module__ == module.__name__}
    return classes


def _reached(roots: list[type]) -> set[type]:
    """Return the records and enums that records refer to, themselves included."""
    found: set[type] = set()

    def add(hint: Any) -> None:
        while isinstance(hint, NewType):
            hint = hint.__supertype__
        if get_origin(hint) is Annotated:
            stored_as = next((mark for mark in hint.__metadata__ if isinstance(mark, StoredAs)), None)
            add(hint.__origin__ if stored_as is None else stored_as.kind)
            return
        for argument in get_args(hint):
            add(argument)
        if not isinstance(hint, type) or hint in found:
            return
        if issubclass(hint, Enum):
            found.add(hint)
        elif dataclasses.is_dataclass(hint):
            found.add(hint)
            hints = get_type_hints(hint, include_extras=True)
            for field in dataclasses.fields(hint):
                add(hints[field.name])

    for root in roots:
        add(root)
    return found


def _records_in(value: object) -> Iterator[object]:
    """Yield the records and enums within a decoded value."""
    if isinstance(value, Enum):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _records_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _records_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        for field in dataclasses.fields(value):
            yield from _records_in(getattr(value, field.name))


def _kinds_of_record(record: object) -> Iterator[str]:
    """Yield the kinds that one record shows: each of its fields that has a value."""
    if isinstance(record, Enum):
        yield f"value {type(record).__name__}.{record.value}"
    elif dataclasses.is_dataclass(record):
        for field in dataclasses.fields(record):
            if getattr(record, field.name) not in (None, "", (), [], {}):
                yield f"field {type(record).__name__}.{field.name}"
    if isinstance(record, Reservation):
        yield f"table {record.table_format} {record.mode}"


def _key_patterns() -> dict[str, re.Pattern[str]]:
    """Return the documented keys of the layouts, each as a pattern."""
    patterns = {}
    for line in [*key_lines(JOB_KEYS).splitlines(), *key_lines(TABLE_KEYS).splitlines()]:
        for key in _keys_of_line(line):
            regex = "[^/]+".join(map(re.escape, re.split(r"<[^>]*>|\*", key)))
            patterns[key] = re.compile(f"/{regex}" + ("" if key.endswith("/") else "$"))
    return patterns


def _keys_of_line(line: str) -> list[str]:
    """Return the keys that a line describes. `chk-<id>/_heartbeat, _metadata   …` describes two."""
    described = re.split(r" {2,}", line.strip())[0]
    first, *others = described.split(", ")
    return [first, *(f"{first.rpartition('/')[0]}/{other}" for other in others)]
