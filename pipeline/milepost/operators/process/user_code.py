"""Ship user code as source text, or as name and hash of an installed module (I13).

Modules in the spec's folder never enter Python's own module cache. Each load executes the text from the plan in a new
namespace that is named by its hash. A long-lived process therefore cannot run an old version, and module globals do not
outlive the epoch. Their `import` statements resolve to each other first, then to installed modules.

The shipped modules are found statically, by their `import` statements. A module that is imported in another way
(`importlib.import_module("helper")`) is not shipped, and its import fails.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from milepost.errors import InvalidRequest

_SPACE = "_milepost_"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One module in the spec's folder.

    Attributes:
        module: dotted name.
        path: path relative to the spec's folder.
        package: whether it is an `__init__.py`.
    """

    module: str
    path: str
    text: str
    package: bool


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A class named in the spec, and its code.

    Attributes:
        uid: operator that runs the class.
        module, name: module and name of the class.
        files: modules in the spec's folder, by module name. Empty for an installed module.
        digest: hex SHA-256 of `files`, or of the installed files.
    """

    uid: str
    module: str
    name: str
    files: tuple[SourceFile, ...]
    digest: str

    def running_digest(self) -> str:
        """Return the hash of the code that this process would run. Installed modules are hashed on first use."""
        return _digest(self.files) if self.files else installed_digest(self.module) or "absent"

    def modules(self) -> dict[str, str]:
        """Return the hash of each of its modules: those in the spec's folder, or the installed one."""
        own = {file.module: hashlib.sha256(file.text.encode()).hexdigest() for file in self.files}
        return own or {self.module: self.digest}

    def load(self) -> type:
        """Execute the module and return the class.

        Raises:
            UserCodeFailed: the module raises, or has no such class.
        """
        loaded = self.load_object()
        if not isinstance(loaded, type):
            what = "no such name" if loaded is None else f"{self.name} is a {type(loaded).__name__}"
            raise UserCodeFailed(f"expected a class {self.name} in module {self.module}, got: {what}")
        return loaded

    def load_object(self) -> Any:
        """Execute the module and return what has the name; None: nothing has. Raises UserCodeFailed: it raises."""
        try:
            module = _Space(self.files, self.digest).load(self.module) if self.files else _import(self.module)
        except (Exception, SystemExit) as error:
            raise UserCodeFailed(self.describe(error)) from error
        return getattr(module, self.name, None)

    def describe(self, error: BaseException) -> str:
        """Format an error of the user's code in one line, with the line of the user's file that raised it."""
        cause = error.args[0] if isinstance(error, KeyError) and error.args else error
        lines = str(cause).strip().splitlines()
        text = f"{type(error).__name__}: {lines[0][:500]}" if lines else type(error).__name__
        if isinstance(error, SyntaxError):
            text = f"{type(error).__name__}: {error.msg}"
        place = self._place(error)
        return f"{text} ({place})" if place else text

    def place_of(self, filename: str, line: int | None) -> str | None:
        """Return `file, line n` if the file is the user's, else None."""
        if self.files:
            shown = {_filename(file, self.digest): file.path for file in self.files}.get(filename)
        else:
            root = _installed_root(self.module)
            path = Path(filename)
            inside = root is not None and (path == root or root in path.parents)
            shown = str(path.relative_to(root.parent)) if inside and root is not None else None
        return f"{shown}, line {line}" if shown is not None else None

    def _place(self, error: BaseException) -> str | None:
        if isinstance(error, SyntaxError) and error.filename:
            return self.place_of(error.filename, error.lineno)
        location, trace = None, error.__traceback__
        while trace is not None:
            location = self.place_of(trace.tb_frame.f_code.co_filename, trace.tb_lineno) or location
            trace = trace.tb_next
        return location


class UserCodeFailed(Exception):
    """The user's code raised an error, or does not match the spec. `args[0]` has the problem and its location."""


