"""Check the target of a migration: as part of a spec, and its stored contents. Read-only."""

from __future__ import annotations

import os
from typing import Any

from milepost.errors import InvalidRequest
from milepost.jobmaster.job.context import JobContext
from milepost.jobspec.graph import structure_problems
from milepost.jobspec.job import JobSpec
from milepost.jobspec.load import placement_problems, read_document, validate_spec
from milepost.language import show_path
from milepost.tables.records import TableAddress, TableContents, TableRegistry, at_address

_EMPTY_PLACE = "name a path that is empty, and that no other sink uses"
_KEYS = "milepost migrate-table --help names what each format needs"


def check_target(context: JobContext, name: str, target: TableAddress) -> None:
    """Raise InvalidRequest if the target is not a valid sink: missing or unknown keys, or secrets."""
    if any(sink.name == name and sink.input in context.spec.statements for sink in context.spec.sinks):
        raise InvalidRequest(
            f"sink {name}: the table of a SQL statement cannot be migrated in this version: `tables` locates all of "
            "them. Nothing was changed.",
            hint="Create the new table as a sink of the spec that reads the statement.",
            sink=name,
        )
    _migrated_spec(context, name, target)


def check_place(context: JobContext, name: str, contents: TableContents, target: TableAddress) -> None:
    """Raise InvalidRequest if the target location has other contents: of this job, another job, or anyone else."""
    spec = _migrated_spec(context, name, target)
    here = target.format, context.sink_location(name, target)
    tables = {contents.location: contents.address}
    tables |= {item.location: item.address for item in TableRegistry(context.store, name).tables()}
    sink = context.job.spec.sink(name)
    others = tuple(
        at_address(sink, address).model_copy(update={"name": f"{name}, as it is or was"})
        for location, address in tables.items()
        if (address.format, location) != here
    )
    other_sinks = tuple(sink for sink in spec.sinks if sink.name != name)
    spec = spec.model_copy(update={"sinks": (*others, *other_sinks, spec.sink(name))})
    problems = placement_problems(spec, context.job.module_dir, os.environ)
    _refuse(name, target, [problem.message for problem in problems], _EMPTY_PLACE)
    new = context.sink(name, target)
    owner = new.owner()
    if owner is not None and new.belongs_to_other(context.identity):
        raise InvalidRequest(
            f"sink {name}: {new.store.config.url} is reserved for sink {owner.sink} of job {owner.job}. Nothing was "
            "changed.",
            hint=_EMPTY_PLACE,
            sink=name,
        )
    existing = None if owner is not None else next(iter(new.store.list("", limit=1)), None)
    if existing is not None:
        raise InvalidRequest(
            f"sink {name}: {new.store.config.url} is not empty: it contains {existing.key}. Nothing was changed.",
            hint=_EMPTY_PLACE,
            sink=name,
        )
    position = new.position()
    if not position.is_known:
        raise InvalidRequest(
            f"sink {name}: the table at {new.store.config.url} shows {position}. Nothing was changed.",
            hint=_EMPTY_PLACE,
            sink=name,
        )


def _migrated_spec(context: JobContext, name: str, target: TableAddress) -> JobSpec:
    """Return the job's spec with the sink's table at the target, validated as any spec."""
    value: Any = read_document(context.job.text).value
    index = next(at for at, sink in enumerate(value["sinks"]) if sink["name"] == name)
    sink = {key: said for key, said in value["sinks"][index].items() if key not in ("table", "catalog")}
    sink |= {"format": target.format, "path": target.path}
    if target.table is not None:
        sink["table"] = target.table
    if (catalog := target.catalog) is not None:
        named = {"type": catalog.type, "uri": catalog.uri, "name": catalog.name, "options": dict(catalog.options)}
        sink["catalog"] = named
    sinks = [sink if at == index else other for at, other in enumerate(value["sinks"])]
    spec, problems = validate_spec({**value, "sinks": sinks})
    problems = [*problems, *(structure_problems(spec) if spec is not None else ())]
    _refuse(name, target, [f"{show_path(problem.path)}: {problem.message}" for problem in problems], _KEYS)
    assert spec is not None, "a value without problems is a spec"
    return spec


def _refuse(name: str, target: TableAddress, problems: list[str], hint: str) -> None:
    if problems:
        raise InvalidRequest(
            f"sink {name}: its table cannot go to {target}: {'; '.join(problems)}. Nothing was changed.",
            hint=hint,
            sink=name,
        )
