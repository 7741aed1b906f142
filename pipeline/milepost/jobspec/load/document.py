"""Parse YAML 1.2 with the position of every key and value.

Only `true` and `false` are booleans, dates are strings, and duplicate keys are errors. So the meaning of a spec does
not depend on the YAML library.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import isinf
from typing import TYPE_CHECKING, Any

from milepost.language import Path, Problem

if TYPE_CHECKING:
    from ruamel.yaml.composer import Composer

MAX_CHARACTERS = 1_000_000
_MAX_VALUES = 100_000
_MAX_DEPTH = 32
_TOO_LARGE = f"more than {_MAX_VALUES} values, or nested deeper than {_MAX_DEPTH}"
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NULLS = ("", "null", "~")
_CORE_TAG = "tag:yaml.org,2002:"
_TAGS = {
    _CORE_TAG + kind for kind in ("str", "int", "float", "bool", "null", "map", "seq", "timestamp", "merge", "value")
}


class Unreadable(Exception):
    """The text is not valid YAML. `line` and `column` are 1-based, 0 if unknown."""

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.message, self.line, self.column = message, line, column


@dataclass(slots=True)
class Document:
    """A parsed document.

    Attributes:
        value: dict, list, str, int, float, bool or None.
        keys, values: path -> (line, column), 1-based, of mapping keys and of values.
        problems: disallowed tags, and numbers beyond the range of a float.
    """

    value: Any = None
    keys: dict[Path, tuple[int, int]] = field(default_factory=dict)
    values: dict[Path, tuple[int, int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def read_document(text: str) -> Document:
    """Parse a text with one document. Raises Unreadable."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError

    if len(text) > MAX_CHARACTERS:
        raise Unreadable(f"the file is larger than {MAX_CHARACTERS} characters")
    try:
        reader = YAML(typ="safe", pure=True)
        reader.Composer = _composer()
        node = reader.compose(text)
    except Unreadable:
        raise
    except MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        what = " ".join(str(part) for part in (problem.context, problem.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise Unreadable(f"not YAML: {what}{_hint(what)}", line, column) from None
    except Exception as problem:  # noqa: BLE001 - ruamel.yaml also raises OverflowError, ValueError and others
        raise Unreadable(f"not YAML: {' '.join(str(problem).split())}") from None
    document = Document()
    if node is not None:
        document.value = _Builder(document).build(node, ())
    return document


def _composer() -> type[Composer]:
    """Return a YAML composer that limits nesting, because the library's composer recurses once per level."""
    from ruamel.yaml.composer import Composer

    class BoundedComposer(Composer):
        level = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.level > _MAX_DEPTH:
                mark = self.parser.peek_event().start_mark
                raise Unreadable(_TOO_LARGE, mark.line + 1, mark.column + 1)
            self.level += 1
            node = super().compose_node(parent, index)
            self.level -= 1
            return node

    return BoundedComposer


def _hint(what: str) -> str:
    """Return a hint to quote a text with brackets, if that is the likely problem; otherwise ""."""
    is_cut = what.startswith("while parsing a flow mapping") and what.endswith(("got '['", "got '{'"))
    return '; quote a text with brackets inside {}: "timestamp[us, UTC]"' if is_cut else ""


class _Builder:
    def __init__(self, document: Document) -> None:
        self._document = document
        self._count = 0

    def build(self, node: Any, path: Path) -> Any:
        self._count += 1
        position = (node.start_mark.line + 1, node.start_mark.column + 1)
        if self._count > _MAX_VALUES or len(path) > _MAX_DEPTH:
            raise Unreadable(_TOO_LARGE, *position)
        self._document.values[path] = position
        if str(node.tag) not in _TAGS:
            self._document.problems.append(Problem(path, f"the tag {node.tag} is not allowed"))
        if isinstance(node.value, str):
            value = _scalar(node)
            if isinstance(value, float) and isinf(value):
                message = f"{node.value} is too large; the largest number is about 1.8e308"
                self._document.problems.append(Problem(path, message))
            return value
        if node.id == "sequence":
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._mapping(node, path)

    def _mapping(self, node: Any, path: Path) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key_node, value_node in node.value:
            position = (key_node.start_mark.line + 1, key_node.start_mark.column + 1)
            if not isinstance(key_node.value, str):
                raise Unreadable("a key must be a string", *position)
            key = _text(key_node)
            inner = (*path, key)
            if key in result:
                first = self._document.keys[inner][0]
                raise Unreadable(f"the key `{key}` occurs twice; first in line {first}", *position)
            self._document.keys[inner] = position
            result[key] = self.build(value_node, inner)
        return result


def _scalar(node: Any) -> str | int | float | bool | None:
    """Return the value of a scalar in the YAML 1.2 core schema. Quoted and block scalars are strings."""
    # 12 -> 12    0o17 -> 15    1e3 -> 1000.0    yes -> "yes"    2013-01-01 -> "2013-01-01"    ~ -> None
    text = _text(node)
    if node.style is not None or node.tag == f"{_CORE_TAG}str":
        return text
    if text in _NULLS:
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and len(text) < 30:
        return int(text)
    if (_OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text)) and len(text) < 30:
        return int(text, 0)
    return float(text) if _FLOAT.fullmatch(text) else text


def _text(node: Any) -> str:
    """Return the text of a scalar. JSON writes a character above U+FFFF as two surrogates, which are joined here.

    Raises:
        Unreadable: a surrogate without its pair.
    """
    text: str = node.value
    if text.isascii():
        return text
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        half = next(letter for letter in text if "\ud800" <= letter <= "\udfff")
        position = (node.start_mark.line + 1, node.start_mark.column + 1)
        message = f"\\u{ord(half):04x} is one half of a surrogate pair, and the other half is missing"
        raise Unreadable(message, *position) from None
