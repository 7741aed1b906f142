"""The SQL of a job: read it, compile it, and map problems of the compiled spec to its lines."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from milepost.errors import InvalidRequest
from milepost.jobspec.job.spec import JobSpec
from milepost.jobspec.load.document import MAX_CHARACTERS
from milepost.jobspec.load.sql_text import SqlText
from milepost.language import Problem
from milepost.protocol.records import cached_property

if TYPE_CHECKING:
    from milepost.jobspec.sql import CompiledStatement

MAX_MANIFEST_CHARACTERS = 500_000_000
"""Maximum length of a dbt manifest."""

_COMPILED_KEYS = ("statements", "operators", "sinks")


@dataclass(frozen=True)
class SqlOrigin:
    """Where the compiled part of a spec comes from. Picklable.

    Attributes:
        source: the statements. value: the compiled spec.
        statements: the statements by name, in the order of the text.
        positions: compiled operator -> (line, column) of the text.
        own_operators, own_sinks: how many the spec itself has.
        compiled: file of the compiled spec whose steps it reuses; None: none.
    """

    source: SqlText
    value: Mapping[str, Any]
    statements: Mapping[str, CompiledStatement]
    positions: Mapping[str, tuple[int, int]]
    own_operators: int
    own_sinks: int
    compiled: str | None = None

    @cached_property
    def text(self) -> str:
        """The compiled spec, which needs no other file. To write it takes a fifth of the time to compile it."""
        return as_yaml(self.value)

    def located(self, problem: Problem, spec: JobSpec) -> Problem:
        """Return a problem of the compiled spec, at its line of the SQL file if the spec itself has no such part."""
        section, index = (*problem.path, "", "")[:2]
        if not isinstance(index, int) or problem.place is not None:
            return problem
        if section == "operators" and index >= self.own_operators:
            line, column = self.positions[spec.operators[index].uid]
        elif section == "sinks" and index >= self.own_sinks:
            statement = self.statements[spec.sinks[index].input]
            line, column = statement.line, statement.column
        else:
            return problem
        from milepost.jobspec.sql import for_statements

        return replace(problem, path=(), message=for_statements(problem.message), place=self.source.place(line, column))


def read_sql(spec: JobSpec, path: Path) -> SqlText | None:
    """Return the SQL of a spec, or None if it has none. Raises InvalidRequest: it cannot be read."""
    if spec.sql is None:
        return None
    if isinstance(spec.sql, str):
        text = SqlText.of(spec.sql, _read(spec, spec.sql, path, MAX_CHARACTERS, "the SQL file"))
    else:
        from milepost.jobspec.load.dbt_models import models_text

        manifest = _read(spec, spec.sql.dbt, path, MAX_MANIFEST_CHARACTERS, "the dbt manifest")
        text = models_text(spec.sql, manifest, [*spec.sources, *(one.uid for one in spec.operators)])
    if spec.compiled is None:
        return text
    return text.with_compiled(_read(spec, spec.compiled, path, MAX_CHARACTERS, "the compiled spec"))


def _read(spec: JobSpec, name: str, path: Path, limit: int, what: str) -> str:
    """Return the text of a file that the spec at `path` names. Raises InvalidRequest."""
    file = path.parent / name
    try:
        with file.open(encoding="utf-8") as stream:
            text = stream.read(limit + 1)
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"{name} is not UTF-8 text (byte {problem.start}). Nothing was run.") from None
    except OSError as problem:
        message = f"{name}, {what} of job {spec.name}, cannot be read: {problem.strerror}. Nothing was run."
        raise InvalidRequest(message, hint=f"The name is relative to the spec: {path.parent}.") from None
    if len(text) > limit:
        raise InvalidRequest(f"{name} has more than {limit} characters. Nothing was run.")
    return text


def compiled_value(spec: JobSpec, value: Mapping[str, Any], sql: SqlText) -> tuple[SqlOrigin | None, list[Problem]]:
    """Return a spec's value with operators and sinks instead of its SQL, and where they come from.

    Returns: problems, at their lines of the SQL, and no origin, if it cannot be compiled.
    """
    from milepost.jobspec.load.pinned_steps import pin_steps
    from milepost.jobspec.sql import add_former_uids, compile_sql, rename_problems

    job = compile_sql(spec, sql.text)
    if job.problems:
        return None, [Problem((), one.reason, place=sql.place(one.line, one.column)) for one in job.problems]
    if spec.compiled is not None and (problems := pin_steps(job, value, spec.compiled, sql.compiled)):
        return None, problems
    uids = [str(operator["uid"]) for operator in job.operators]
    problems = rename_problems(spec.renamed, list(job.statements), uids)
    if problems:
        return None, problems
    add_former_uids(job.operators, spec.renamed)
    compiled = {key: entry for key, entry in value.items() if key not in ("sql", "compiled", "tables", *_COMPILED_KEYS)}
    operators, sinks = list(value.get("operators") or ()), list(value.get("sinks") or ())
    compiled["statements"] = {name: one.text for name, one in job.statements.items()}
    compiled["operators"], compiled["sinks"] = [*operators, *job.operators], [*sinks, *job.sinks]
    origin = SqlOrigin(sql, compiled, job.statements, job.positions, len(operators), len(sinks), spec.compiled)
    return origin, []


def sql_problems(spec: JobSpec) -> list[Problem]:
    """Return the problems of keys that only a spec with SQL, or without SQL, may have."""
    problems = []
    if spec.sql is None and spec.tables is not None:
        problems.append(Problem(("tables",), "`tables` needs `sql`: it locates the tables of statements", at_key=True))
    if spec.sql is None and spec.compiled is not None:
        problems.append(Problem(("compiled",), "`compiled` needs `sql`: it has steps of its statements", at_key=True))
    if spec.sql is None and not spec.statements and spec.renamed:
        problems.append(Problem(("renamed",), "`renamed` needs `sql`: it names its statements", at_key=True))
    if spec.sql is not None and spec.statements:
        message = "a spec with `sql` has no `statements`: they are compiled from its file"
        problems.append(Problem(("statements",), message, at_key=True))
    return problems


def as_yaml(value: Mapping[str, Any]) -> str:
    """Return a spec's value as YAML, with texts of several lines as blocks."""
    from ruamel.yaml import YAML
    from ruamel.yaml.representer import SafeRepresenter

    class Representer(SafeRepresenter):
        pass

    def text(representer: SafeRepresenter, value: str) -> Any:
        style = "|" if "\n" in value else None
        return representer.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Representer.add_representer(str, text)
    writer: Any = YAML(typ="safe", pure=True)
    writer.Representer = Representer
    writer.default_flow_style = False
    writer.sort_base_mapping_type_on_output = False
    writer.width = 100_000
    stream = io.StringIO()
    writer.dump(dict(value), stream)
    return stream.getvalue()
