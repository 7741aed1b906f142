"""Count lines of code, docstrings and comments, and words that docstrings should avoid.

    python -m scripts.code_lines            of this tree
    python -m scripts.code_lines --ref REF  of a commit

The files are those that git lists, so two commits are compared by the same rule. No test reads the counts.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable

from scripts.processes import ROOT

PARTS = ("pipeline", "plugins", "dags", "scripts", "tests", "milepost_testkit", "bench")
PRODUCT = "pipeline"
PROSE = ("pipeline", "tests", "milepost_testkit", "scripts", "bench")
"""Parts whose docstrings are counted."""
DIALECT = ("what is", "whose", "nobody", "asked", "kept", "told", "beside", "behind", "lies", "any more")
"""Words that docstrings of comparable projects do not use."""

_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


def count(text: str) -> Counter[str]:
    """Count a module's lines: ``code``, ``import`` (part of code), ``comment`` (alone on its line), ``docstring``."""
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    tree = ast.parse(text)
    docstrings = _lines(_docstrings(tree))
    code: set[int] = set()
    for token in tokens:
        if token.type not in _NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    code -= docstrings
    comments = {token.start[0] for token in tokens if token.type == tokenize.COMMENT} - code
    imports = _lines(node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    counts = {"code": code, "import": imports, "comment": comments, "docstring": docstrings}
    return Counter({name: len(lines) for name, lines in counts.items()})


def docstring_text(text: str) -> str:
    """Return the words of all docstrings of a module, without what they quote as code."""
    return " ".join(re.sub(r"`[^`]*`", " ", ast.literal_eval(node.value)) for node in _docstrings(ast.parse(text)))


def _docstrings(tree: ast.Module) -> list[ast.Expr]:
    """Return every string that is a statement: docstrings, and those below an attribute."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


def _lines(nodes: Iterable[ast.stmt]) -> set[int]:
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def modules(ref: str | None) -> dict[str, str]:
    """Return every module of a commit, or of the working tree, as text. Raises CalledProcessError: no such commit."""
    listed = ["ls-tree", "-r", "-z", "--name-only", ref] if ref else ["ls-files", "-z"]
    names = [name for name in _git(*listed).split("\0") if name.endswith(".py")]
    return {name: _git("show", f"{ref}:{name}") if ref else (ROOT / name).read_text(encoding="utf-8") for name in names}


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=True).stdout.decode()


def _prose(texts: dict[str, str], part: str) -> str:
    return " ".join(docstring_text(text) for name, text in texts.items() if name.startswith(f"{part}/")).lower()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="code_lines", description=__doc__.split("\n")[0])
    parser.add_argument("--ref", help="a commit; default: the working tree")
    options = parser.parse_args(arguments)
    texts = modules(options.ref)
    columns = ("modules", "code", "import", "comment", "docstring")
    print(f"{'':<17}" + "".join(f"{column:>11}" for column in columns))
    for part in PARTS:
        counts: Counter[str] = Counter()
        for name, text in texts.items():
            if name.startswith(f"{part}/"):
                counts.update(count(text), modules=1)
        print(f"{part:<17}" + "".join(f"{counts[column]:>11,}" for column in columns))
    product = [text for name, text in texts.items() if name.startswith(f"{PRODUCT}/")]
    lengths = [len(text.splitlines()) for text in product]
    print(f"\n{PRODUCT}: {statistics.median(lengths):.0f} lines in the median module")
    prose = {part: _prose(texts, part) for part in PROSE}
    words = {part: len(text.split()) for part, text in prose.items()}
    print(f"\n{'':<17}" + "".join(f"{part:>17}" for part in PROSE))
    print(f"{'docstring words':<17}" + "".join(f"{words[part]:>17,}" for part in PROSE) + "\nper 10,000 words:")
    for word in DIALECT:
        uses = {part: len(re.findall(rf"\b{word}\b", text)) for part, text in prose.items()}
        print(f"  {word:<15}" + "".join(f"{1e4 * uses[part] / max(words[part], 1):>17.1f}" for part in PROSE))
    return 0


if __name__ == "__main__":
    sys.exit(main())
