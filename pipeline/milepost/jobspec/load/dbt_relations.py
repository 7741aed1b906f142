"""Rename the relations in the compiled code of a dbt model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from milepost.language.sql import problem_from, quote, sql_tokens

_EPHEMERAL_CTE = "__dbt__cte__"
_LITERALS = ("STRING", "RAW_STRING", "NUMBER")
"""Kinds of tokens that are no names, so they are never replaced."""

_BEFORE_RELATION = ("FROM", "JOIN", "COMMA", "L_PAREN")
_AFTER_FROM = ("WHERE", "GROUP_BY", "HAVING", "QUALIFY", "ORDER_BY", "LIMIT", "UNION", "INTERSECT", "EXCEPT", "LATERAL",
               "WINDOW", "SORT_BY", "CLUSTER_BY", "DISTRIBUTE_BY")  # fmt: skip
_SELECT, _FROM, _OTHER = "in a SELECT list", "in FROM", "elsewhere"


def renamed(code: str, names: Mapping[tuple[str, ...], str]) -> str:
    """Return a query with other names of relations.

    A relation is replaced after FROM, JOIN and a comma between relations, not in the name of a column.

    Args:
        names: tokens of a relation's name, in lower case -> the new name.

    Raises:
        SqlProblem: the query cannot be read, is not one query, or has a common table expression with the new name of a
            relation that it reads elsewhere too.

    Example: ``renamed("SELECT a FROM `s`.`t`", {("s", ".", "t"): "u"})`` is "SELECT a FROM `u`".
    """
    tokens = sql_tokens(code)
    longest_first = sorted(names.items(), key=lambda entry: -len(entry[0]))
    bodies, places = list(_bodies(tokens)), set(_relation_places(tokens))
    pieces, copied, at = [], 0, 0
    while at < len(tokens):
        token, text = tokens[at], str(tokens[at].text)
        if token.token_type.name == "SEMICOLON" and at + 1 < len(tokens):
            raise problem_from(code, token.start, "expected one query, got several statements")
        length, name = _relation_at(tokens, at, longest_first) if at in places else (0, "")
        if length:
            named = [(first, last) for cte, first, last in bodies if cte == name]
            if named and not any(first < at < last for first, last in named):
                message = f"the common table expression {name} would hide this relation; give it another name"
                raise problem_from(code, token.start, message)
        elif token.token_type.name not in _LITERALS and text.startswith(_EPHEMERAL_CTE):
            length, name = 1, "dbt_" + text.removeprefix(_EPHEMERAL_CTE).lower().replace("__", "_")
        else:
            at += 1
            continue
        pieces += [code[copied : token.start], quote(name)]
        copied = tokens[at + length - 1].end + 1
        at += length
    return "".join([*pieces, code[copied:]])


def _relation_places(tokens: Sequence[Any]) -> Iterator[int]:
    """Yield the indexes at which a relation may begin."""
    # SELECT day, extract(day FROM at) FROM s.t, (s.u JOIN s.v ON …)  ->  s.t, s.u and s.v
    states, before = [_OTHER], ""
    for index, token in enumerate(tokens):
        kind = token.token_type.name
        if states[-1] == _FROM and before in _BEFORE_RELATION and kind != "L_PAREN":
            yield index
        if kind == "L_PAREN":
            states.append(_FROM if states[-1] == _FROM and before in _BEFORE_RELATION else _OTHER)
        elif kind == "R_PAREN" and len(states) > 1:
            states.pop()
        elif kind == "SELECT":
            states[-1] = _SELECT
        elif kind == "FROM" and states[-1] == _SELECT and before != "DISTINCT":  # not IS DISTINCT FROM
            states[-1] = _FROM
        elif kind in _AFTER_FROM:
            states[-1] = _OTHER
        before = kind


def _bodies(tokens: Sequence[Any]) -> Iterator[tuple[str, int, int]]:
    """Yield each common table expression: its name in lower case, and the indexes of its brackets."""
    kinds = [token.token_type.name for token in tokens]
    for at in range(len(tokens) - 2):
        if kinds[at + 1 : at + 3] != ["ALIAS", "L_PAREN"] or kinds[at] in _LITERALS:
            continue
        depth = 0
        for last in range(at + 2, len(tokens)):
            depth += (kinds[last] == "L_PAREN") - (kinds[last] == "R_PAREN")
            if not depth:
                yield str(tokens[at].text).lower(), at + 2, last
                break


def _relation_at(tokens: Sequence[Any], at: int, names: Sequence[tuple[tuple[str, ...], str]]) -> tuple[int, str]:
    """Return the number of tokens of the relation that begins here, and its new name; (0, ""): it has none."""
    for parts, name in names:
        if tuple(str(token.text).lower() for token in tokens[at : at + len(parts)]) == parts:
            return len(parts), name
    return 0, ""