def read_function(uid: str, function: str, folder: Path, owner: str = "") -> UserFunction:
    """Read the current code of `module:Class`, without executing it.

    Args:
        folder: folder of the spec. Dotted modules are in its sub-folders. It takes precedence over installed modules.
        owner: what runs the class, for messages; by default the operator `uid`.
    Raises:
        InvalidRequest: the module does not exist, or one of its files is not Python.
    """
    owner = owner or f"operator {uid}"
    module, _, name = function.partition(":")
    files = tuple(sorted(_reachable(owner, module, folder), key=lambda file: file.module))
    if files:
        return UserFunction(uid, module, name, files, _digest(files))
    importlib.invalidate_caches()
    root = _installed_root(module)
    if root is None:
        raise InvalidRequest(
            f"{owner}: there is no module {module}: neither {folder / (module.replace('.', '/') + '.py')} "
            "nor an installed one. Nothing was written.",
            hint=f"write the class {name} into that file, or correct its name in the spec",
        )
    current, running = _hash_files(root), installed_digest(module)
    if current != running:
        raise InvalidRequest(
            f"{owner}: the installed module {module} changed after this process had seen it. Nothing was written.",
            hint="run the epoch in a new process, or put the module beside the spec, where each epoch reads it anew",
        )
    return UserFunction(uid, module, name, (), current)


def _digest(files: Sequence[SourceFile]) -> str:
    digest = hashlib.sha256()
    for file in files:
        body = file.text.encode()
        digest.update(f"{file.module}\0{file.path}\0{len(body)}\0".encode())
        digest.update(body)
    return digest.hexdigest()


# -- modules beside the spec ----------------------------------------------------------------------------------------


def _reachable(owner: str, module: str, folder: Path) -> list[SourceFile]:
    """Return the module and its transitive imports in the spec's folder, with the `__init__.py` of their packages."""
    files: dict[str, SourceFile] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        for part in _with_parents(name):
            file = None if part in files else _read(owner, part, folder)
            if file is not None:
                files[part] = file
                waiting += _imported(owner, file)
    return list(files.values()) if module in files else []


def _with_parents(module: str) -> Iterator[str]:
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])


def _read(owner: str, module: str, folder: Path) -> SourceFile | None:
    base = folder.joinpath(*module.split("."))
    for path, package in ((base / "__init__.py", True), (base.with_name(base.name + ".py"), False)):
        if path.is_file():
            try:
                text = importlib.util.decode_source(path.read_bytes())
            except (OSError, SyntaxError, UnicodeDecodeError) as problem:
                raise InvalidRequest(f"{owner}: {path} cannot be read: {problem}. Nothing was written.") from None
            return SourceFile(module, path.relative_to(folder).as_posix(), text, package)
    return None


def _imported(owner: str, file: SourceFile) -> Iterator[str]:
    """Yield every name in the file's `import` statements that may be a module."""
    try:
        tree = ast.parse(file.text)
    except (SyntaxError, ValueError) as problem:
        line = getattr(problem, "lineno", None)
        raise InvalidRequest(
            f"{owner}: {file.path}{f', line {line}' if line else ''}: "
            f"{getattr(problem, 'msg', problem)}. Nothing was written.",
            hint="correct the file",
        ) from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node.module or "", node.level, _package(file.module, file.package))
            if base is not None:
                yield from [base] if base else []
                yield from (f"{base}.{alias.name}" if base else alias.name for alias in node.names if alias.name != "*")


def _package(module: str, package: bool) -> str:
    return module if package else module.rpartition(".")[0]


def _absolute(name: str, level: int, package: str) -> str | None:
    """Return the absolute dotted name of an import, "" for the spec's folder. None if it leaves that folder.

    In a module of package `a.b`: `from . import x` has level 1 and means `a.b`, `from ..c import x` means `a.c`.
    """
    if not level:
        return name
    parts = package.split(".") if package else []
    if level - 1 > len(parts):
        return None
    return ".".join([*parts[: len(parts) - level + 1], *([name] if name else [])])


def _filename(file: SourceFile, digest: str) -> str:
    return f"{file.path} of {digest[:16]}"


