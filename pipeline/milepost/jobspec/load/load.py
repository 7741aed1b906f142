"""Find, read, check and resolve job specs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.errors import EnvironmentUnusable, InvalidRequest, NotFound
from milepost.jobspec.graph.checks import source_problems, step_name_problems, structure_problems
from milepost.jobspec.job.catalog_spec import CatalogSpec
from milepost.jobspec.job.connections import (
    ConnectionLookup,
    PostgresAccess,
    RegistryAccess,
    environment_connection,
    postgres_access,
    registry_access,
    s3_store,
    spark_server,
)
from milepost.jobspec.job.environment import referenced_variables, resolve_spec, resolve_text
from milepost.jobspec.job.sources.iceberg_source import IcebergSourceSpec
from milepost.jobspec.job.sources.kafka_source import KafkaSourceSpec
from milepost.jobspec.job.sources.postgres_source import PostgresSourceSpec
from milepost.jobspec.job.spec import JobSpec, SinkSpec
from milepost.jobspec.load.document import MAX_CHARACTERS, Document, Unreadable, read_document
from milepost.jobspec.load.placement import placement_problems
from milepost.jobspec.load.sql_job import SqlOrigin, compiled_value, read_sql, sql_problems
from milepost.jobspec.load.sql_text import SqlText
from milepost.jobspec.load.validation import validate_spec
from milepost.language import Problem, SparkRemote, invalid_spec, nearest, parse_remote
from milepost.protocol.records import (
    StoreConfig,
    absolute_url,
    child_url,
    database_uri,
    endpoint_problem,
    location_problem,
)

if TYPE_CHECKING:
    from milepost.jobspec.graph.graph import JobGraph, Outputs

CONFIG_FOLDER = "config"
_SUFFIXES = (".yaml", ".yml")
CACHED_SPECS = 256
"""A page with all jobs of a deployment loads each spec again: with fewer than it has, it would parse all of them."""

_LATER_KEYS = ("sql", "compiled", "tables", "renamed", "statements")
"""Keys that earlier versions did not have."""


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job with a valid spec, except that its SQL was not parsed (`graph()` does). Picklable, contains no secret.

    Attributes:
        spec: the spec, with `${env:…}` unresolved.
        path: absolute path of the spec file.
        spec_text: text of the spec file.
        spec_hash: hex SHA-256 of the canonical unresolved spec. Comments, the order of the spec's own keys and explicit
            defaults do not change it; the order of names that the user chose, such as columns, does.
        module_dir: folder of the spec, where its modules are.
        sql: where the compiled part of the spec comes from; None: the spec has no SQL.
        find_connection: looks up a Connection by its id, when it is needed.
    """

    spec: JobSpec
    path: Path
    spec_text: str
    spec_hash: str
    module_dir: Path
    sql: SqlOrigin | None = field(default=None, compare=False, repr=False)
    find_connection: ConnectionLookup = field(default=environment_connection, compare=False, repr=False)

    @property
    def text(self) -> str:
        """The text of the spec file. For a job with a SQL file, the compiled spec, which needs no other file."""
        return self.spec_text if self.sql is None else self.sql.text

    def resolved(self, environment: Mapping[str, str] | None = None) -> JobSpec:
        """Return the spec with `${env:…}` and relative catalog files resolved.

        Raises:
            InvalidRequest: a variable is not set.
        """
        spec = resolve_spec(self.spec, os.environ if environment is None else environment)
        sources = {
            name: source.model_copy(update={"catalog": self._absolute(source.catalog)})
            if isinstance(source, IcebergSourceSpec)
            else source
            for name, source in spec.sources.items()
        }
        return spec.model_copy(update={"sources": sources, "sinks": tuple(map(self.with_catalog_file, spec.sinks))})

    def with_catalog_file(self, sink: SinkSpec) -> SinkSpec:
        """Return a sink with an absolute catalog file, if any, so that it does not depend on the working directory."""
        return sink if sink.catalog is None else sink.model_copy(update={"catalog": self._absolute(sink.catalog)})

    def _absolute(self, catalog: CatalogSpec) -> CatalogSpec:
        return catalog.model_copy(update={"uri": database_uri(catalog.uri, self.module_dir)})

    def graph(self, outputs: Outputs | None = None) -> JobGraph:
        """Return the job graph. Raises InvalidRequest with all problems and their positions in the file.

        Args:
            outputs: columns that the classes of process operators declare, if they were loaded.
        """
        from milepost.jobspec.graph.graph import analyse

        graph, problems = analyse(self.spec, outputs)
        if graph is None:
            raise self.invalid(problems)
        return graph

    def invalid(self, problems: Sequence[Problem]) -> InvalidRequest:
        """Return the error that reports problems of this spec at their positions in its files."""
        sql = self.sql
        located = problems if sql is None else [sql.located(problem, self.spec) for problem in problems]
        return _invalid(located, self.path, read_document(self.spec_text))

    @property
    def storage_url(self) -> str:
        """The absolute URL of the storage root that jobs share."""
        return self.url(self.spec.storage)

    def url(self, location: str) -> str:
        """Return the absolute URL of a location in this spec. A relative path is relative to the spec's folder.

        Raises:
            InvalidRequest: a variable in it is not set, or it does not resolve to a location.
        """
        text = resolve_text(location, os.environ, "path")
        problem = location_problem(text)
        if problem:
            raise InvalidRequest(f"the location {location!r} of job {self.spec.name} is not valid: {problem}.")
        return absolute_url(text, self.module_dir)

    def store_config(self, url: str) -> StoreConfig:
        """Return how to reach a store root with this job's connection.

        Raises:
            InvalidRequest: as in `resolved`. EnvironmentUnusable: the Connection is missing or not usable.
        """
        conn_id = self.spec.store.conn_id
        if conn_id is not None and url.startswith("s3:"):
            return s3_store(url, self.find_connection(conn_id))
        endpoint = resolve_text(self.spec.store.endpoint_url, os.environ, "store.endpoint_url")
        problem = endpoint_problem(endpoint)
        if problem:
            raise InvalidRequest(f"store.endpoint_url of job {self.spec.name}: {problem}. Nothing was run or changed.")
        region = resolve_text(self.spec.store.region, os.environ, "store.region")
        named = referenced_variables(self.spec.store.endpoint_url)
        return StoreConfig(url=url, endpoint_url=endpoint or None, region=region, endpoint_origins=tuple(named))

    def spark_server(self) -> SparkRemote | None:
        """Return the Spark Connect server that runs epochs; None: a session in the epoch's process.

        Raises:
            InvalidRequest: as in `resolved`. EnvironmentUnusable: its address or Connection is missing or not usable.
        """
        if self.spec.spark.conn_id is not None:
            return spark_server(self.find_connection(self.spec.spark.conn_id))
        text = self.resolved().spark.remote
        try:
            return None if text is None else parse_remote(text)
        except ValueError as problem:
            raise EnvironmentUnusable(
                f"spark.remote: {problem}. Nothing was run.",
                hint="correct `spark.remote` or the environment variable it refers to",
            ) from None

    def postgres_access(self, sink: str) -> PostgresAccess:
        """Return how to reach the database of a sink's table.

        Raises:
            InvalidRequest: as in `resolved`. EnvironmentUnusable: its Connection is missing or not usable.
        """
        spec = self.resolved().sink(sink)
        if spec.conn_id is not None:
            return postgres_access(self.find_connection(spec.conn_id))
        return PostgresAccess(f"the `dsn` of sink {sink}", dsn=spec.dsn or "")

    def source_access(self, source: str) -> PostgresAccess:
        """Return how to reach the database of a Postgres source. Raises: as `postgres_access`."""
        spec = self.resolved().sources[source]
        assert isinstance(spec, PostgresSourceSpec), spec
        if spec.conn_id is not None:
            return postgres_access(self.find_connection(spec.conn_id))
        return PostgresAccess(f"the `dsn` of source {source}", dsn=spec.dsn or "")

    def registry_access(self, source: str) -> RegistryAccess:
        """Return how to reach the schema registry of a Kafka source. Raises: as `postgres_access`."""
        spec = self.resolved().sources[source]
        assert isinstance(spec, KafkaSourceSpec) and spec.value.registry is not None, spec
        registry = spec.value.registry
        if registry.conn_id is not None:
            return registry_access(self.find_connection(registry.conn_id))
        return RegistryAccess(registry.url or "", registry.username, registry.password, registry.ca_location)

    @property
    def job_store(self) -> StoreConfig:
        """The store of this job, `<storage>/<name>`."""
        return self.store_config(child_url(self.storage_url, self.spec.name))


