"""The loader reads, checks and resolves a job spec."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.protocol.records.errors import EnvironmentUnusable, InvalidRequest, NotFound
from milepost.protocol.records.locations import (
    absolute_url,
    child_url,
    database_uri,
    endpoint_problem,
    location_problem,
)
from milepost.protocol.records.object_store import StoreConfig
from milepost.spec.graph.checks import structure_problems
from milepost.spec.job.connections import (
    ConnectionLookup,
    PostgresAccess,
    environment_connection,
    postgres_access,
    s3_access,
    spark_server,
)
from milepost.spec.job.environment import referenced_variables, resolve_spec, resolve_text
from milepost.spec.job.spec import JobSpec, SinkSpec
from milepost.spec.load.document import MAX_CHARACTERS, Document, Unreadable, read_document
from milepost.spec.load.placement import placement_problems
from milepost.spec.load.validation import validate_spec
from milepost.spec.values.problems import Problem, invalid_spec
from milepost.spec.values.spark_remote import SparkRemote, parse_remote
from milepost.spec.values.suggestions import nearest

if TYPE_CHECKING:
    from milepost.spec.graph.graph import JobGraph, Outputs

CONFIG_FOLDER = "config"
_SUFFIXES = (".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class LoadedJob:
    """A job whose spec is valid as far as no SQL was read (`graph()` reads it). Picklable; holds no secret.

    Attributes:
        spec: with `${env:…}` unresolved.
        path: of the spec file, absolute.
        text: of the spec file.
        spec_hash: hex SHA-256 of the canonical unresolved spec. Comments, the order of the spec's own keys and
            spelled-out defaults do not change it; the order of names that the user chose, such as columns, does.
        module_dir: where modules beside the spec are found.
        find_connection: looks a Connection up by its id, when something is opened.
    """

    spec: JobSpec
    path: Path
    text: str
    spec_hash: str
    module_dir: Path
    find_connection: ConnectionLookup = field(default=environment_connection, compare=False, repr=False)

    def resolved(self, environment: Mapping[str, str] | None = None) -> JobSpec:
        """Return the spec with `${env:…}` and the files of catalogs resolved now.

        Raises:
            InvalidRequest: a variable is not set; it is named.
        """
        spec = resolve_spec(self.spec, os.environ if environment is None else environment)
        return spec.model_copy(update={"sinks": tuple(map(self.with_catalog_file, spec.sinks))})

    def with_catalog_file(self, sink: SinkSpec) -> SinkSpec:
        """Return a sink whose catalog, where it is a file, is the same one wherever a process was started."""
        if sink.catalog is None:
            return sink
        catalog = sink.catalog.model_copy(update={"uri": database_uri(sink.catalog.uri, self.module_dir)})
        return sink.model_copy(update={"catalog": catalog})

    def graph(self, outputs: Outputs | None = None) -> JobGraph:
        """Return the job graph. Raises InvalidRequest with the places of all problems in the file.

        Args:
            outputs: what the classes of process operators declare, once they are loaded.
        """
        from milepost.spec.graph.graph import analyse

        graph, problems = analyse(self.spec, outputs)
        if graph is None:
            raise _invalid(problems, self.path, read_document(self.text))
        return graph

    @property
    def storage_url(self) -> str:
        """The root that jobs share, absolute."""
        return self.url(self.spec.storage)

    def url(self, location: str) -> str:
        """Return the absolute URL of a location of this spec; a relative path begins at the spec's folder.

        Raises:
            InvalidRequest: a variable in it is not set, or what it resolves to is no location.
        """
        text = resolve_text(location, os.environ, "path")
        problem = location_problem(text)
        if problem:
            raise InvalidRequest(f"the location {location!r} of job {self.spec.name} is unusable: {problem}.")
        return absolute_url(text, self.module_dir)

    def store_config(self, url: str) -> StoreConfig:
        """Return how to reach a store root with this job's connection.

        Raises:
            InvalidRequest: as `resolved` does. EnvironmentUnusable: the Connection that it names is of no use.
        """
        conn_id = self.spec.store.conn_id
        if conn_id is not None and url.startswith("s3:"):
            access = s3_access(self.find_connection(conn_id))
            return StoreConfig(
                url=url,
                endpoint_url=access.endpoint_url,
                region=access.region,
                endpoint_origins=(f"Connection {conn_id}",),
                conn_id=conn_id,
                credentials=access.credentials,
            )
        endpoint = resolve_text(self.spec.store.endpoint_url, os.environ, "store.endpoint_url")
        problem = endpoint_problem(endpoint)
        if problem:
            raise InvalidRequest(f"store.endpoint_url of job {self.spec.name}: {problem}. Nothing was run or changed.")
        region = resolve_text(self.spec.store.region, os.environ, "store.region")
        named = referenced_variables(self.spec.store.endpoint_url)
        return StoreConfig(url=url, endpoint_url=endpoint or None, region=region, endpoint_origins=tuple(named))

    def spark_server(self) -> SparkRemote | None:
        """Return the Spark Connect server that epochs run on, looked up now; None: a session of their own.

        Raises:
            InvalidRequest: as `resolved` does. EnvironmentUnusable: its address or its Connection is of no use.
        """
        if self.spec.spark.conn_id is not None:
            return spark_server(self.find_connection(self.spec.spark.conn_id))
        text = self.resolved().spark.remote
        try:
            return None if text is None else parse_remote(text)
        except ValueError as problem:
            raise EnvironmentUnusable(
                f"spark.remote: {problem}. Nothing was run.",
                hint="correct `spark.remote`, or the variable it refers to",
            ) from None

    def postgres_access(self, sink: str) -> PostgresAccess:
        """Return how the database of a sink's table is reached, looked up now.

        Raises:
            InvalidRequest: as `resolved` does. EnvironmentUnusable: its Connection is of no use.
        """
        spec = self.resolved().sink(sink)
        if spec.conn_id is not None:
            return postgres_access(self.find_connection(spec.conn_id))
        return PostgresAccess(f"the `dsn` of sink {sink}", dsn=spec.dsn or "")

    @property
    def job_store(self) -> StoreConfig:
        """Where all of this job lies: `<storage>/<name>`."""
        return self.store_config(child_url(self.storage_url, self.spec.name))


def load_job(path_or_name: str | Path, root: Path | None = None) -> LoadedJob:
    """Return the job of a spec file, or of a name under `config/`.

    Args:
        path_or_name: a path is taken from the working directory; a name is `<root>/config/<name>.yaml`.
        root: None = the working directory.
    Raises:
        NotFound: no such file or name.
        InvalidRequest: all problems of the file, each with file, line and column.
    """
    path = find_spec(str(path_or_name), Path.cwd() if root is None else root)
    job = from_text(read_spec(path), path)
    require_placed(job)
    return job


def read_spec(path: Path) -> str:
    """Return the text of a spec file. Raises InvalidRequest: it cannot be read, or its path is no text."""
    if _escaped(path.absolute()) != str(path.absolute()):
        raise InvalidRequest(
            f"{shown_path(path)}: the name of the file is not UTF-8. Nothing was run.",
            hint="Rename it: the path of a spec is stored with its job.",
        )
    try:
        with path.open(encoding="utf-8") as stream:
            return stream.read(MAX_CHARACTERS + 1)  # and no more: `read_document` refuses a longer one
    except UnicodeDecodeError as problem:
        raise InvalidRequest(f"{shown_path(path)} is not UTF-8 text (byte {problem.start}). Nothing was run.") from None
    except OSError as problem:
        raise InvalidRequest(f"{shown_path(path)} cannot be read: {problem.strerror}. Nothing was run.") from None


def from_text(text: str, path: Path) -> LoadedJob:
    """Return the job of a spec that is said to lie at `path`. Raises InvalidRequest."""
    spec, spec_hash, problems, document = _validated(text)
    if spec is None or problems:
        raise _invalid(problems, path, document)
    return from_spec(spec, spec_hash, text, path)


def from_spec(spec: JobSpec, spec_hash: str, text: str, path: Path) -> LoadedJob:
    """Return the job of a spec that was validated before; it is said to lie at `path`."""
    path = _plain(path)
    return LoadedJob(spec=spec, path=path, text=text, spec_hash=spec_hash, module_dir=path.parent)


def require_placed(job: LoadedJob) -> None:
    """Refuse a job whose places overlap, as they resolve in this environment. Raises InvalidRequest."""
    problems = placement_problems(job.spec, job.module_dir, os.environ)
    if problems:
        raise _invalid(problems, job.path, read_document(job.text))


@lru_cache(maxsize=16)
def _validated(text: str) -> tuple[JobSpec | None, str, list[Problem], Document]:
    """Return the spec of a text with its hash, or its problems: a command asks for the same few texts many times."""
    try:
        document = read_document(text)
    except Unreadable as problem:
        return None, "", [Problem((), problem.message)], Document(values={(): (problem.line, problem.column)})
    spec, problems = validate_spec(document.value)
    problems = [*document.problems, *problems, *(structure_problems(spec) if spec else ())]
    return spec, hash_spec(spec) if spec else "", problems, document


def hash_spec(spec: JobSpec) -> str:
    """Return the hex SHA-256 of the canonical JSON of a spec.

    Keys of the model are in the order of its fields. Names that the user chose keep their order: that of columns breaks
    ties between rows.
    """
    value = spec.model_dump(mode="json", by_alias=True)
    return hashlib.sha256(json.dumps(value, separators=(",", ":")).encode()).hexdigest()


def find_spec(path_or_name: str, root: Path) -> Path:
    """Return the spec file that a path or a name means. Raises NotFound."""
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
        hint=f"Jobs there: {', '.join(known[:20]) or 'none'}. `milepost init {path_or_name}` writes a new one."
        if not near
        else f"Jobs there: {', '.join(known[:20])}.",
    )


def spec_files(folder: Path) -> list[Path]:
    """Return the spec files directly in a folder, by name; those in its subfolders are examples and the demo's."""
    return sorted(path for path in folder.glob("*") if path.suffix in _SUFFIXES and path.is_file())


def is_spec(text: str) -> bool:
    """Return whether a text names a job, by its file or its name, and no storage."""
    return "/" not in text or text.endswith(_SUFFIXES)


def shown_path(path: Path) -> str:
    """Return a path as its user knows it: relative to the working directory when it lies below."""
    absolute = _plain(path)
    return _escaped(absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else absolute)


def _escaped(path: Path) -> str:
    r"""Return a path as text that can be printed: a byte of it that is not UTF-8 is `\xe9`."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _plain(path: Path) -> Path:
    """Return a path absolute and, where that is the same file, without `..`."""
    absolute = path.absolute()
    plain = Path(os.path.normpath(absolute))
    with contextlib.suppress(OSError):
        return plain if plain.samefile(absolute) else absolute
    return absolute


def _invalid(problems: list[Problem], path: Path, document: Document) -> InvalidRequest:
    return invalid_spec(problems, file=shown_path(path), keys=document.keys, values=document.values)