class _Space:
    """One execution of a set of modules, under names that begin with their hash."""

    def __init__(self, files: Sequence[SourceFile], digest: str) -> None:
        self._files = {file.module: file for file in files}
        self._folders = {part for file in files for part in _with_parents(file.module)}
        self._digest = digest
        self._prefix = f"{_SPACE}{digest[:16]}"
        self._modules: dict[str, ModuleType] = {}
        for name in [name for name in sys.modules if name.split(".")[0] == self._prefix]:
            del sys.modules[name]

    def load(self, module: str) -> ModuleType:
        """Execute a module after its packages, each once. Raises the module's own errors."""
        parent: ModuleType | None = None
        loaded = None
        for part in _with_parents(module):
            loaded = self._modules.get(part) or self._execute(part)
            if parent is not None:
                setattr(parent, part.rpartition(".")[2], loaded)
            parent = loaded
        assert loaded is not None
        return loaded

    def _execute(self, name: str) -> ModuleType:
        if name not in self._folders:
            raise ModuleNotFoundError(f"No module named {name!r} beside the spec", name=name)
        file = self._files.get(name)
        module = ModuleType(f"{self._prefix}.{name}")
        package = _package(name, file is None or file.package)
        module.__package__ = f"{self._prefix}.{package}" if package else self._prefix
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        if file is None or file.package:
            module.__path__ = []
        # Pickle, dataclasses and type hints look a class's module up in sys.modules.
        sys.modules[module.__name__] = self._modules[name] = module
        if file is not None:
            module.__file__ = _filename(file, self._digest)
            try:
                code: CodeType = compile(file.text, module.__file__, "exec", dont_inherit=True)
                exec(code, module.__dict__)  # noqa: S102 - the spec's functions are trusted code (DESIGN 9)
            except BaseException:
                del sys.modules[module.__name__], self._modules[name]
                raise
        return module

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Implement `__import__` for these modules: the spec's folder first, then installed modules."""
        package = str((globals or {}).get("__package__") or "")
        own = package == self._prefix or package.startswith(f"{self._prefix}.")
        absolute = _absolute(name, level, package[len(self._prefix) + 1 :]) if own else None
        if level and absolute is None:
            raise ImportError("attempted relative import beyond the folder of the spec")
        if absolute is None or (not level and absolute.split(".")[0] not in self._folders):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        if not absolute:
            imported = ModuleType(self._prefix)
        else:
            imported = self.load(absolute)
            if not fromlist:
                return self.load(absolute.split(".")[0])
        for item in fromlist or ():
            inner = f"{absolute}.{item}" if absolute else item
            if not hasattr(imported, item) and inner in self._folders:
                setattr(imported, item, self.load(inner))
        return imported


# -- installed modules ----------------------------------------------------------------------------------------------

_FIRST_SEEN: dict[str, str] = {}
"""Module -> hash of its files at this process's first request, which precedes the import."""


def installed_digest(module: str) -> str | None:
    """Return the hash of an installed module as this process runs it. None if it is not installed."""
    if module not in _FIRST_SEEN:
        root = _installed_root(module)
        if root is None:
            return None
        _FIRST_SEEN[module] = _hash_files(root)
    return _FIRST_SEEN[module]


def _import(module: str) -> ModuleType:
    installed_digest(module)
    return importlib.import_module(module)


def _installed_root(module: str) -> Path | None:
    """Return the file of an installed module, or the folder of its outermost regular package. Imports no user code."""
    for part in _with_parents(module):
        try:
            spec = importlib.util.find_spec(part)
        except (ImportError, ValueError):
            return None
        if spec is None:
            return None
        if spec.origin is not None and spec.has_location:
            path = Path(spec.origin)
            return path.parent if spec.submodule_search_locations is not None else path
    return None


def _hash_files(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
        body = path.read_bytes()
        digest.update(f"{path.relative_to(root.parent).as_posix()}\0{len(body)}\0".encode())
        digest.update(body)
    return digest.hexdigest()
