"""What counts as a line of code."""

from __future__ import annotations

from scripts.code_lines import count, docstring_text

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


def test_code_is_neither_docstring_nor_comment_nor_blank() -> None:
    """The lines inside of a text that the code uses are code."""
    assert count(MODULE) == {"code": 6, "import": 0, "comment": 1, "docstring": 4}


def test_an_import_over_several_lines_counts_each_of_them() -> None:
    assert count("from a import (\n    b,\n    c,\n)\n") == {"code": 4, "import": 4, "comment": 0, "docstring": 0}


def test_the_text_of_docstrings_has_no_quoted_code() -> None:
    assert docstring_text('"""Like `kept` rows."""\n').split() == ["Like", "rows."]


def test_a_module_without_code_has_none() -> None:
    assert count('"""Only this."""\n') == {"code": 0, "import": 0, "comment": 0, "docstring": 1}
