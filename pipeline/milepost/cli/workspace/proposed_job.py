"""Write the new job of `milepost init --from`, which reads the user's files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from milepost.cli.workspace.scaffold import in_sql, in_yaml, new_spec, source_of, table_of, write_new
from milepost.errors import CheckpointError, InvalidRequest
from milepost.jobmaster import ProposedColumn, ProposedSource, SourceProposal
from milepost.jobspec.load import lint_report, load_job
from milepost.language import REMOTE_VARIABLE
from milepost.views import printable, show_bytes

TABLE = "records"
"""Name of the table with all rows."""

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NO_NAME = re.compile(r"[ ,;{}()\n\t=]+")
"""Characters that Delta does not allow in column names."""

_MAX_NOTE_COLUMN = 48


def write_proposed_job(
    name: str, root: Path, origin: str, proposal: SourceProposal, *, table_format: str, sql: bool
) -> list[Path]:
    """Write `config/<name>.yaml`, and with `sql` also `config/<name>.sql`, below `root`.

    Args:
        origin: the path of the files as the caller wrote it.
    Raises:
        InvalidRequest: the name is invalid, a file of that name exists, or the job would read its own files. Nothing
            was written.
        EnvironmentUnusable: the folder cannot be written.
    """
    spec = new_spec(name, root, *([f"{name}.sql"] if sql else []))
    text = _Spec(name, origin, proposal, table_format)
    texts = {spec: text.of_statements() if sql else text.of_operators()}
    if sql:
        texts[spec.with_suffix(".sql")] = text.statements()
    write_new(texts, "config/")
    try:
        lint_report(load_job(name, root))
    except CheckpointError as error:
        for path in texts:
            path.unlink()
        problems = error.message.partition("\n")[2] or error.message
        raise InvalidRequest(
            f"a job over {printable(origin)} would not be valid. Nothing was written.\n{problems}",
            hint="Choose other files, or another name.",
        ) from error
    return [path.relative_to(root) for path in texts]


def sample_text(source: ProposedSource) -> str:
    """Return the size of the sample and of all files, as text."""
    size = source.sample
    files = f"{size.files:,} of {size.all_files:,} files" if size.all_files > 1 else "the file"
    rows = f"{size.rows:,} rows"
    if size.is_complete:
        return f"{rows}, all of {'the file' if size.all_files == 1 else f'{size.all_files:,} files'}"
    return f"the first {rows} ({show_bytes(size.bytes)}) of {files} ({show_bytes(size.all_bytes)})"


def source_document(proposal: SourceProposal) -> dict[str, Any]:
    """Return a proposed source as JSON: its values as the spec has them, with the reasons."""
    source = proposal.source
    return {
        "format": source.format,
        "path": proposal.path,
        "options": source.options,
        "columns": [_document(column) for column in source.columns],
        "partitions": [_document(column) for column in source.partitions],
        "bad_records": source.bad_records,
        "notes": source.notes,
        "event_times": source.event_times,
        "keys": source.keys,
        "sample": source.sample,
    }


def _document(column: ProposedColumn) -> dict[str, Any]:
    type_ = None if column.type is None else str(column.type)
    return {"name": column.name, "type": type_, "optional": column.is_optional, "note": column.note}


class _Spec:
    """The texts of a proposed job."""

    def __init__(self, name: str, origin: str, proposal: SourceProposal, table_format: str) -> None:
        self._name, self._origin, self._path = name, origin, proposal.path
        self._conn_id, self._source, self._format = proposal.conn_id, proposal.source, table_format
        self._source_name = source_of(name)
        self._columns = [*proposal.source.declared, *(one for one in proposal.source.partitions if one.type)]
        self._renamed = _renamed([column.name for column in self._columns])

    def of_operators(self) -> str:
        """Return the spec of a job without SQL statements."""
        renames = any(old != new for old, new in self._renamed.items())
        input_ = "renamed" if renames else self._source_name
        operators = ["operators:", *self._renaming()] if renames else []
        key = self._key_lines(input_)
        if key:
            operators = operators or ["# operators:"]
            operators += key[0]
        lines = [*self._head(), *self._source_lines(), *operators, *([""] if operators else []), "sinks:"]
        lines += [f"  - {self._sink(TABLE, in_yaml(input_), 'append')}", *(key[1] if key else []), *self._unreadable()]
        return _joined([*lines, "", *_spark()])

    def of_statements(self) -> str:
        """Return the spec of a job with a SQL file."""
        tables = f'tables: {{format: {self._format}, path: "../.milepost/tables/{self._name}/{{name}}"}}'
        sql = f"sql: {self._name}.sql"
        bad = ["", "sinks:", *self._unreadable()] if self._source.bad_records else []
        return _joined([*self._head(), *self._source_lines(), sql, tables, *bad, "", *_spark()])

    def statements(self) -> str:
        """Return the SQL file."""
        lines = [
            "-- All rows of the files. `milepost lint` explains each statement.",
            f"CREATE STREAMING TABLE {TABLE} AS",
            "SELECT\n  " + ",\n  ".join(self._selected()),
            f"FROM {in_sql(self._source_name)};",
        ]
        key, time = self._key_and_time()
        if key and time:
            lines += [
                "",
                f"-- {printable(key)} is unique in the sample. If later files correct rows, the newest row of each is:",
                "-- CREATE MATERIALIZED VIEW newest AS",
                f"-- SELECT * FROM {TABLE}",
                f"-- QUALIFY row_number() OVER (PARTITION BY {_sql_name(key)} ORDER BY {_sql_name(time)} DESC) = 1;",
            ]
        return _joined(lines)

    def _head(self) -> list[str]:
        used, store = "", []
        if self._conn_id is not None:
            used = f" --conn-id {self._conn_id}"
            store = [f"store: {{conn_id: {in_yaml(self._conn_id)}}}"]
        return [
            f"# Written by `milepost init {self._name} --from {printable(self._origin)}{used}`.",
            f"# Read: {sample_text(self._source)}.",
            "# The schema is a contract: a later value that does not fit its type fails the epoch, and is named.",
            f"name: {in_yaml(self._name)}",
            "storage: ../.milepost/storage            # or s3://bucket/prefix",
            *store,
            "",
        ]

    def _source_lines(self) -> Iterator[str]:
        source = self._source
        yield "sources:"
        yield f"  {in_yaml(self._source_name)}:"
        yield f"    format: {source.format}"
        yield f"    path: {in_yaml(self._path)}"
        yield from (f"    # {printable(note)}" for note in source.notes)
        if source.options:
            yield "    options:"
            for option, value in source.options.items():
                yield _noted(f"      {option}: {_value(value)}", source.option_notes[option])
        yield "    schema:"
        yield from _column_lines(source.columns)
        if optional := [column.name for column in source.declared if column.is_optional]:
            names = ", ".join(map(in_yaml, optional))
            yield _noted(f"    optional_columns: [{names}]", "null where a file or a line lacks them")
        if source.partitions:
            if any(column.type for column in source.partitions):
                yield "    partitions:"
            yield from _column_lines(source.partitions)
        yield from self._event_time_lines()
        if source.bad_records:
            yield f"    # Unreadable in the sample: {printable(source.bad_records)}."
            yield "    # The table `unreadable` has such records."
            yield "    bad_records: dead_letter"
            yield "    max_bad_ratio: 0.1"
            yield "    min_rows: 100"
        yield ""

    def _event_time_lines(self) -> Iterator[str]:
        if not self._source.event_times:
            yield "    # No event time: no column of the sample has a time in every row."
            return
        first, *others = self._source.event_times
        yield _noted(f"    event_time: {_value(first.value)}", first.note)
        yield "    watermark_delay: 1h"
        yield from (_noted(f"    # event_time: {_value(other.value)}", f"or: {other.note}") for other in others[:4])

    def _renaming(self) -> list[str]:
        sql = f"SELECT {', '.join(self._selected())} FROM {in_sql(self._source_name)}"
        _, time = self._key_and_time()
        is_lost = time is not None and self._renamed.get(time, "") != time
        lost = [f"  # {time} is no event time under this name: a window over it reads the source."] if is_lost else []
        return [
            "  # Tables of other engines allow no spaces and none of the characters ,;{}()= in names.",
            *lost,
            f"  - {{uid: renamed, kind: sql, inputs: [{in_yaml(self._source_name)}],",
            f"     sql: {in_yaml(sql)}}}",
        ]

    def _selected(self) -> list[str]:
        return [
            _sql_name(old) if old == new else f"{_sql_name(old)} AS {_sql_name(new)}"
            for old, new in self._renamed.items()
        ]

    def _key_and_time(self) -> tuple[str | None, str | None]:
        """Return key and event time, by their names in the table."""
        key = next(iter(self._source.keys), None)
        time = self._source.event_times[0].column if self._source.event_times else None
        return key and self._renamed[key], time and self._renamed[time]

    def _key_lines(self, input_: str) -> tuple[list[str], list[str]] | None:
        """Return the comments of an operator and a sink for the newest row of each key, if there are key and time."""
        key, time = self._key_and_time()
        if key is None or time is None:
            return None
        operator = (
            f"{{uid: newest, kind: latest, inputs: [{input_}], key: [{in_yaml(key)}], sequence_by: [{in_yaml(time)}]}}"
        )
        about = f"#   {printable(key)} is unique in the sample. If later files correct rows, the newest row of each is:"
        return [about, f"#   - {operator}"], [f"#   - {self._sink('newest', 'newest', 'upsert')}"]

    def _unreadable(self) -> list[str]:
        if not self._source.bad_records:
            return []
        return [f"  - {self._sink('unreadable', f'{self._source_name}.bad', 'append')}"]

    def _sink(self, name: str, input_: str, mode: str) -> str:
        path = f"../{table_of(self._name, name)}"
        return f"{{name: {name}, input: {input_}, format: {self._format}, path: {path}, mode: {mode}}}"


def _spark() -> list[str]:
    about = (
        "# On the Spark Connect server that the environment names; where it names none, in a Spark of the run's own."
    )
    return [about, f'spark: {{master: "local[2]", remote: "${{env:{REMOTE_VARIABLE}:-}}"}}']


def _column_lines(columns: Sequence[ProposedColumn]) -> Iterator[str]:
    """Yield a line for each column, with its note in a column of its own unless the line is long."""
    lines = {
        column.name: f"      {in_yaml(column.name)}: {_type(column)}" for column in columns if column.type is not None
    }
    width = max((len(line) for line in lines.values() if len(line) <= _MAX_NOTE_COLUMN), default=0)
    for column in columns:
        if column.type is None:
            yield f"      # {printable(in_yaml(column.name))}: not declared: {printable(column.note)}"
        else:
            yield _noted(lines[column.name], column.note, width)


def _type(column: ProposedColumn) -> str:
    text = str(column.type)
    return text if text.isalnum() else json.dumps(text)


def _renamed(names: Sequence[str]) -> dict[str, str]:
    """Return the names in tables of columns, without characters that Delta refuses. Names stay distinct."""
    taken = {name.casefold() for name in names if not _NO_NAME.search(name)}
    renamed = {}
    for at, name in enumerate(names, 1):
        new = name
        if _NO_NAME.search(name):
            base = _NO_NAME.sub("_", name).strip("_") or f"column_{at}"
            new, count = base, 1
            while new.casefold() in taken:
                count += 1
                new = f"{base}_{count}"
            taken.add(new.casefold())
        renamed[name] = new
    return renamed


def _sql_name(name: str) -> str:
    return in_sql(name) if _PLAIN.fullmatch(name) else f"`{name}`"


def _noted(line: str, note: str, width: int = 0) -> str:
    return f"{line:<{width}}  # {printable(note)}" if note else line


def _value(value: Any) -> str:
    """Return a value of the spec as YAML on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_value, value)) + "]"
    return in_yaml(value) if isinstance(value, str) else json.dumps(value)


def _joined(lines: Sequence[str]) -> str:
    return "\n".join(lines) + "\n"
