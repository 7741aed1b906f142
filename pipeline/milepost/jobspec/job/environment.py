"""Resolve `${env:NAME}` and `${env:NAME:-default}` in connection fields.

References are resolved when a connection is made. Only the unresolved text is hashed, stored, logged or shown, so a
secret never leaves the process that needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from milepost.errors import InvalidRequest
from milepost.jobspec.job.sources.source_kinds import AnySource
from milepost.jobspec.job.spec import JobSpec, SinkSpec
from milepost.language import Path, Problem, show_path

_REFERENCE = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)(?::-((?:[^}$]|\$(?!\{env:))*))?\}")
"""A default cannot contain another reference, so that matching takes linear time."""
_BEGINNING = "${env:"
_ALLOWED = "store, the connection of a source, a sink's path, catalog and dsn, spark.remote, spark.conf"


def resolve_text(text: str, environment: Mapping[str, str], where: str) -> str:
    """Return `text` with every reference replaced. Raises InvalidRequest naming a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        actual = environment.get(match[1])
        if actual is None and match[2] is None:
            raise InvalidRequest(
                f"{where}: the environment variable {match[1]} is not set. Nothing was run or changed.",
                hint=f"Set {match[1]}, or give a default: ${{env:{match[1]}:-default}}.",
                variable=match[1],
            )
        return actual if actual is not None else match[2]

    return _REFERENCE.sub(value, text)


def referenced_variables(text: str) -> list[str]:
    """Return the names of the environment variables that a text refers to."""
    return [match[1] for match in _REFERENCE.finditer(text)]


def resolve_spec(spec: JobSpec, environment: Mapping[str, str]) -> JobSpec:
    """Return the spec with its connection fields resolved. Raises InvalidRequest."""
    texts = {"endpoint_url": spec.store.endpoint_url, "region": spec.store.region}
    store = {name: resolve_text(text, environment, f"store.{name}") for name, text in texts.items()}
    sources = {name: _resolve_source(name, source, environment) for name, source in spec.sources.items()}
    sinks = tuple(resolve_sink(sink, environment, f"sinks[{index}]") for index, sink in enumerate(spec.sinks))
    conf = {name: resolve_text(text, environment, f"spark.conf.{name}") for name, text in spec.spark.conf.items()}
    remote = None if spec.spark.remote is None else resolve_text(spec.spark.remote, environment, "spark.remote")
    return spec.model_copy(
        update={
            "store": spec.store.model_copy(update=store),
            "sources": sources,
            "sinks": sinks,
            "spark": spec.spark.model_copy(update={"remote": remote or None, "conf": conf}),
        }
    )


def _resolve_source(name: str, source: AnySource, environment: Mapping[str, str]) -> AnySource:
    texts = {
        path: resolve_text(text, environment, show_path(("sources", name, *path)))
        for path, text in source.connection_texts.items()
    }
    return source.with_connection_texts(texts)


def resolve_sink(sink: SinkSpec, environment: Mapping[str, str], where: str) -> SinkSpec:
    """Return a sink with its connection fields resolved. `where` is its path in messages. Raises InvalidRequest."""
    catalog = sink.catalog
    if catalog is not None:
        options = {
            name: resolve_text(text, environment, f"{where}.catalog.options.{name}")
            for name, text in catalog.options.items()
        }
        uri = resolve_text(catalog.uri, environment, f"{where}.catalog.uri")
        catalog = catalog.model_copy(update={"uri": uri, "options": options})
    texts = {"path": sink.path, "dsn": sink.dsn}
    resolved = {
        name: resolve_text(text, environment, f"{where}.{name}") for name, text in texts.items() if text is not None
    }
    return sink.model_copy(update={**resolved, "catalog": catalog})


def literal_text(text: str, absent: str = "") -> str:
    """Return a text with each reference replaced by its default, or by `absent`."""
    return _REFERENCE.sub(lambda match: match[2] or absent, text)


def reference_problems(spec: JobSpec) -> list[Problem]:
    """Return a problem for each reference that is malformed or outside the connection fields."""
    problems = []
    for path, text in _texts(spec.model_dump(mode="json", by_alias=True), ()):
        if _BEGINNING not in text:
            continue
        if not _is_connection(spec, path):
            problems.append(Problem(path, f"${{env:…}} is resolved only in connection fields ({_ALLOWED})"))
        elif _BEGINNING in _REFERENCE.sub("", text):
            problems.append(Problem(path, "expected ${env:NAME} or ${env:NAME:-default}"))
    return problems


def _is_connection(spec: JobSpec, path: Path) -> bool:
    if path[0] == "sources":
        return path[2:] in spec.sources[str(path[1])].connection_texts
    shown = show_path(path)
    spark = shown == "spark.remote" or shown.startswith("spark.conf.")
    of_sink = path[0] == "sinks" and (path[-1] in ("path", "dsn") or "catalog" in path)
    return path[0] == "store" or spark or of_sink


def _texts(value: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))
