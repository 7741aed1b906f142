"""What a mutant does to the place that it names: one operation, written as a verb and what it needs.

`drop`, `negate`, `only PLACE`, `operator OP`, `use NAME`, `option NAME=VALUE`, `swap PLACE and PLACE`, `become CODE`.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from tests.mutants.places import (
    PRODUCT,
    MisplacedMutant,
    NodePath,
    Place,
    find_place,
    node_at,
    operator_named,
    scopes_named,
    with_node,
)

ITSELF = "_"
"""In the code of `become`: the node that is replaced."""


def applied(tree: ast.Module, place: Place, operation: str) -> ast.Module:
    """Return a copy of a module with one operation done at a place. Raises MisplacedMutant: it does not fit there."""
    verb, _, rest = operation.partition(" ")
    if verb not in OPERATIONS:
        raise MisplacedMutant(f"{verb!r} is no operation; expected one of {', '.join(OPERATIONS)}")
    path, new = OPERATIONS[verb](tree, place, rest.strip())
    changed = with_node(tree, path, new)
    assert isinstance(changed, ast.Module)
    return changed


def example(source: str, place: str, operation: str) -> str:
    """Return the function `f` of a source after an operation. For examples."""
    tree = ast.parse(source)
    (scope,) = scopes_named(tree, "f")
    return ast.unparse(applied(tree, find_place(scope, place), operation))


Change = tuple[NodePath, ast.AST | None]
"""The path of what is replaced, and what takes its place; None: nothing does."""


def _drop(tree: ast.Module, place: Place, rest: str) -> Change:
    """Remove a node from what holds it.

    A statement becomes `pass`. Of two operands, clauses, terms or branches the other one remains.

    >>> print(example("def f(a): return a.x and a.y", "logic, clause 1/2", "drop"))
    def f(a):
        return a.y
    >>> print(example("def f(a): return g(a, b=1)", "call g, option b", "drop"))
    def f(a):
        return g(a)
    >>> print(example("def f(a): return 0 <= a < 9", "comparison, term 3/3", "drop"))
    def f(a):
        return 0 <= a
    >>> print(example("def f(a): return a if a else 9", "ternary, else", "drop"))
    def f(a):
        return a
    >>> print(example("def f(a): a.clear()", "statement clear", "drop"))
    def f(a):
        pass
    """
    _expect_nothing("drop", rest)
    path, (field, index) = place.path[:-1], place.path[-1]
    parent = node_at(tree, path)
    if isinstance(place.node, ast.stmt):
        return place.path, ast.Pass()
    match parent:
        case ast.BinOp():
            return path, parent.right if field == "left" else parent.left
        case ast.IfExp() if field != "test":
            return path, parent.orelse if field == "body" else parent.body
        case ast.BoolOp(values=[first, second]):
            return path, second if index == 0 else first
        case ast.Compare() if len(parent.ops) > 1:
            terms, operators = [parent.left, *parent.comparators], list(parent.ops)
            number = 0 if index is None else index + 1
            del terms[number], operators[max(0, number - 1)]
            return path, ast.Compare(terms[0], operators, terms[1:])
        case ast.Dict() if index is not None:
            keys, values = list(parent.keys), list(parent.values)
            del keys[index], values[index]
            return path, ast.Dict(keys, values)
    if index is None:
        raise MisplacedMutant(f"cannot drop {ast.unparse(place.node)!r}: what holds it needs it")
    return place.path, None


def _negate(tree: ast.Module, place: Place, rest: str) -> Change:
    """Turn a condition round.

    >>> print(example("def f(a): return 1 if a.old else 2", "ternary, test", "negate"))
    def f(a):
        return 1 if not a.old else 2
    """
    _expect_nothing("negate", rest)
    path, node = _expression(place)
    return path, ast.UnaryOp(ast.Not(), node)


def _only(tree: ast.Module, place: Place, rest: str) -> Change:
    """Let one part of a node stand for the whole of it.

    >>> print(example("def f(a): return g(h(a))", "call g", "only argument 1/1"))
    def f(a):
        return h(a)
    >>> print(example("def f(a): return a.rows.filter(a.old)", "call filter", "only receiver"))
    def f(a):
        return a.rows
    """
    path, node = _expression(place)
    part = find_place(Place(path, node), rest)
    return path, part.node.value if isinstance(part.node, ast.keyword | ast.Starred) else part.node


def _operator(tree: ast.Module, place: Place, rest: str) -> Change:
    """Put another operator into a comparison, an arithmetic or a logical expression.

    >>> print(example("def f(a): return a.end <= 9", "comparison", "operator <"))
    def f(a):
        return a.end < 9
    >>> print(example("def f(a): a.rows += 1", "assign rows", "operator ="))
    def f(a):
        a.rows = 1
    """
    path, node = _expression(place)
    if isinstance(node, ast.AugAssign) and rest == "=":
        return path, ast.copy_location(ast.Assign([node.target], node.value), node)
    operator = operator_named(rest)
    match node, operator:
        case ast.Compare(ops=[_]), ast.cmpop():
            return path, ast.Compare(node.left, [operator], node.comparators)
        case ast.BinOp(), ast.operator():
            return path, ast.BinOp(node.left, operator, node.right)
        case ast.BoolOp(), ast.boolop():
            return path, ast.BoolOp(operator, node.values)
    raise MisplacedMutant(f"{ast.unparse(node)!r} cannot have the operator {rest!r}")


def _use(tree: ast.Module, place: Place, rest: str) -> Change:
    """Call another function, or read another attribute or variable.

    >>> print(example("def f(self, key): self.store.create(key)", "call create", "use put"))
    def f(self, key):
        self.store.put(key)
    """
    path, node = _expression(place)
    if isinstance(node, ast.Call):
        path, node = (*path, ("func", None)), node.func
    match node:
        case ast.Attribute():
            return path, ast.Attribute(node.value, rest, node.ctx)
        case ast.Name():
            _require_known_names(tree, path, ast.Name(rest, ast.Load()))
            return path, ast.Name(rest, node.ctx)
    raise MisplacedMutant(f"{ast.unparse(node)!r} has no name that another could replace")


def _option(tree: ast.Module, place: Place, rest: str) -> Change:
    """Pass a named argument that the call does not have.

    >>> print(example("def f(a): return g(a)", "call g", "option strict=False"))
    def f(a):
        return g(a, strict=False)
    """
    path, node = _expression(place)
    name, _, value = rest.partition("=")
    if not isinstance(node, ast.Call) or name in {one.arg for one in node.keywords}:
        raise MisplacedMutant(f"{ast.unparse(node)!r} is no call without the option {name!r}")
    return path, ast.Call(node.func, node.args, [*node.keywords, ast.keyword(name, _code(value))])


def _swap(tree: ast.Module, place: Place, rest: str) -> Change:
    """Exchange two parts of a node.

    >>> print(example("def f(a): return a.wanted - a.found", "arithmetic", "swap left and right"))
    def f(a):
        return a.found - a.wanted
    """
    one, other = (find_place(place, text) for text in rest.split(" and "))
    size = len(place.path)
    changed = with_node(place.node, one.path[size:], other.node)
    return place.path, with_node(changed, other.path[size:], one.node)


def _become(tree: ast.Module, place: Place, rest: str) -> Change:
    """Put other code into the place. `_` stands for the code that is there.

    >>> print(example("def f(a): return a.end - 1", "return, value", "become _ + 2"))
    def f(a):
        return a.end - 1 + 2
    >>> print(example("def f(a): a.clear()", "statement clear", "become return None"))
    def f(a):
        return None
    """
    path, node = (place.path, place.node) if isinstance(place.node, ast.stmt) else _expression(place)
    new: ast.AST
    if isinstance(node, ast.stmt):
        body = _statements(rest)
        new = body[0] if len(body) == 1 else ast.If(ast.Constant(True), body, [])
    else:
        new = _code(rest)
    _require_known_names(tree, path, new)
    replacement = node.value if isinstance(node, ast.Expr) else node
    return path, _Substitution(replacement).visit(new)


OPERATIONS: dict[str, Callable[[ast.Module, Place, str], Change]] = {
    "drop": _drop,
    "negate": _negate,
    "only": _only,
    "operator": _operator,
    "use": _use,
    "option": _option,
    "swap": _swap,
    "become": _become,
}


def names_in_code(operation: str) -> set[str]:
    """Return the variables that the code of `become` names, without builtins: they break when they are renamed.

    >>> sorted(names_in_code("become max(_, limit_us + 1)"))
    ['limit_us']
    """
    verb, _, rest = operation.partition(" ")
    return _free_names(ast.Module(_statements(rest), [])) if verb == "become" else set()


def missing_words(operation: str, root: Path) -> list[str]:
    """Return the attributes that the code of `become`, or the name that `use`, reads and that no module has."""
    verb, _, rest = operation.partition(" ")
    read: set[str] = set()
    if verb == "use":
        read = {rest}
    elif verb == "become":
        nodes = (node for statement in _statements(rest) for node in ast.walk(statement))
        read = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return sorted(read - _words(root))


@cache
def _words(root: Path) -> frozenset[str]:
    texts = (path.read_text(encoding="utf-8") for path in (root / PRODUCT).rglob("*.py"))
    return frozenset(word for text in texts for word in re.findall(r"\w+", text))


class _Substitution(ast.NodeTransformer):
    def __init__(self, node: ast.AST) -> None:
        self._node = node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return self._node if node.id == ITSELF else node


def _expression(place: Place) -> tuple[NodePath, ast.AST]:
    """Return the expression of a place: of an option and of a starred element what they hold."""
    if isinstance(place.node, ast.keyword | ast.Starred | ast.FormattedValue):
        return (*place.path, ("value", None)), place.node.value
    return place.path, place.node


def _code(text: str) -> ast.expr:
    match _statements(text):
        case [ast.Expr(value=code)]:
            return code
    raise MisplacedMutant(f"{text!r} is no expression")


def _statements(text: str) -> list[ast.stmt]:
    try:
        return ast.parse(text).body
    except SyntaxError as error:
        raise MisplacedMutant(f"{text!r} is no code: {error.msg}") from None


def _expect_nothing(verb: str, rest: str) -> None:
    if rest:
        raise MisplacedMutant(f"{verb!r} takes nothing, got {rest!r}")


def _require_known_names(tree: ast.Module, path: NodePath, code: ast.AST) -> None:
    """Raise MisplacedMutant when the code names a variable that means nothing at its place: a test would fail by it."""
    known = set(_bound_in_block(tree))
    for size in range(1, len(path) + 1):
        outer = node_at(tree, path[:size])
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            known.update(_bound_in_block(outer))
        elif hasattr(outer, "generators"):
            known.update(_bound(outer))
    unknown = _free_names(code) - known
    if unknown:
        raise MisplacedMutant(f"{ast.unparse(code)!r} names {', '.join(sorted(unknown))}, which nothing here defines")


def _free_names(code: ast.AST) -> set[str]:
    read = {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
    return read - set(_bound(code)) - set(dir(builtins)) - {ITSELF}


def _bound(node: ast.AST) -> Iterator[str]:
    for one in ast.walk(node):
        match one:
            case ast.Name(ctx=ast.Store()):
                yield one.id
            case ast.arg():
                yield one.arg
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                yield one.name
            case ast.alias():
                yield (one.asname or one.name).partition(".")[0]
            case ast.ExceptHandler(name=str()):
                yield str(one.name)


def _bound_in_block(block: ast.AST) -> Iterator[str]:
    """Yield the names that a function, class or module binds itself, without those of functions within it."""
    waiting = list(ast.iter_child_nodes(block))
    while waiting:
        node = waiting.pop()
        match node:
            case ast.FunctionDef() | ast.ClassDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.Lambda():
                pass
            case ast.Name() | ast.arg() | ast.alias() | ast.ExceptHandler():
                yield from (
                    _bound(node) if not isinstance(node, ast.ExceptHandler) else ([node.name] if node.name else [])
                )
                waiting += ast.iter_child_nodes(node)
            case _:
                waiting += ast.iter_child_nodes(node)