def load_job(path_or_name: str | Path, root: Path | None = None) -> LoadedJob:
    """Load the job of a spec file, or of a name under `config/`.

    Args:
        path_or_name: a path is relative to the working directory; a name means `<root>/config/<name>.yaml`.
        root: None: the working directory.
    Raises:
        NotFound: there is no such file or name.
        InvalidRequest: all problems of the file, each with file, line and column.
    """
    path = find_spec(str(path_or_name), Path.cwd() if root is None else root)
    job = from_text(read_spec(path), path)
    check_placement(job)
    return job


def read_spec(path: Path) -> str:
    """Return the text of a spec file. Raises InvalidRequest: it cannot be read, or its path is not UTF-8."""
    if _escaped(path.absolute()) != str(path.absolute()):
        raise InvalidRequest(
            f"{shown_path(path)}: the name of the file is not UTF-8. Nothing was run.",
            hint="Rename it: the path of a spec is stored with its job.",
        )
    try:
        with path.open(encoding="utf-8") as stream:
            return stream.read(MAX_CHARACTERS + 1)  # `read_document` refuses a longer text
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"{shown_path(path)} is not UTF-8 text (byte {problem.start}). Nothing was run.") from None
    except OSError as problem:
        raise InvalidRequest(f"{shown_path(path)} cannot be read: {problem.strerror}. Nothing was run.") from None


