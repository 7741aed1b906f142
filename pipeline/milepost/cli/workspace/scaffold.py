"""Write the new job of `milepost init`, which runs on sample files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.extras import install_command
from milepost.language import REMOTE_VARIABLE, check_job_name

_SPEC = """\
# A running total per city over the CSV files that land in {landing}.
# `milepost run {name}` runs one epoch; land another file there and run it again.
name: {quoted}
storage: ../.milepost/storage            # or s3://bucket/prefix

sources:
  {source_key}:
    format: csv                            # for another separator: options: {{delimiter: ";"}}
    path: {path}
    schema: {{city: string, visitor: string, minutes: int32, at: "timestamp[us, UTC]"}}
    event_time: at
    watermark_delay: 1h

operators:
  - {{uid: known, kind: sql, inputs: [{source_key}], sql: "SELECT * FROM {table_in_sql} WHERE minutes IS NOT NULL"}}
  - {{uid: totals, kind: aggregate, inputs: [known], key: [city],
     aggregates: {{{source_key}: count(*), minutes: sum(minutes), longest: max(minutes)}}}}

sinks:
{about_table}  - {{name: totals, input: totals, format: {table_format}, path: ../{table}, mode: upsert}}

# On the Spark Connect server that the environment names; where it names none, in a Spark of the run's own.
spark: {{master: "local[2]", remote: "${{env:{variable}:-}}"}}

{gate}"""

_OPERATORS = _SPEC[_SPEC.index("operators:") : _SPEC.index("# On the Spark")]
_STATEMENTS = """\
sql: {name}.sql                            # its statements are compiled into operators and tables

{about_table}tables: {{format: {table_format}, path: "../{tables}/{{name}}"}}

"""
_SQL = """\
-- One row per city, which each epoch replaces. `milepost lint {name}` explains each statement.
CREATE MATERIALIZED VIEW totals AS
SELECT city, count(*) AS visits, sum(minutes) AS minutes, max(minutes) AS longest
FROM {table_in_sql}
WHERE minutes IS NOT NULL
GROUP BY city;
"""

_NOT_OPEN = """\
  # Read by `milepost read`. A table that every engine reads is `format: delta`, which {command} brings:
  # say so before the first run, or give the sink a new name and path.
"""

_GATE = """\
quality:
  - sink: totals
    expectations:
      - {type: expect_column_values_to_be_between, column: minutes, min_value: 0, severity: critical}
"""

_TAKEN = ("known", "totals", "city", "minutes", "longest", "records", "newest", "renamed")
"""Names of operators and columns of such a job."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_NO_TEXT = frozenset(["true", "false", "yes", "no", "on", "off", "y", "n", "null"])
"""Words that some YAML parsers do not read as text."""

_DAYS = {
    "2026-01-01.csv": """\
city,visitor,minutes,at
Bergen,ada,12,2026-01-01T08:15:00Z
Porto,ben,45,2026-01-01T09:30:00Z
Bergen,cleo,,2026-01-01T10:05:00Z
Porto,ada,20,2026-01-01T11:40:00Z
""",
    "2026-01-02.csv": """\
city,visitor,minutes,at
Bergen,ben,31,2026-01-02T07:55:00Z
Quito,dora,60,2026-01-02T12:20:00Z
""",
}


def table_of(job: str, sink: str) -> str:
    """Return the path of a new job's table, relative to the target folder."""
    return f".milepost/tables/{job}/{sink}"


def write_job(name: str, root: Path, *, gated: bool, opened: bool, sql: bool = False) -> list[Path]:
    """Write `config/<name>.yaml` and `config/<name>_data/*.csv` below `root`. Existing files are never changed.

    Args:
        sql: write the job's statements to `config/<name>.sql`; otherwise its spec has operators.
        gated: write a quality gate; otherwise a comment that says what the gate needs.
        opened: store the table in Delta, which every engine reads; otherwise in Parquet, with a comment that says
            what Delta needs.
    Raises:
        InvalidRequest: the name is invalid, or a file of that name exists. Nothing was written.
        EnvironmentUnusable: the folder cannot be written.
    """
    spec = new_spec(name, root, f"{name}_data", *([f"{name}.sql"] if sql else []))
    folder, data = spec.parent, spec.parent / f"{name}_data"
    landing = f"config/{data.name}/"
    source = source_of(name)
    texts = {data / file: text for file, text in _DAYS.items()}
    if sql:
        texts[folder / f"{name}.sql"] = _SQL.format(name=name, table_in_sql=in_sql(source))
    texts[spec] = (_SPEC.replace(_OPERATORS, _STATEMENTS) if sql else _SPEC).format(
        name=name,
        landing=landing,
        quoted=in_yaml(name),
        source_key=in_yaml(source),
        table_in_sql=in_sql(source),
        path=in_yaml(f"{data.name}/*.csv"),
        variable=REMOTE_VARIABLE,
        about_table="" if opened else _NOT_OPEN.format(command=f"`{install_command('delta')}`"),
        table_format="delta" if opened else "parquet",
        table=table_of(name, "totals"),
        tables=table_of(name, "totals").removesuffix("/totals"),
        gate=_GATE if gated else _gate_to_come(),
    )
    write_new(texts, landing)
    return [path.relative_to(root) for path in texts]


def new_spec(name: str, root: Path, *others: str) -> Path:
    """Return the path of a new job's spec.

    Args:
        others: names of other new files or folders next to it.
    Raises:
        InvalidRequest: the name is invalid, or a file of that name exists.
    """
    try:
        check_job_name(name)
    except ValueError as problem:
        raise InvalidRequest(f"{problem}. Nothing was written.") from None
    folder = root / "config"
    for path in (folder / f"{name}.yaml", folder / f"{name}.yml", *(folder / other for other in others)):
        if path.exists() or path.is_symlink():
            shown = path.relative_to(root)
            raise InvalidRequest(f"{shown} already exists. Nothing was written.", hint="Choose another name.")
    return folder / f"{name}.yaml"


def write_new(texts: Mapping[Path, str], place: str) -> None:
    """Write new files. Raises EnvironmentUnusable: the folder, which messages call `place`, cannot be written."""
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as stream:
                stream.write(text)
    except OSError as problem:
        raise EnvironmentUnusable(f"{place} cannot be written: {problem.strerror}.") from None


def source_of(job: str) -> str:
    """Return the name of the job's source: the job's name, adapted to the rules for sources and columns."""
    name = job.replace("-", "_")
    while "__" in name:
        name = name.replace("__", "_")
    return f"{name[:60]}_in" if name in _TAKEN else name


def in_yaml(text: str) -> str:
    """Return a text as YAML, also within a flow collection. It is quoted unless it is a name."""
    if _NAME.fullmatch(text) and text.lower() not in _NO_TEXT:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)


def in_sql(name: str) -> str:
    """Return a table's name for SQL, quoted if it is a keyword."""
    from sqlglot.dialects.spark import Spark

    words = {word for keyword in Spark.Tokenizer.KEYWORDS for word in keyword.split()}
    return f"`{name}`" if name.upper() in words else name


def _gate_to_come() -> str:
    title = f"A quality gate, once its extra is installed ({install_command('quality')}): remove these comment marks."
    return f"# {title}\n" + "".join(f"# {line}\n" for line in _GATE.splitlines())
