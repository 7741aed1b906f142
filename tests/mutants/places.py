"""Find the node of a module that a mutant changes.

A function is named by the end of its module's path and its qualified name: ``manifest_log:ManifestLog._land.put``.
Within it a place is a chain of steps, outermost first: ``if 2/3, test, clause 1/2`` is the first operand of the `and`
or `or` that the second of the function's three `if` statements tests. Names of locals, wording and formatting are no
part of a place, so most renames and edits leave it alone. A place that matches no node, or several, is refused.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

PRODUCT = Path("pipeline") / "milepost"

NodePath = tuple[tuple[str, int | None], ...]
"""From the module down to a node: the field, and the index where the field is a list."""

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_ANNOTATIONS = ("annotation", "returns")
_TOTAL = re.compile(r"(?P<number>\d+)/(?P<total>\d+)")


class MisplacedMutant(ValueError):
    """The place that a mutant names does not exist, or is ambiguous."""


@dataclass(frozen=True, slots=True)
class Place:
    """A node of a module."""

    path: NodePath
    node: ast.AST

    def child(self, field: str, index: int | None = None) -> Place:
        value = getattr(self.node, field)
        return Place((*self.path, (field, index)), value if index is None else value[index])


# -- modules and functions ---------------------------------------------------------------------------------------------


def find_function(root: Path, function: str) -> tuple[str, ast.Module, Place]:
    """Return the module's path relative to `root`, its tree, and the function, class or module that is named.

    Raises MisplacedMutant: no module has it, or several do.
    """
    module, _, name = function.partition(":")
    ending = "/" + module.replace(".", "/") + ".py"
    found = []
    for file in _modules(root):
        if file.endswith(ending):
            tree = parse_module(root, file)
            found += [(file, tree, scope) for scope in scopes_named(tree, name)]
    if len(found) != 1:
        raise MisplacedMutant(
            f"expected one {function!r} below {PRODUCT.as_posix()}, found {len(found)}"
            + "".join(f"\n  {file}:{getattr(scope.node, 'lineno', 1)}" for file, _, scope in found)
        )
    return found[0]


@cache
def _modules(root: Path) -> tuple[str, ...]:
    return tuple(sorted(path.relative_to(root).as_posix() for path in (root / PRODUCT).rglob("*.py")))


@cache
def _parsed(path: Path, modified_ns: int) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def parse_module(root: Path, file: str) -> ast.Module:
    """Return the tree of a module. The tree is shared: change copies only."""
    return _parsed(root / file, (root / file).stat().st_mtime_ns)


def scopes_named(tree: ast.Module, name: str) -> list[Place]:
    """Return the functions and classes with this qualified name. No name: the module.

    >>> tree = ast.parse("class Log:\\n    def put(self):\\n        def retry(): ...")
    >>> [place.node.lineno for place in scopes_named(tree, "Log.put.retry")]
    [3]
    """
    scopes = [Place((), tree)]
    for part in name.split(".") if name else ():
        inner = [place for scope in scopes for place in _descendants(scope) if isinstance(place.node, _SCOPES)]
        scopes = [place for place in inner if getattr(place.node, "name", None) == part]
    return scopes


def _descendants(place: Place) -> Iterator[Place]:
    """Yield what is below a node in the order of the source, without the insides of nested functions and classes."""
    for child in _children(place):
        yield child
        if not isinstance(child.node, _SCOPES):
            yield from _descendants(child)


def _children(place: Place) -> Iterator[Place]:
    """Yield the direct parts of a node, without annotations; of a function or class only its body."""
    for field, value in ast.iter_fields(place.node):
        if field in _ANNOTATIONS or (isinstance(place.node, _SCOPES) and field != "body"):
            continue
        if isinstance(value, ast.AST):
            yield place.child(field)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield place.child(field, index)


# -- places within a function ------------------------------------------------------------------------------------------


def find_place(scope: Place, text: str) -> Place:
    """Follow the steps of a place. Raises MisplacedMutant: a step matches no node, or several.

    >>> tree = ast.parse("def f(a):\\n    if a.old or a.bad:\\n        log(a, level=1)\\n    return 0 < a <= 9")
    >>> (scope,) = scopes_named(tree, "f")
    >>> for place in (
    ...     "if, test, clause 2/2", "call log, option level", "call, argument 1/1", "return, value, term 3/3"
    ... ):
    ...     print(ast.unparse(find_place(scope, place).node))
    a.bad
    level=1
    a
    9
    >>> find_place(scope, "if, test, clause 2/3")
    Traceback (most recent call last):
    tests.mutants.places.MisplacedMutant: 'clause 2/3': expected 3, found 2: line 2: a.old; line 2: a.bad
    >>> find_place(scope, "attribute")
    Traceback (most recent call last):
    tests.mutants.places.MisplacedMutant: 'attribute': expected 1, found 2: line 2: a.old; line 2: a.bad
    """
    place = scope
    for step in filter(None, (part.strip() for part in text.split(", "))):
        place = _follow(place, step)
    return place


def _follow(place: Place, step: str) -> Place:
    words = step.split()
    number, total = 1, 1
    if counted := _TOTAL.fullmatch(words[-1]):
        number, total = int(counted["number"]), int(counted["total"])
        words.pop()
    kind, name = words[0], " ".join(words[1:])
    found = _matches(place, kind, name)
    if len(found) != total:
        shown = "; ".join(f"line {_line(one)}: {_first_line(one)}" for one in found[:5])
        raise MisplacedMutant(f"{step!r}: expected {total}, found {len(found)}" + (f": {shown}" if shown else ""))
    return found[number - 1]


def _matches(place: Place, kind: str, name: str = "") -> list[Place]:
    if kind in PARTS:
        return [child for child in PARTS[kind](place) if not name or name_of(child) == name]
    if kind not in KINDS:
        raise MisplacedMutant(f"{kind!r} is neither a kind of node nor a part of one")
    nodes = (one for one in _descendants(place) if isinstance(one.node, KINDS[kind]))
    return [one for one in nodes if not name or name_of(one) == name]


def _line(place: Place) -> int:
    return getattr(place.node, "lineno", 0)


def _first_line(place: Place) -> str:
    return ast.unparse(place.node).splitlines()[0][:80]


KINDS: dict[str, type[ast.AST] | tuple[type[ast.AST], ...]] = {
    "if": ast.If,
    "for": ast.For,
    "while": ast.While,
    "with": ast.With,
    "try": ast.Try,
    "except": ast.ExceptHandler,
    "return": ast.Return,
    "raise": ast.Raise,
    "assign": (ast.Assign, ast.AnnAssign, ast.AugAssign),
    "statement": ast.Expr,
    "yield": (ast.Yield, ast.YieldFrom),
    "break": ast.Break,
    "continue": ast.Continue,
    "call": ast.Call,
    "logic": ast.BoolOp,
    "comparison": ast.Compare,
    "arithmetic": ast.BinOp,
    "unary": ast.UnaryOp,
    "ternary": ast.IfExp,
    "attribute": ast.Attribute,
    "subscript": ast.Subscript,
    "constant": ast.Constant,
    "format": ast.JoinedStr,
    "tuple": ast.Tuple,
    "list": ast.List,
    "set": ast.Set,
    "dict": ast.Dict,
    "starred": ast.Starred,
    "lambda": ast.Lambda,
    "comprehension": (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
}
"""Kinds of nodes that a step looks for anywhere below the place before it."""


def _field(field: str) -> Callable[[Place], list[Place]]:
    def part(place: Place) -> list[Place]:
        return [place.child(field)] if isinstance(getattr(place.node, field, None), ast.AST) else []

    return part


def _items(*fields: str) -> Callable[[Place], list[Place]]:
    def part(place: Place) -> list[Place]:
        for field in fields:
            items = getattr(place.node, field, None)
            if isinstance(items, list):
                return [place.child(field, index) for index in range(len(items))]
        return []

    return part


def _arguments(place: Place) -> list[Place]:
    return _items("args")(place) if isinstance(place.node, ast.Call) else []


def _terms(place: Place) -> list[Place]:
    return [place.child("left"), *_items("comparators")(place)] if isinstance(place.node, ast.Compare) else []


def _receiver(place: Place) -> list[Place]:
    function = place.child("func") if isinstance(place.node, ast.Call) else place
    return _field("value")(function) if isinstance(function.node, ast.Attribute) else []


def _of_generators(field: str, *, many: bool) -> Callable[[Place], list[Place]]:
    part = _items(field) if many else _field(field)

    def parts(place: Place) -> list[Place]:
        return [found for generator in _items("generators")(place) for found in part(generator)]

    return parts


def _iterables(place: Place) -> list[Place]:
    if isinstance(place.node, ast.For):
        return [place.child("iter")]
    return _of_generators("iter", many=False)(place)


def _statements(field: str) -> Callable[[Place], list[Place]]:
    """One expression of a ternary, or the statements of a block."""
    single, several = _field(field), _items(field)
    return lambda place: single(place) or several(place)


def _values(place: Place) -> list[Place]:
    if isinstance(place.node, ast.DictComp | ast.NamedExpr | ast.keyword):
        return [place.child("value")]
    return _field("value")(place)


PARTS: dict[str, Callable[[Place], list[Place]]] = {
    "test": _field("test"),
    "then": lambda place: _statements("body")(place) if isinstance(place.node, ast.If | ast.IfExp) else [],
    "else": _statements("orelse"),
    "value": _values,
    "receiver": _receiver,
    "argument": _arguments,
    "option": lambda place: _items("keywords")(place) if isinstance(place.node, ast.Call) else [],
    "element": _items("elts"),
    "entry": lambda place: _items("values")(place) if isinstance(place.node, ast.Dict) else [],
    "clause": lambda place: _items("values")(place) if isinstance(place.node, ast.BoolOp) else [],
    "part": lambda place: _items("values")(place) if isinstance(place.node, ast.JoinedStr) else [],
    "term": _terms,
    "left": lambda place: _field("left")(place) if isinstance(place.node, ast.BinOp) else [],
    "right": _field("right"),
    "operand": _field("operand"),
    "iterable": _iterables,
    "filter": _of_generators("ifs", many=True),
    "item": _field("elt"),
    "index": _field("slice"),
    "lower": _field("lower"),
    "upper": _field("upper"),
    "type": _field("type"),
    "error": _field("exc"),
    "body": lambda place: [] if isinstance(place.node, ast.If | ast.IfExp) else _statements("body")(place),
}
"""Parts of a node that a step selects directly below the place before it."""


def name_of(place: Place) -> str:
    """Return what a step may call a node, besides its kind: what it calls, reads, assigns, catches or compares.

    >>> (scope,) = scopes_named(ast.parse("def f(self):\\n    self.seen = self.log.put(1, twice=True) < 2"), "f")
    >>> [(type(one.node).__name__, name_of(one)) for one in _descendants(scope) if name_of(one)][:5]
    [('Assign', 'seen'), ('Attribute', 'seen'), ('Name', 'self'), ('Compare', '<'), ('Call', 'put')]
    """
    node = place.node
    match node:
        case ast.Call():
            return name_of(place.child("func"))
        case ast.Expr() | ast.Await() | ast.Starred():
            return name_of(place.child("value"))
        case ast.Attribute():
            return node.attr
        case ast.Name():
            return node.id
        case ast.keyword():
            return node.arg or "**"
        case ast.Assign(targets=[target]) | ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            return name_of(Place((), target))
        case ast.ExceptHandler(type=ast.AST()):
            return name_of(place.child("type"))
        case ast.Constant():
            return repr(node.value)
        case ast.Compare() | ast.BinOp() | ast.BoolOp() | ast.UnaryOp():
            return operator_text(node)
    return ""


_OPERATORS: dict[str, type[ast.AST]] = {
    "==": ast.Eq, "!=": ast.NotEq, "<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE, "is": ast.Is,
    "is-not": ast.IsNot, "in": ast.In, "not-in": ast.NotIn, "and": ast.And, "or": ast.Or, "+": ast.Add, "-": ast.Sub,
    "*": ast.Mult, "/": ast.Div, "//": ast.FloorDiv, "%": ast.Mod, "**": ast.Pow, "|": ast.BitOr, "&": ast.BitAnd,
    "^": ast.BitXor, ">>": ast.RShift, "<<": ast.LShift, "not": ast.Not, "~": ast.Invert, "neg": ast.USub,
}  # fmt: skip
_TEXTS = {operator: text for text, operator in _OPERATORS.items()}


def operator_text(node: ast.Compare | ast.BinOp | ast.BoolOp | ast.UnaryOp) -> str:
    """Return the operators of a node: ``<=``, or ``<= <`` of a chain."""
    operators = node.ops if isinstance(node, ast.Compare) else [node.op]
    return " ".join(_TEXTS[type(one)] for one in operators if type(one) in _TEXTS)


def operator_named(text: str) -> ast.AST:
    """Return an operator by its text. Raises MisplacedMutant: there is none."""
    if text not in _OPERATORS:
        raise MisplacedMutant(f"{text!r} is no operator")
    return _OPERATORS[text]()


# -- changed copies ----------------------------------------------------------------------------------------------------


def with_node(tree: ast.AST, path: NodePath, new: ast.AST | list[ast.AST] | None) -> ast.AST:
    """Return a copy of a tree with another node at a path; None removes an item of a list. The original is unchanged.

    >>> tree = ast.parse("f(1, 2)")
    >>> print(ast.unparse(with_node(tree, (("body", 0), ("value", None), ("args", 0)), None)), "|", ast.unparse(tree))
    f(2) | f(1, 2)
    """
    (field, index), *rest = path
    changed = copy.copy(tree)
    value = getattr(tree, field)
    if index is None:
        setattr(changed, field, with_node(value, tuple(rest), new) if rest else new)
        return changed
    items = list(value)
    if rest:
        items[index] = with_node(value[index], tuple(rest), new)
    else:
        items[index : index + 1] = [] if new is None else [new]
    setattr(changed, field, items)
    return changed


def node_at(tree: ast.AST, path: NodePath) -> ast.AST:
    for field, index in path:
        value = getattr(tree, field)
        tree = value if index is None else value[index]
    return tree
