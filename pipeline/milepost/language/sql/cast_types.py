"""Refuse casts to types that Spark does not have, and suggest Spark's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milepost.language.suggestions import nearest

TYPES = """
array bigint binary boolean byte char character date dec decimal double float geography geometry int integer interval
long map numeric real short smallint string struct time timestamp timestamp_ltz timestamp_ntz tinyint varchar variant
void
""".split()  # noqa: SIM905
SPARK_TYPES = {
    "bool": "BOOLEAN",
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float64": "DOUBLE",
    "number": "DECIMAL(p, s)",
    "list": "ARRAY<…>",
    **dict.fromkeys(("str", "text", "utf8", "uuid"), "STRING"),
    **dict.fromkeys(("bytea", "bytes"), "BINARY"),
    **dict.fromkeys(("datetime", "timestamptz"), "TIMESTAMP"),
}
"""Type name in specs and other engines -> Spark's name."""
NESTED = ("array", "map", "struct")
WITH_LENGTH = ("char", "character", "varchar")


def type_problem(tokens: list[Any]) -> tuple[Any, str] | None:
    """Return (token, message) for the first type in a cast that is not a Spark type, or None."""
    # CAST(x AS struct<a: int64>): _type_starts yields the index of `struct`, _type_names those of `struct` and
    # `int64`. The result is the token `int64`, with "it is not a Spark type; did you mean BIGINT?".
    for index in (index for start in _type_starts(tokens) for index in _type_names(tokens, start)):
        token, following = tokens[index], [after.token_type.name for after in tokens[index + 1 : index + 2]]
        name = token.text.casefold()
        if name in TYPES and (name not in WITH_LENGTH or following == ["L_PAREN"]):
            continue
        if name in WITH_LENGTH:
            return token, f"CAST AS {token.text}: the type needs a length; did you mean STRING?"
        suggestion = SPARK_TYPES.get(name) or (nearest(name, TYPES) or "").upper()
        hint = f"; did you mean {suggestion}?" if suggestion else ""
        return token, f"CAST AS {token.text}: it is not a Spark type{hint}"
    return None


def _type_starts(tokens: list[Any]) -> Iterator[int]:
    """Yield the index where the type of each cast begins: after AS in `CAST(… AS …)`, or after `::`."""
    opened: list[bool] = []
    for index, token in enumerate(tokens[:-1]):
        kind = token.token_type.name
        is_written = tokens[index + 1].start > tokens[index - 1].end + 1  # sqlglot tokenizes `0D` as `0::D`
        if kind == "L_PAREN":
            opened.append(index > 0 and tokens[index - 1].text.casefold() in ("cast", "try_cast"))
        elif kind == "R_PAREN" and opened:
            opened.pop()
        elif (kind == "DCOLON" and is_written) or (kind == "ALIAS" and opened and opened[-1]):
            yield index + 1


def _type_names(tokens: list[Any], start: int) -> Iterator[int]:
    """Yield the index of a type's name and of its inner types: `array<…>`, `map<…, …>`, `struct<a: …, b …>`."""
    yield start
    opened, parameters = list[str](), 0
    for index in range(start + 1, len(tokens)):
        earlier, before, text = (token.text.casefold() for token in tokens[index - 2 : index + 1])
        if text == "<" and before in NESTED:
            opened.append(before)
        elif not opened:
            return
        elif text == ">":
            opened.pop()
        elif text in ("(", ")"):
            parameters += 1 if text == "(" else -1
        elif not parameters:
            of_field = before == ":" or (earlier in ("<", ",") and text != ":")
            if of_field if opened[-1] == "struct" else before in ("<", ","):
                yield index
