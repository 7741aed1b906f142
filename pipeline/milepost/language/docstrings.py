"""Parse Google-style docstrings into a summary and attribute descriptions."""

from __future__ import annotations

import inspect
import re
import textwrap

_SECTION = "Attributes:\n"
_ATTRIBUTE = re.compile(r"^(\w+): ", re.MULTILINE)


def parse_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text before the section `Attributes`, and attribute name -> description, each as one line."""
    summary, _, section = inspect.cleandoc(docstring).partition(_SECTION)
    parts = _ATTRIBUTE.split(textwrap.dedent(section))[1:]
    return _one_line(summary), {name: _one_line(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def _one_line(text: str) -> str:
    return " ".join(text.split())
