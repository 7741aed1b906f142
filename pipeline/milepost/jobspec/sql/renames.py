"""Former names of statements and common table expressions (`renamed`): their steps continue the state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from milepost.language import Problem
from milepost.operators import KINDS
from milepost.operators.base import StatefulSpec

_JOIN, _FROM = "join_", "from_"


def rename_problems(renamed: Mapping[str, str], statements: Sequence[str], uids: Sequence[str]) -> list[Problem]:
    """Return the problems of `renamed`.

    Args:
        statements: the statements of the file. uids: all compiled operators.
    """
    problems, taken = [], dict[str, str]()
    named = {name for statement in statements for name in _names(statement, renamed)}
    for name, former in renamed.items():
        path, own = ("renamed", name), name.partition(".")[0]
        if ("." in name) != ("." in former):
            problems.append(Problem(path, "a statement was a statement, and statement.name a common table expression"))
        elif own not in statements and name not in named:
            problems.append(Problem(path, f"there is no statement {own}", at_key=True))
        elif "." in name and not _has_steps(name, uids):
            problems.append(Problem(path, f"statement {own} has no step of {name.partition('.')[2]}", at_key=True))
        elif former in statements or ("." in former and _has_steps(former, uids)):
            problems.append(Problem(path, f"{former} is in the SQL file, and continues its own state"))
        elif former in taken:
            problems.append(Problem(path, f"{taken[former]} already continues the state of {former}"))
        taken.setdefault(former, name)
    return problems


def first_name(statement: str, renamed: Mapping[str, str]) -> str:
    """Return the oldest name of a statement, which its table has: of `{c: b, b: a}` and c it is a."""
    *_, first = _names(statement, renamed)
    return first


def _names(statement: str, renamed: Mapping[str, str]) -> list[str]:
    """Return the names of a statement, newest first."""
    names = [statement]
    while (former := renamed.get(names[-1])) is not None and former not in names:
        names.append(former)
    return names


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
    read = [_former_relation(step, statement, renamed) for step in steps]
    return "__".join([renamed.get(statement, statement), *read])


def former_uids(uid: str, newest: str, renamed: Mapping[str, str]) -> list[str]:
    """Return the former uids of an operator, newest first: under `{c: b, b: a}`, c__agg has b__agg and a__agg."""
    formers = [newest]
    while (former := former_uid(formers[-1], renamed)) not in (uid, *formers):
        formers.append(former)
    return formers


def _former_relation(step: str, statement: str, renamed: Mapping[str, str]) -> str:
    prefix = _JOIN if step.startswith(_JOIN) else ""
    relation = step.removeprefix(prefix)
    if relation.startswith(_FROM) and (former := renamed.get(f"{statement}.{relation.removeprefix(_FROM)}")):
        return f"{prefix}{_FROM}{former.rpartition('.')[2]}"
    former = renamed.get(f"{statement}.{relation}", renamed.get(relation, relation))
    return prefix + former.rpartition(".")[2]


def _has_steps(query: str, uids: Sequence[str]) -> bool:
    step = query.replace(".", "__")
    return any(uid == step or uid.startswith(f"{step}__") for uid in uids)
