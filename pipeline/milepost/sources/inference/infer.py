"""Propose a file source from a bounded sample of its files."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from milepost.language import check_column_name
from milepost.protocol.records import ObjectStore, StoreConfig, file_url
from milepost.sources.inference.candidates import event_times, keys
from milepost.sources.inference.csv_columns import CsvLayout, csv_layout, require_same_kind
from milepost.sources.inference.files import FoundFiles, find_files, format_of, partition_columns
from milepost.sources.inference.json_types import JsonFields
from milepost.sources.inference.parquet_types import parquet_columns, stored_schema
from milepost.sources.inference.proposal import ProposedColumn, ProposedSource, SampleSize, refused, shown
from milepost.sources.inference.reading import ReadSample, SampleFiles, read_sample
from milepost.sources.inference.text_heads import TextHead, first_bytes, read_head
from milepost.sources.inference.text_types import STRING, classify, decide, has_decimal_comma
from milepost.sources.planning import list_objects
from milepost.storage import open_store


@dataclass(frozen=True, slots=True)
class _Sampled:
    """Columns, reader options and rows of a sample. `bytes`: how many were read, of text decompressed."""

    read: ReadSample
    options: dict[str, Any]
    option_notes: dict[str, str]
    bytes: int
    is_whole: bool


def infer_source(store: ObjectStore, path: str, named: str) -> ProposedSource:
    """Propose a source that reads a path. Reads up to 4 MiB of text, or 50,000 Parquet rows, of up to 10 files.

    Args:
        store: of the files. path: relative to it: a file, a pattern with `*`, or a folder ("" is the root).
        named: the path as the caller wrote it, for messages.
    Raises:
        NotFound: there are no files. InvalidRequest: no source reads them all, with the reason.
        StoreUnavailable, EnvironmentUnusable: from the store.
    """
    found = find_files(store, path, named)
    sample = found.sample
    formats = {obj.key: format_of(obj.key, first_bytes(store, obj)) for obj in sample}
    if len(set(formats.values())) > 1:
        first, other = (
            next(key for key in formats if formats[key] == name) for name in sorted(set(formats.values()))[:2]
        )
        raise refused(
            f"{first} is {formats[first]} and {other} is {formats[other]}; a source reads one format.",
            "Choose some of the files by a pattern.",
        )
    format_ = formats[sample[0].key]
    sampled = _parquet(store, found) if format_ == "parquet" else _text(store, found, format_)
    columns, rows = sampled.read.columns, sampled.read.rows
    declared = [column for column in columns if column.type is not None]
    times = event_times(declared, rows)
    complete = sampled.is_whole and len(sample) == len(found.objects)
    return ProposedSource(
        format=format_,
        pattern=found.pattern,
        options=sampled.options,
        columns=columns,
        partitions=tuple(partition_columns(found.objects, [column.name for column in columns])),
        bad_records=sampled.read.bad_records,
        notes=found.notes,
        option_notes=sampled.option_notes,
        event_times=times,
        keys=keys(declared, rows, [one.column for one in times]),
        sample=SampleSize(
            files=len(sample),
            all_files=len(found.objects),
            rows=rows.num_rows,
            bytes=sampled.bytes,
            all_bytes=sum(obj.size for obj in found.objects),
            is_complete=complete,
        ),
    )


def _parquet(store: ObjectStore, found: FoundFiles) -> _Sampled:
    sample = found.sample
    schemas = [stored_schema(store, obj) for obj in sample]
    require_same_kind([obj.key for obj in sample], [schema.names for schema in schemas])
    columns = _declarable(parquet_columns(schemas))
    files = SampleFiles(store, sample, {})
    read = read_sample("parquet", {}, columns, files)
    return _Sampled(read, {}, {}, sum(obj.size for obj in sample), read.is_whole)


def _text(store: ObjectStore, found: FoundFiles, format_: str) -> _Sampled:
    heads = [read_head(store, obj) for obj in found.sample]
    heads = [head for head in heads if head.text.strip("\ufeff \t\r\n")]
    if not heads:
        raise refused("the files have only blank lines.", "A source needs files with rows to propose a schema from.")
    if len({head.encoding for head in heads}) > 1:
        other = next(head for head in heads if head.encoding != heads[0].encoding)
        raise refused(
            f"{heads[0].key} is in {heads[0].encoding}, and {other.key} in {other.encoding}.",
            "Choose some of the files by a pattern.",
        )
    with tempfile.TemporaryDirectory(prefix="milepost-sample-") as folder:
        return _csv(heads, folder) if format_ == "csv" else _json(heads, folder)


def _json(heads: Sequence[TextHead], folder: str) -> _Sampled:
    heads = [head.by_lines() for head in heads]
    if heads[0].encoding != "utf-8":
        raise refused(f"{heads[0].key} is in {heads[0].encoding}; JSON lines are in UTF-8.", "Convert it by `iconv`.")
    fields = JsonFields()
    for head in heads:
        fields.add(head.text, head.key)
    read = read_sample("json", {}, _declarable(fields.columns()), _stored(heads, folder))
    return _Sampled(read, {}, {}, sum(head.size for head in heads), all(head.is_whole for head in heads))


def _csv(heads: Sequence[TextHead], folder: str) -> _Sampled:
    layout = csv_layout(heads)
    heads = [head.by_records(layout.delimiter) for head in heads]
    options, notes = _csv_options(layout, heads[0].encoding)
    files = _stored(heads, folder)
    plain = {name: value for name, value in options.items() if name != "encoding"}  # the copies are in UTF-8
    plain["null_values"] = [""]
    texts = read_sample("csv", plain, _declarable(_text_columns(layout)), files)
    if not texts.rows.num_rows:
        raise refused(f"{heads[0].key} has a header and no rows.", "A source needs rows to propose a schema from.")
    classes = {name: classify(texts.rows[name]) for name in texts.rows.column_names}
    fractions = any(of.count("fraction") for of in classes.values())
    commas = [name for name, of in classes.items() if has_decimal_comma(of)]
    if commas and not fractions and layout.delimiter != ",":
        options["decimal_point"] = plain["decimal_point"] = ","
        notes["decimal_point"] = (
            f"column {shown(commas[0])} has numbers such as {shown(next(iter(classes[commas[0]].texts['comma'])))}"
        )
    columns = []
    for column in texts.columns:
        if column.type is not None:
            comma = "decimal_point" in options and column.name in commas
            decision = decide(classes[column.name], decimal_comma=comma)
            missing = f"; {column.note}" if column.is_optional else ""
            column = replace(column, type=decision.type, note=decision.note + missing, time_format=decision.time_format)
        columns.append(column)
    read = read_sample("csv", plain, columns, files)
    if any(column.type not in (None, STRING) for column in read.columns):
        options["null_values"] = [""]
        notes["null_values"] = "only an empty field is null; by default NA, NULL and such texts are, too"
    return _Sampled(read, options, notes, sum(head.size for head in heads), all(head.is_whole for head in heads))


def _csv_options(layout: CsvLayout, encoding: str) -> tuple[dict[str, Any], dict[str, str]]:
    options: dict[str, Any] = {}
    notes: dict[str, str] = {}
    if layout.delimiter != ",":
        options["delimiter"] = layout.delimiter
        notes["delimiter"] = f"fields are separated by {layout.delimiter_name}"
    if not layout.has_header:
        options["column_names"] = [*layout.headers[0]]
        notes["column_names"] = "the first line has values and no names: choose better ones"
    if encoding != "utf-8":
        options["encoding"] = encoding
        notes["encoding"] = "the files have the byte order mark of UTF-16"
    return options, notes


def _text_columns(layout: CsvLayout) -> list[ProposedColumn]:
    """Return the columns of all headers as strings."""
    columns = []
    for name in dict.fromkeys(name for header in layout.headers for name in header):
        if any(header.count(name) > 1 for header in layout.headers):
            columns.append(ProposedColumn(name, None, "twice in a header"))
            continue
        absent = sum(name not in header for header in layout.headers)
        note = f"missing from {absent} of {len(layout.headers)} files" if absent else ""
        columns.append(ProposedColumn(name, STRING, note, is_optional=absent > 0))
    return columns


def _declarable(columns: Sequence[ProposedColumn]) -> list[ProposedColumn]:
    """Return the columns; those with names that a spec cannot have are not declared."""
    taken: dict[str, str] = {}
    result = []
    for column in columns:
        if column.type is not None:
            try:
                check_column_name(column.name)
            except ValueError:
                column = replace(column, type=None, note="a column of a spec cannot have this name")
            other = taken.get(column.name.casefold())
            if column.type is not None and other is not None:
                column = replace(column, type=None, note=f"differs from {shown(other)} only in case")
            elif column.type is not None:
                taken[column.name.casefold()] = column.name
        result.append(column)
    return result


def _stored(heads: Sequence[TextHead], folder: str) -> SampleFiles:
    """Write the beginnings of files to a folder, from which the reader reads them."""
    names = {f"{at:03}.txt": head.key for at, head in enumerate(heads)}
    for name, head in zip(names, heads, strict=True):
        (Path(folder) / name).write_bytes(head.text.encode())
    store = open_store(StoreConfig(url=file_url(Path(folder).resolve())))
    return SampleFiles(store, list_objects(store, "*").objects, names)
