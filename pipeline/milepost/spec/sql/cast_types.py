"""Types of casts are Spark's: those of a spec and of other engines are refused by name, with what Spark calls them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from milepost.spec.values.suggestions import nearest

TYPES = """
array bigint binary boolean byte char character date dec decimal double float geography geometry int integer interval
long map numeric real short smallint string struct time timestamp timestamp_ltz timestamp_ntz tinyint varchar variant
void
""".split()  # noqa: SIM905
SPARKS = {
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
"""Types as specs, and other engines, write them -> what Spark calls them."""
NESTED = ("array", "map", "struct")
WITH_LENGTH = ("char", "character", "varchar")


def type_problem(tokens: list[Any]) -> tuple[Any, str] | None:
    """Return the first token that a cast names as its type and that is none of Spark's, and why not; None: all are."""
    for index in (index for start in _starts(tokens) for index in _named(tokens, start)):
        token, following = tokens[index], [one.token_type.name for one in tokens[index + 1 : index + 2]]
        name = token.text.casefold()
        if name in TYPES and (name not in WITH_LENGTH or following == ["L_PAREN"]):
            continue
        if name in WITH_LENGTH:
            return token, f"CAST AS {token.text}: it has no length; did you mean STRING?"
        meant = SPARKS.get(name) or (nearest(name, TYPES) or "").upper()
        return token, f"CAST AS {token.text}: it is no type of Spark{f'; did you mean {meant}?' if meant else ''}"
    return None


def _starts(tokens: list[Any]) -> Iterator[int]:
    """Yield where the type of each cast begins: behind the AS of its parenthesis, or behind `::`."""
    opened: list[bool] = []
    for index, token in enumerate(tokens[:-1]):
        kind = token.token_type.name
        is_written = tokens[index + 1].start > tokens[index - 1].end + 1  # of `0D` the parser makes `0::D`
        if kind == "L_PAREN":
            opened.append(index > 0 and tokens[index - 1].text.casefold() in ("cast", "try_cast"))
        elif kind == "R_PAREN" and opened:
            opened.pop()
        elif (kind == "DCOLON" and is_written) or (kind == "ALIAS" and opened and opened[-1]):
            yield index + 1


def _named(tokens: list[Any], start: int) -> Iterator[int]:
    """Yield where a type begins, and each one that it is made of: `array<…>`, `map<…, …>`, `struct<a: …, b …>`."""
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
