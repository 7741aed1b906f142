"""Validate plain values as a `JobSpec`, and translate pydantic's errors to spec terms."""

from __future__ import annotations

import copy
import types
import typing
from typing import Any

from pydantic import Tag, ValidationError
from pydantic_core import ErrorDetails

from milepost.jobspec.job.sources.file_source import FileSourceSpec
from milepost.jobspec.job.sources.source_kinds import SOURCE_KINDS, UNAVAILABLE_FORMATS
from milepost.jobspec.job.spec import JobSpec
from milepost.language import Path, Problem, SpecModel, did_you_mean, find_option, not_available, shortened

_NO_KEY = (
    "expected at least 1 column, got 0; to put all rows under one key, add a constant column, 1 AS all_rows, in an "
    "upstream `sql` operator"
)
_BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than", "pattern": "a string matching"}
_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "bool_type": "true or false",
    "dict_type": "a mapping",
    "tuple_type": "a list",
}
_SECRET_PARTS = ("store", "conf", "path", "dsn", "catalog", "bootstrap_servers", "client", "registry")


def validate_spec(value: object) -> tuple[JobSpec | None, list[Problem]]:
    """Return (spec, []) or (None, all problems)."""
    if not isinstance(value, dict):
        return None, [Problem((), f"expected a mapping with the keys {', '.join(_keys(JobSpec))}")]
    try:
        return JobSpec.model_validate(value), []
    except ValidationError as failure:
        errors = failure.errors(include_url=False)
    disabled = [path for path in map(_disabled_key, errors) if path]
    if disabled:
        pruned = copy.deepcopy(value)
        for path in disabled:
            _remove(pruned, path)
        return validate_spec(pruned)
    return None, [_problem(error) for error in errors if not _is_consequence(error)]


def _is_consequence(error: ErrorDetails) -> bool:
    """Return whether a list is too short only because pydantic does not count items that have their own errors."""
    value = error["input"]
    return error["type"] == "too_short" and isinstance(value, list) and len(value) >= error["ctx"]["min_length"]


