"""Read the models of a dbt project as statements, from the manifest that `dbt compile` writes.

A model becomes a CREATE statement over its compiled code, in which dbt has rendered the Jinja. The names of relations
are replaced by those that statements and sources have in a job::

    SELECT * FROM `lake`.`shop`.`stg_shop__orders`  ->  SELECT * FROM `stg_shop_orders`
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from milepost.errors import InvalidRequest
from milepost.jobspec.job.sql_spec import TAG, DbtSpec, listed
from milepost.jobspec.load.dbt_relations import renamed
from milepost.jobspec.load.sql_text import SqlText
from milepost.language import did_you_mean
from milepost.language.sql import SqlProblem, quote, sql_tokens
from milepost.protocol.records import cached_property

ADAPTERS = ("databricks", "spark")
MATERIALIZED = {
    "materialized_view": "CREATE MATERIALIZED VIEW",
    "table": "CREATE MATERIALIZED VIEW",
    "streaming_table": "CREATE STREAMING TABLE",
    "view": "CREATE TEMPORARY VIEW",
}
"""Materialization of a model -> its statement."""

_OptionText = Annotated[str, Field(pattern=r"^[^'`]+$")]
_EXPECTED = {
    "string_pattern_mismatch": "no quotes",
    "string_type": "a string",
    "tuple_type": "a list",
    "model_type": "a mapping",
}
"""Type of a pydantic error -> what an option must be."""
_EPHEMERAL = "ephemeral"


class _Part(BaseModel):
    """A part of the manifest. Keys that are not declared here are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class DbtOptions(BaseModel):
    """The options of a node, in its `meta.milepost`.

    Attributes:
        allowed_lateness, ttl: the options `milepost.…` of the statement. partition_by: columns of PARTITIONED BY.
        source: name in `sources` of the spec, of a node that is read and not selected.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    allowed_lateness: _OptionText | None = None
    ttl: _OptionText | None = None
    partition_by: Annotated[tuple[_OptionText, ...], BeforeValidator(listed)] = ()
    source: _OptionText | None = None

    @property
    def clauses(self) -> Iterator[str]:
        """The clauses of the statement."""
        if self.partition_by:
            yield f"PARTITIONED BY ({', '.join(map(quote, self.partition_by))})"
        options = {"allowed_lateness": self.allowed_lateness, "ttl": self.ttl}
        entries = [f"'milepost.{name}' = '{value}'" for name, value in options.items() if value is not None]
        if entries:
            yield f"TBLPROPERTIES ({', '.join(entries)})"


class _Config(_Part):
    materialized: str | None = None
    meta: dict[str, Any] = Field(default_factory=dict)


class _DependsOn(_Part):
    nodes: tuple[str, ...] = ()


class _Node(_Part):
    resource_type: str
    name: str
    relation_name: str | None = None
    compiled_code: str | None = None
    compiled_path: str | None = None
    original_file_path: str = ""
    language: str = "sql"
    tags: tuple[str, ...] = ()
    meta: dict[str, Any] = Field(default_factory=dict)
    config: _Config = _Config()
    depends_on: _DependsOn = _DependsOn()

    @property
    def statement_name(self) -> str:
        """The name in a job, where `__` separates the steps of a statement."""
        return self.name.lower().replace("__", "_")

    @property
    def selectors(self) -> set[str]:
        """Values of `select` that match the model."""
        return {self.name, *(TAG + tag for tag in self.tags)}

    @property
    def is_ephemeral(self) -> bool:
        return self.resource_type == "model" and self.config.materialized == _EPHEMERAL

    @property
    def file(self) -> str:
        return self.compiled_path or self.original_file_path or self.name


class _Metadata(_Part):
    adapter_type: str | None = None


class _Manifest(_Part):
    metadata: _Metadata
    nodes: dict[str, _Node]
    sources: dict[str, _Node] = Field(default_factory=dict)


def models_text(spec: DbtSpec, manifest: str, declared: Sequence[str]) -> SqlText:
    """Return the statements of the selected models.

    Args:
        manifest: text of the manifest. declared: names of the sources and operators of the spec.

    Raises:
        InvalidRequest: it is not a manifest, was not compiled for Spark, or a selected model cannot be a statement.
    """
    try:
        project = _Manifest.model_validate(json.loads(manifest))
    except (ValueError, ValidationError, RecursionError) as problem:
        what = problem.errors()[0] if isinstance(problem, ValidationError) else {"loc": (), "msg": str(problem)}
        at = ".".join(map(str, what["loc"]))
        raise InvalidRequest(
            f"{spec.dbt} is not a manifest of dbt{f' at {at}' if at else ''}: {what['msg']}. Nothing was run.",
            hint="`dbt compile` writes it to target/manifest.json.",
        ) from None
    return _Models(spec, project, frozenset(declared)).text(SqlText.digest_of(manifest))


@dataclass(frozen=True)
class _Models:
    spec: DbtSpec
    project: _Manifest
    declared: frozenset[str]

    def text(self, manifest_digest: str) -> SqlText:
        adapter = self.project.metadata.adapter_type
        if adapter not in ADAPTERS:
            raise self._refused(f"it was compiled by the adapter {adapter}, but a job's SQL is Spark SQL", _RECOMPILE)
        if not self._selected:
            raise self._refused("`select` names only ephemeral models, which are not statements", _SELECT_READER)
        lines: list[str] = []
        parts: list[tuple[int, str]] = []
        seen: dict[str, str] = {}
        for key, node in self._selected.items():
            name = node.statement_name
            if name in seen:
                both = f"the models {seen[name]} and {node.name}"
                raise self._refused(f"{both} would have the same statement name, {name}", _RENAME)
            seen[name] = node.name
            parts.append((len(lines) + 1, node.file))  # its first line is after the CREATE
            lines += [self._header(node), *self._code(key, node).split("\n"), ";"]
        return SqlText(self.spec.dbt, "\n".join(lines), manifest_digest, tuple(parts))

    @cached_property
    def _selected(self) -> dict[str, _Node]:
        """The selected models by their ids, in the order of ids."""
        models = {key: node for key, node in sorted(self.project.nodes.items()) if node.resource_type == "model"}
        selected: set[str] = set()
        for selector in self.spec.select:
            matches = {key for key, node in models.items() if selector in node.selectors}
            if not matches:
                available = sorted({text for node in models.values() for text in node.selectors})
                what = f"`select` names {selector}, which is neither the name nor a tag of a model"
                raise self._refused(f"{what}; {did_you_mean(selector, available)}")
            selected |= matches
        return {key: models[key] for key in sorted(selected) if not models[key].is_ephemeral}

    def _header(self, node: _Node) -> str:
        create = MATERIALIZED.get(node.config.materialized or "")
        if create is None:
            raise self._refused(f"model {node.name} is {node.config.materialized}", _MATERIALIZE)
        options = self._options(node)
        if options.source is not None:
            raise self._refused(f"model {node.name} is selected, so it has no `source` in `meta.milepost`")
        return " ".join([f"{create} {quote(node.statement_name)}", *options.clauses, "AS"])

    def _options(self, node: _Node) -> DbtOptions:
        """Return the options, which are in the configuration of the node or, in older versions of dbt, on the node."""
        try:
            return DbtOptions.model_validate((node.config.meta or node.meta).get("milepost", {}))
        except ValidationError as problem:
            first = problem.errors()[0]
            at = ".".join(map(str, ("meta.milepost", *first["loc"])))
            reason = f"expected {_EXPECTED[first['type']]}" if first["type"] in _EXPECTED else first["msg"]
            if first["type"] == "extra_forbidden":
                reason = f"unknown option; {did_you_mean(str(first['loc'][-1]), DbtOptions.model_fields)}"
            raise self._refused(f"{node.resource_type} {node.name}: {at}: {reason}") from None

    def _code(self, key: str, node: _Node) -> str:
        """Return the compiled code, with the names of the job in place of relations."""
        if node.compiled_code is None or node.language != "sql":
            what = "is not compiled" if node.language == "sql" else f"is written in {node.language}"
            raise self._refused(f"model {node.name} {what}", _RECOMPILE)
        names = dict(self._relations(key, node))
        try:
            return renamed(node.compiled_code, names)
        except SqlProblem as problem:
            raise self._refused(f"{node.file}:{problem.line}:{problem.column}: {problem.reason}") from None

    def _relations(self, key: str, node: _Node) -> Iterator[tuple[tuple[str, ...], str]]:
        """Yield the relations that a model reads: tokens of the name, in lower case, and the name in the job."""
        taken: dict[str, str] = {}
        for read in sorted(self._inputs(key)):
            other = self.project.nodes.get(read) or self.project.sources.get(read)
            if other is None or not other.relation_name:
                what = f"model {node.name} reads {read}, whose relation is not in the manifest"
                raise self._refused(what, _RECOMPILE)
            is_selected = read in self._selected
            name = other.statement_name if is_selected else self._options(other).source or other.statement_name
            if not is_selected and name not in self.declared:
                what = f"model {node.name} reads {other.resource_type} {other.name}, but the spec has no source {name}"
                or_select = ", or let `select` name it" if other.resource_type == "model" else ""
                raise self._refused(what, f"Declare {name} in `sources`{or_select}.")
            if taken.setdefault(name, read) != read:
                both = f"{taken[name]} and {read}, which are both named {name}"
                raise self._refused(f"model {node.name} reads {both}", _NAME_SOURCE)
            yield tuple(token.text.lower() for token in sql_tokens(other.relation_name)), name

    def _inputs(self, key: str) -> set[str]:
        """Return the ids of the relations that a model reads, through the ephemeral models in its code."""
        read: set[str] = set()
        pending, visited = [key], {key}
        while pending:
            for other in self.project.nodes[pending.pop()].depends_on.nodes:
                node = self.project.nodes.get(other)
                if node is not None and node.is_ephemeral:
                    if other not in visited:
                        visited.add(other)
                        pending.append(other)
                else:
                    read.add(other)
        return read

    def _refused(self, what: str, hint: str = "") -> InvalidRequest:
        return InvalidRequest(f"{self.spec.dbt}: {what}. Nothing was run.", hint=hint)


_RECOMPILE = "Run `dbt compile` with the adapter for Spark or Databricks, and name the manifest that it writes."
_SELECT_READER = "Select the models that read them."
_RENAME = "Give one of them another name."
_NAME_SOURCE = "Name the source of the spec in `meta: {milepost: {source: NAME}}` of one of them."
_MATERIALIZE = (
    f"Set `materialized` to {', '.join(MATERIALIZED)} or {_EPHEMERAL}. The code of an incremental model depends on "
    "the contents of its table. In a job, every table is updated incrementally."
)
