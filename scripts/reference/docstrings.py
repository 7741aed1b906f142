"""Docstrings of modules, without importing them."""

from __future__ import annotations

import ast
from pathlib import Path


def module_docstring(file: Path) -> str:
    """Return the docstring of a module, or ""."""
    return ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