def _keys(model: type[SpecModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _disabled_key(error: ErrorDetails) -> Path | None:
    """Return the path of a key that this version does not support and that is null, which means off."""
    if error["type"] != "extra_forbidden" or error["input"] is not None:
        return None
    path, owner, _ = _locate(error["loc"])
    return path if owner and path[-1] in owner.unavailable_keys else None


def _remove(value: Any, path: Path) -> None:
    for part in path[:-1]:
        value = value[part]
    del value[path[-1]]


def _locate(loc: tuple[int | str, ...]) -> tuple[Path, type[SpecModel] | None, Any]:
    """Return the path in the spec, the model that owns its last key, and the annotation of its value.

    pydantic's locations also contain the tags of unions and `[key]`, which the path omits:
    ("operators", 0, "aggregate", "key") -> ("operators", 0, "key").
    """
    annotation: Any = JobSpec
    owner: type[SpecModel] | None = None
    path: list[str | int] = []
    for part in loc:
        annotation = _unwrap(annotation)
        if part == "[key]":
            continue
        if isinstance(annotation, type) and issubclass(annotation, SpecModel):
            owner = annotation
            fields = {field.alias or name: field for name, field in annotation.model_fields.items()}
            annotation = fields[str(part)].annotation if part in fields else None
            path.append(part)
        elif typing.get_origin(annotation) in (dict, tuple):
            arguments = typing.get_args(annotation)
            annotation = arguments[1] if typing.get_origin(annotation) is dict else arguments[0]
            path.append(part)
        elif typing.get_origin(annotation) in (typing.Union, types.UnionType):
            annotation = next((m for m in typing.get_args(annotation) if part in _kinds(m)), None)
        else:
            path.append(part)
    return tuple(path), owner, _unwrap(annotation)


def _unwrap(annotation: Any) -> Any:
    while typing.get_origin(annotation) is typing.Annotated:
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [m for m in typing.get_args(annotation) if m is not type(None)]
        if len(members) == 1:
            return _unwrap(members[0])
    return annotation


def _kinds(model: Any) -> tuple[Any, ...]:
    """Return the values of the discriminator that select a member of a union."""
    tags = tuple(one.tag for one in getattr(model, "__metadata__", ()) if isinstance(one, Tag))
    if tags:
        return tags
    name = next(name for name in ("kind", "strategy", "format") if name in model.model_fields)
    return typing.get_args(model.model_fields[name].annotation)


def _problem(error: ErrorDetails) -> Problem:
    kind, (path, owner, annotation) = error["type"], _locate(error["loc"])
    context: dict[str, Any] = error.get("ctx", {})
    actual = _shown(path, error["input"])
    if kind == "extra_forbidden" and owner is not None:
        return Problem(path, _unknown_key(owner, str(path[-1])), at_key=True)
    if kind == "missing":
        return Problem(path[:-1], f"`{path[-1]}` is missing")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _untagged(path, str(context["discriminator"]).strip("'"), annotation, context.get("tag"))
    if kind == "literal_error":
        return Problem(path, _wrong_value(owner, path, annotation, error["input"]))
    if kind == "value_error":
        return Problem(path, str(context["error"]), at_key="[key]" in error["loc"])
    if kind == "too_short" and path[-1] == "key" and not error["input"]:
        return Problem(path, _NO_KEY)
    if kind in ("too_short", "too_long"):
        return Problem(path, _wrong_length(path, kind, context))
    bound = next((f"{words} {context[name]}" for name, words in _BOUNDS.items() if name in context), None)
    if bound is not None:
        return Problem(path, f"expected {bound}, got {actual}")
    if kind in ("model_type", "model_attributes_type"):
        is_model = isinstance(annotation, type) and issubclass(annotation, SpecModel)  # not a union of several
        keys = f" with the keys {', '.join(_keys(annotation))}" if is_model else ""
        return Problem(path, f"expected a mapping{keys}, got {actual}")
    if kind in _EXPECTED:
        return Problem(path, f"expected {_EXPECTED[kind]}, got {actual}")
    return Problem(path, f"{error['msg']}, got {actual}")


def _untagged(path: Path, key: str, annotation: Any, tag: object) -> Problem:
    """Return the problem of a union with a missing or unknown discriminator."""
    choices = [str(choice) for member in typing.get_args(annotation) for choice in _kinds(member)]
    if tag is None:
        return Problem(path, f"`{key}` is missing: one of {', '.join(choices)}")
    if key == "format" and tag in UNAVAILABLE_FORMATS:
        message = f"{not_available(f'{key}: {tag}')}; available: {', '.join(choices)}"
        return Problem((*path, key), message)
    return Problem((*path, key), f"there is no `{key}: {tag}`; {did_you_mean(str(tag), choices)}")


def _unknown_key(owner: type[SpecModel], key: str) -> str:
    if key in owner.unavailable_keys:
        return not_available(key)
    if key in owner.refused_keys:
        return f"`{key}` {owner.refused_keys[key]}"
    formats = [format_ for format_, spec in SOURCE_KINDS.items() if key in _keys(spec)]
    if owner in SOURCE_KINDS.values() and formats:
        return f"`{key}` is only for format: {', '.join(formats)}; remove it"
    option = find_option(key) if owner is FileSourceSpec else None
    suggestion = f"write `options: {{{option}: …}}`" if option else did_you_mean(key, _keys(owner))
    return f"unknown key `{key}`; {suggestion}"


def _wrong_value(owner: type[SpecModel] | None, path: Path, annotation: Any, value: object) -> str:
    key, allowed = str(path[-1]), [str(choice) for choice in typing.get_args(annotation)]
    if owner and isinstance(value, str) and value in owner.unavailable_values.get(key, ()):
        return f"{not_available(f'{key}: {value}')}; available: {', '.join(allowed)}"
    return f"expected one of {', '.join(allowed)}, got {_shown(path, value)}"


def _wrong_length(path: Path, kind: str, context: dict[str, Any]) -> str:
    if path[-1] == "inputs" and context.get("min_length", context.get("max_length")) != 1:
        return f"expected two inputs, got {context['actual_length']}"
    if path[-1] == "inputs":
        return f"exactly one input is available in this version, got {context['actual_length']}"
    if path[-1] == "expectations":
        return "expected at least one expectation: an empty suite would pass everything"
    bound = f"at least {context.get('min_length')}" if kind == "too_short" else f"at most {context.get('max_length')}"
    return f"expected {bound} item, got {context.get('actual_length')}"


def _shown(path: Path, value: object) -> str:
    """Return a value for an error message. Mappings and lists are named by kind, and connection fields are hidden."""
    if any(part in _SECRET_PARTS for part in path) and isinstance(value, str):
        return "another value"
    if isinstance(value, (dict, list)):
        return "a mapping" if isinstance(value, dict) else "a list"
    return "nothing" if value is None else shortened(repr(value))
