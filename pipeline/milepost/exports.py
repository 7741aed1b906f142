"""Lazy package exports: a package lists its names once, and imports each module on first use.

The `__init__.py` of a package lists what other packages may import, one line per name:

    if TYPE_CHECKING:
        from milepost.storage.local.folder import FolderStore as FolderStore
        from milepost.storage.open import open_store as open_store
    else:
        __getattr__, __dir__ = lazy_exports(__name__)

Type checkers, editors and readers see plain imports. At run time ``from milepost.storage import open_store`` imports
`milepost.storage.open` and no other module of the package, so a command waits only for what it uses.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

_EXPORT = re.compile(r"^    from ([\w.]+) import (\w+) as \2$", re.MULTILINE)


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and `__dir__` of a module that lists its exports below ``if TYPE_CHECKING:``.

    Raises (from the returned functions):
        AttributeError: the module does not export the name.
    """

    @cache
    def home_modules() -> dict[str, str]:
        """Return the module of each exported name."""
        loader: Any = sys.modules[package].__spec__.loader  # type: ignore[union-attr]
        source = loader.get_source(package)
        if source is None:
            raise ImportError(f"{package} lists its exports in its source, which is not installed")
        return exported_names(source)

    def getattr_(name: str) -> Any:
        home = home_modules().get(name)
        if home is None:
            raise AttributeError(f"{package} has no {name!r}; it exports {', '.join(sorted(home_modules()))}")
        value = getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    def dir_() -> list[str]:
        return sorted(home_modules())

    return getattr_, dir_


def exported_names(source: str) -> dict[str, str]:
    """Return the module of each name that a source text exports. A regular expression is ten times as fast as a parser.

    >>> exported_names("if TYPE_CHECKING:\\n    from milepost.storage.open import open_store as open_store")
    {'open_store': 'milepost.storage.open'}
    """
    return {name: module for module, name in _EXPORT.findall(source)}
