"""What counts as a line of code."""

from __future__ import annotations

from scripts.code_lines import count

MODULE = '''\
"""A docstring
of two lines."""

# a comment
LIMIT = 3  # and a line with one
"""What it is."""


def text() -> str:
    """One line."""
    return """
not a docstring

"""
'''


def test_code_is_what_is_neither_docstring_nor_comment_nor_blank() -> None:
    """The lines inside of a text that the code uses are code."""
    assert dict(count(MODULE)) == {"code": 6, "comment": 1, "docstring": 4}


def test_a_module_without_code_has_none() -> None:
    assert dict(count('"""Only this."""\n')) == {"code": 0, "comment": 0, "docstring": 1}