def from_text(text: str, path: Path, sql: SqlText | None = None) -> LoadedJob:
    """Return the job of a spec text, as if it had been read from `path`. Raises InvalidRequest.

    Args:
        sql: its SQL. None: it is read from the file that the spec names, if any.
    """
    spec, spec_hash, problems, document = _validated(text)
    if spec is None or problems:
        raise _invalid(problems, path, document)
    if spec.sql is None:
        return from_spec(spec, spec_hash, text, path)
    sql = read_sql(spec, path) if sql is None else sql
    assert sql is not None, "a spec with `sql` has a file"
    compiled, spec_hash, origin, problems = _compiled(text, sql)
    if compiled is None or problems:
        raise _invalid(problems, path, document)
    return replace(from_spec(compiled, spec_hash, text, path), sql=origin)


@lru_cache(maxsize=CACHED_SPECS)
def _compiled(text: str, sql: SqlText) -> tuple[JobSpec | None, str, SqlOrigin | None, list[Problem]]:
    """Return the compiled spec of a text with its hash and its origin, or the problems."""
    spec, _, _, document = _validated(text)
    assert spec is not None, "a spec with problems is not compiled"
    origin, problems = compiled_value(spec, document.value, sql)
    if origin is None:
        return None, "", None, problems
    compiled, problems = validate_spec(origin.value)
    if compiled is None:  # the compiler validated its own operators; the sinks follow from `tables`
        at = ["compiled" if problem.path[:1] == ("operators",) else "tables" for problem in problems]
        problems = [Problem((key,), problem.message) for key, problem in zip(at, problems, strict=True)]
        return None, "", None, problems
    problems = [origin.located(problem, compiled) for problem in structure_problems(compiled)]
    return compiled, hash_spec(compiled), origin, problems


