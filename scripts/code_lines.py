"""How much code there is: lines of package and tests that hold code, so without docstrings, comments and blank lines.

    python -m scripts.code_lines            of this tree
    python -m scripts.code_lines --ref REF  of a commit

Counted from git's list of files, so that two commits are compared by the same rule.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter

from scripts.processes import ROOT

PARTS = ("pipeline", "plugins", "dags", "scripts", "tests", "milepost_testkit", "bench")
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def count(text: str) -> Counter[str]:
    """Count the lines of a module: ``code``, ``comment`` (nothing but one), ``docstring``; all others are blank."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    docstrings = _docstring_lines(ast.parse(text))
    code: set[int] = set()
    for token in tokens:
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    code -= docstrings
    comments = {token.start[0] for token in tokens if token.type == tokenize.COMMENT} - code
    return Counter(code=len(code), comment=len(comments), docstring=len(docstrings))


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of every text that stands alone as a statement: docstrings, and those below an attribute."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def modules(ref: str | None) -> dict[str, str]:
    """The text of every module of a commit, or of the tree as it is. Raises CalledProcessError: no such commit."""
    listed = ["ls-tree", "-r", "-z", "--name-only", ref] if ref else ["ls-files", "-z"]
    names = [name for name in _git(*listed).split("\0") if name.endswith(".py")]
    return {name: _git("show", f"{ref}:{name}") if ref else (ROOT / name).read_text(encoding="utf-8") for name in names}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout.decode()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="code_lines", description=__doc__.split("\n")[0])
    parser.add_argument("--ref", help="a commit; without it, the tree as it is")
    options = parser.parse_args(arguments)
    found: dict[str, Counter[str]] = {part: Counter() for part in PARTS}
    for name, text in modules(options.ref).items():
        part = name.split("/")[0]
        if part in found:
            found[part].update(count(text), modules=1)
    columns = ("modules", "code", "comment", "docstring")
    print(f"{'':<10}" + "".join(f"{column:>11}" for column in columns))
    for part, counts in found.items():
        print(f"{part:<10}" + "".join(f"{counts[column]:>11,}" for column in columns))
    return 0


if __name__ == "__main__":
    sys.exit(main())
