"""Former names of statements and common table expressions (`renamed`): their steps continue the state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from milepost.jobspec.sql.statements import SKELETON
from milepost.language import Problem
from milepost.operators import KINDS
from milepost.operators.base import StatefulSpec

_OF_RELATIONS = ("join_", "left_", "value_", "from_", "in_", "scalar_", "query_", "union_")
"""What the names of steps have in front of the relation that they read, perhaps several of it."""


def rename_problems(renamed: Mapping[str, str], statements: Sequence[str], uids: Sequence[str]) -> list[Problem]:
    """Return the problems of `renamed`.

    Args:
        statements: the statements of the file. uids: all compiled operators.
    """
    problems, taken = [], dict[str, str]()
    queries = [*statements, *dict.fromkeys(".".join(uid.split("__")[:2]) for uid in uids if "__" in uid)]
    named = {name for query in queries for name in _names(query, renamed)}
    for name, former in renamed.items():
        path, own = ("renamed", name), name.partition(".")[0]
        if ("." in name) != ("." in former):
            problems.append(Problem(path, "a statement was a statement, and statement.name a common table expression"))
        elif own not in named:
            problems.append(Problem(path, f"there is no statement {own}", at_key=True))
        elif name not in named:
            problems.append(Problem(path, f"statement {own} has no step of {name.partition('.')[2]}", at_key=True))
        elif former in queries:
            problems.append(Problem(path, f"{former} is in the SQL file, and continues its own state"))
        elif former in taken:
            problems.append(Problem(path, f"{taken[former]} already continues the state of {former}"))
        taken.setdefault(former, name)
    return problems


def first_name(statement: str, renamed: Mapping[str, str]) -> str:
    """Return the oldest name of a statement, which its table has: of `{c: b, b: a}` and c it is a."""
    *_, first = _names(statement, renamed)
    return first


def first_step_name(step: str, statement: str, renamed: Mapping[str, str]) -> str:
    """Return the oldest name of a step of a statement, as far as it contains the name of a relation that it reads.

    With `renamed: {revenue: income}` that of `scalar_revenue` is `scalar_income`.
    """
    return _former_names(step, lambda name: _former_step(name, statement, renamed))[-1]


def _names(query: str, renamed: Mapping[str, str]) -> list[str]:
    """Return the names of a statement, or of `statement.name`, a common table expression, newest first."""
    # {c: b, c.new: b.old}: c.new was b.old.  {b.new: b.old, c: b}: c.new was b.new, and before that b.old.
    return _former_names(query, lambda name: _former_name(name, renamed))


def _former_names(name: str, former_of: Callable[[str], str]) -> list[str]:
    """Return a name and its former names, newest first. Renames in a circle end where they began."""
    names = [name]
    while (former := former_of(names[-1])) not in names:
        names.append(former)
    return names


def _former_name(query: str, renamed: Mapping[str, str]) -> str:
    statement, dot, name = query.partition(".")
    return renamed.get(query, f"{renamed.get(statement, statement)}{dot}{name}")


def add_former_uids(operators: Sequence[dict[str, Any]], renamed: Mapping[str, str]) -> None:
    """Add `renamed_from` to the stateful operators of renamed statements, and of those that read them."""
    uids = {str(operator["uid"]) for operator in operators}
    for operator in operators:
        former = former_uid(str(operator["uid"]), renamed)
        if former not in uids and issubclass(KINDS[operator["kind"]], StatefulSpec):
            operator["renamed_from"] = former


def former_uid(uid: str, renamed: Mapping[str, str]) -> str:
    """Return the uid of a step under the former names.

    Examples with `renamed: {revenue: income, revenue.recent: income.newest}`::

        revenue__agg -> income__agg          revenue__recent__top -> income__newest__top
        best__join_revenue -> best__join_income
    """
    statement, *steps = uid.split("__")
    query = f"{statement}.{steps[0]}" if steps else ""
    if query in renamed:
        return "__".join([*renamed[query].split("."), *steps[1:]])
    read = [_former_step(step, statement, renamed) for step in steps]
    return "__".join([renamed.get(statement, statement), *read])


def former_uids(uid: str, renamed: Mapping[str, str]) -> list[str]:
    """Return the former uids of an operator, newest first: under `{c: b, b: a}`, c__agg has b__agg and a__agg.

    A checkpoint may have been made between two renames. So under `{c: b, d: a}`, c__join_d has b__join_a, b__join_d and
    c__join_a.
    """
    single = [{name: former} for name, former in renamed.items()]
    formers, at = [uid], 0
    while at < len(formers):
        names = (former_uid(formers[at], one) for one in (renamed, *single))
        formers += [name for name in dict.fromkeys(names) if name not in formers]
        at += 1
    return formers[1:]


def _former_step(step: str, statement: str, renamed: Mapping[str, str]) -> str:
    """Return the former name of one step of a statement, which contains the name of a relation that it reads."""
    if step in SKELETON:
        return step
    former = renamed.get(f"{statement}.{step}", renamed.get(step))
    if former is not None:
        return former.rpartition(".")[2]
    for prefix in _OF_RELATIONS:
        if step.startswith(prefix):
            return prefix + _former_step(step.removeprefix(prefix), statement, renamed)
    relation, _, number = step.rpartition("_")
    return f"{_former_step(relation, statement, renamed)}_{number}" if relation and number.isdigit() else step