def from_spec(spec: JobSpec, spec_hash: str, text: str, path: Path) -> LoadedJob:
    """Return the job of a spec that was validated before, as if it had been read from `path`."""
    path = _plain(path)
    return LoadedJob(spec=spec, path=path, spec_text=text, spec_hash=spec_hash, module_dir=path.parent)


def check_placement(job: LoadedJob) -> None:
    """Refuse a job with locations that overlap when resolved in this environment. Raises InvalidRequest."""
    problems = placement_problems(job.spec, job.module_dir, os.environ)
    if problems:
        raise job.invalid(problems)


@lru_cache(maxsize=CACHED_SPECS)
def _validated(text: str) -> tuple[JobSpec | None, str, list[Problem], Document]:
    """Return the spec of a text with its hash, or its problems. Cached, because commands load the same texts often."""
    try:
        document = read_document(text)
    except Unreadable as problem:
        return None, "", [Problem((), problem.message)], Document(values={(): (problem.line, problem.column)})
    spec, problems = validate_spec(document.value)
    problems = [*document.problems, *problems]
    if spec is not None:
        problems += sql_problems(spec)
        if spec.sql is None:
            problems += structure_problems(spec)
        else:  # what sinks and suites name is known after the SQL file was compiled
            problems += [*step_name_problems(spec), *source_problems(spec)]
    return spec, hash_spec(spec) if spec else "", problems, document


def hash_spec(spec: JobSpec) -> str:
    """Return the hex SHA-256 of the canonical JSON of a spec.

    Keys of the model are in the order of its fields. Names that the user chose keep their order, because the order of
    columns breaks ties between rows. Keys that earlier versions did not have count only if they are given.
    """
    value = spec.model_dump(mode="json", by_alias=True)
    value = {key: entry for key, entry in value.items() if entry or key not in _LATER_KEYS}
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


def find_spec(path_or_name: str, root: Path) -> Path:
    """Return the spec file for a path or a name. Raises NotFound."""
    is_path = "/" in path_or_name or path_or_name.endswith(_SUFFIXES)
    folder = root / CONFIG_FOLDER
    candidates = [Path(path_or_name)] if is_path else [folder / f"{path_or_name}{suffix}" for suffix in _SUFFIXES]
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if is_path:
        raise NotFound(f"there is no spec file {path_or_name}. Nothing was run.", hint="Check the path.")
    known = sorted({path.stem for path in spec_files(folder)})
    near = nearest(path_or_name, known)
    guess = f' Did you mean "{near}"?' if near else ""
    raise NotFound(
        f"there is no job {path_or_name}: {shown_path(folder / (path_or_name + '.yaml'))} does not exist.{guess}",
        hint=f"Known jobs: {', '.join(known[:20]) or 'none'}. `milepost init {path_or_name}` creates a new one."
        if not near
        else f"Known jobs: {', '.join(known[:20])}.",
    )


def spec_files(folder: Path) -> list[Path]:
    """Return the spec files directly in a folder, sorted. Subfolders hold examples and the demo."""
    return sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES and path.is_file())


def is_spec(text: str) -> bool:
    """Return whether a text is a job name or a spec file, and not a storage."""
    return "/" not in text or text.endswith(_SUFFIXES)


def shown_path(path: Path) -> str:
    """Return a path for messages: relative to the working directory if it is below."""
    absolute = _plain(path)
    return _escaped(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute)


def _escaped(path: Path) -> str:
    r"""Return a path as printable text. A byte that is not UTF-8 becomes `\xe9`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _plain(path: Path) -> Path:
    """Return an absolute path, without `..` if that names the same file."""
    absolute = path.absolute()
    plain = Path(os.path.normpath(absolute))
    with contextlib.suppress(OSError):
        return plain if plain.samefile(absolute) else absolute
    return absolute


def _invalid(problems: Sequence[Problem], path: Path, document: Document) -> InvalidRequest:
    return invalid_spec(problems, file=shown_path(path), keys=document.keys, values=document.values)
