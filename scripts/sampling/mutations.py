"""Mutations of a module by mutmut's operators, except those of text for people.

Excluded: annotations, decorators, docstrings, `raise` and `assert` statements, calls of a logger, and text that
contains a space. Those are messages and types: the tests assert the class of an error, and mypy checks the types.
"""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators, operator_string

_LOGGERS = ("_LOG", "logger")
_KEPT = ("isinstance", "cast", "NewType", "TypeVar")


@dataclass(frozen=True, slots=True)
class Mutation:
    """One change of one node.

    Attributes:
        line: where it begins, from 1. first, last: lines of the statement that holds it.
        before, after: the text of the node. source: the whole mutated module.
    """

    line: int
    first: int
    last: int
    before: str
    after: str
    source: str


class MutableModule:
    """A module and all its mutations in a fixed order. Each is rendered on demand."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
        collector = _Collector()
        self._wrapper.visit(collector)
        self._found = collector.found

    def __len__(self) -> int:
        return len(self._found)

    def mutation(self, index: int) -> Mutation | None:
        """Return one mutation. None: it is not valid Python, or changes nothing."""
        node, mutated, line, span = self._found[index]
        module = self._wrapper.module
        text = module.deep_replace(node, mutated).code  # type: ignore[attr-defined]
        if text == self.source or not _compiles(text):
            return None
        before, after = (module.code_for_node(one).strip() for one in (node, mutated))
        return Mutation(line, *span, before, after, text)


class _Collector(cst.CSTVisitor):
    """Collects every node that may be replaced, with the lines of its statement."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self) -> None:
        self.found: list[tuple[cst.CSTNode, cst.CSTNode, int, tuple[int, int]]] = []
        self._statements: list[tuple[int, int]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _is_for_people(node):
            return False
        if isinstance(node, cst.SimpleStatementLine | cst.BaseCompoundStatement):
            self._statements.append(self._span(node))
        if self._statements:
            self._mutate(node)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        statement = isinstance(original_node, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        if statement and not _is_for_people(original_node):
            self._statements.pop()

    def _mutate(self, node: cst.CSTNode) -> None:
        position = self.get_metadata(PositionProvider, node, None)
        line = self._statements[-1][0] if position is None else position.start.line
        for kind, operator in mutation_operators:
            if not isinstance(node, kind) or _is_text(node):
                continue
            mutants = list(operator(node))
            for mutated in mutants[:1] if operator is operator_string else mutants:
                self.found.append((node, mutated, line, self._statements[-1]))

    def _span(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return the lines of a statement. For a compound statement: the lines of its header."""
        place = self.get_metadata(PositionProvider, node)
        body = getattr(node, "body", None)
        if not isinstance(body, cst.BaseSuite):
            return place.start.line, place.end.line
        return place.start.line, max(place.start.line, self.get_metadata(PositionProvider, body).start.line - 1)


def _is_for_people(node: cst.CSTNode) -> bool:
    if isinstance(node, cst.Annotation | cst.Decorator | cst.Raise | cst.Assert | cst.Import | cst.ImportFrom):
        return True
    if isinstance(node, cst.SimpleStatementLine):
        return all(
            isinstance(one, cst.Expr) and isinstance(one.value, cst.SimpleString | cst.ConcatenatedString)
            for one in node.body
        )
    if not isinstance(node, cst.Call):
        return False
    function = node.func
    if isinstance(function, cst.Attribute) and isinstance(function.value, cst.Name):
        return function.value.value in _LOGGERS
    return isinstance(function, cst.Name) and function.value in _KEPT


def _is_text(node: cst.CSTNode) -> bool:
    return isinstance(node, cst.SimpleString) and " " in node.value


def _compiles(source: str) -> bool:
    try:
        compile(source, "mutant", "exec")
    except (SyntaxError, ValueError):
        return False
    return True
