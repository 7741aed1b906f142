"""Pin unedited statements to recorded steps, whatever this version compiles them to.

`compiled` of a spec names a compiled spec, such as the one that a checkpoint records. It has the tokens of its
statements. A statement with the same tokens and the same inputs keeps the operators of that file.
Example, after an upgrade that compiles both statements differently::

    compiled spec   large: SELECT id FROM orders WHERE amount > 10      sizes: SELECT n, count(*) …
    SQL file        large: SELECT id FROM orders WHERE amount > 20      sizes: SELECT n, count(*) …
                    compiled by this version                            operators of the compiled spec
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from milepost.jobspec.load.document import Unreadable, read_document
from milepost.jobspec.sql import CompiledJob
from milepost.language import Problem


def pin_steps(job: CompiledJob, value: Mapping[str, Any], name: str, text: str) -> list[Problem]:
    """Replace the operators of unedited statements by those of a compiled spec.

    Args:
        value: the spec. name, text: the file with the compiled spec.
    Returns: why it cannot be used.
    """
    try:
        recorded = read_document(text).value
    except Unreadable as problem:
        return [Problem(("compiled",), f"{name} is not a compiled spec: {problem.message}")]
    recorded = recorded if isinstance(recorded, Mapping) else {}
    statements, operators, sources = (recorded.get(key) for key in ("statements", "operators", "sources"))
    if not isinstance(statements, Mapping) or not isinstance(operators, list):
        missing = "it has no `statements` and `operators`, which `lint --as-yaml` writes"
        return [Problem(("compiled",), f"{name} is not a compiled spec: {missing}")]
    steps: dict[str, list[dict[str, Any]]] = {}
    for operator in operators:
        if not isinstance(operator, Mapping):
            return [Problem(("compiled",), f"{name} is not a compiled spec: an operator is no mapping")]
        own = {key: entry for key, entry in operator.items() if key != "renamed_from"}
        steps.setdefault(str(operator.get("uid")).partition("__")[0], []).append(own)
    if not isinstance(sources, Mapping):
        return [Problem(("compiled",), f"{name} is not a compiled spec: it has no `sources`")]
    compiled: dict[str, list[dict[str, Any]]] = {}
    for operator in job.operators:
        compiled.setdefault(str(operator["uid"]).partition("__")[0], []).append(operator)
    declared = {str(one["uid"]): one for one in value.get("operators") or ()}
    before = {str(one.get("uid")): one for one in operators}

    @cache
    def is_recorded(node: str) -> bool:
        if node in declared:
            return before.get(node) == declared[node] and all(map(is_recorded, declared[node]["inputs"]))
        if node not in job.statements:
            return sources.get(node) == value["sources"].get(node)
        inputs = {name for one in compiled[node] for name in one["inputs"] if name.partition("__")[0] != node}
        return statements.get(node) == job.statements[node].text and all(map(is_recorded, inputs))

    pinned = [one for one in job.statements if is_recorded(one) and steps.get(one) != compiled[one]]
    for statement in pinned:
        compiled[statement] = steps.get(statement, [])
        _pin(job, statement, compiled[statement], name)
    if pinned:
        job.operators = [operator for one in compiled.values() for operator in one]
    return []


def _pin(job: CompiledJob, name: str, operators: list[dict[str, Any]], file: str) -> None:
    """Map recorded operators to the position of their statement, and add a warning that another version made them."""
    statement = job.statements[name]
    place = statement.line, statement.column
    uids = tuple(str(operator["uid"]) for operator in operators)
    job.positions |= {uid: place for uid in uids if uid not in job.positions}
    warning = (*place, f"its steps are those of {file}; without `compiled`, this version compiles others")
    job.statements[name] = replace(statement, operators=uids, warnings=(*statement.warnings, warning))
