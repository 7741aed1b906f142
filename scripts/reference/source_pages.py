"""Pages generated from the source of modules, without importing them."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from scripts.processes import ROOT
from scripts.reference.docstrings import module_docstring
from scripts.reference.markdown import note, table

PRODUCT = ROOT / "pipeline" / "milepost"
JOB_KEYS, TABLE_KEYS = "storage/layout.py", "tables/records/table_keys.py"
PROCESS = "operators/process/run.py"
_INDENTED = re.compile(r"(?:^ {4}.*\n(?:^\n(?= {4}))?)+", re.MULTILINE)

STORED = """\
All objects are in the job's folder, `<storage>/<job>/`, or in the path of a sink. Records are JSON, with the name and
version of their format in the field `format`. State and figures are Parquet, rows in flight are Arrow. There are no
pickles. An object under one of these keys that does not have the expected format is refused by name.

Except for heartbeats, objects are written once and never changed. A reference to an object has its size and SHA-256, so
`verify` detects damage. [The protocol](../../pipeline/milepost/protocol/PROTOCOL.md) defines in which order objects are
written, and when they may be deleted.
"""


def stored_page() -> str:
    """Return the location of each stored object, and the formats by name."""
    rows = sorted((f"`{name}`", what) for name, what in stored_formats())
    return "\n".join([
        "# What is stored\n",
        note("the modules that write it"),
        STORED,
        "## Below the job's folder\n",
        f"```text\n{key_lines(JOB_KEYS)}\n```\n",
        "## Below a sink's path\n",
        "Everything that Milepost writes is below `_milepost/`, except for a format's own log.\n",
        f"```text\n{key_lines(TABLE_KEYS)}\n```\n",
        "## Formats\n",
        table(("format", "what it is"), rows),
        "",
    ])  # fmt: skip


def process_page() -> str:
    """Return the page of process functions."""
    text = module_docstring(PRODUCT / PROCESS)
    first, _, rest = text.partition("\n")
    blocks = _INDENTED.sub(lambda block: f"```python\n{textwrap.dedent(block[0]).strip()}\n```\n", rest, count=1)
    return f"# Process functions\n\n{note(f'`milepost/{PROCESS}`')}\n{first}\n{blocks.rstrip()}\n"


def key_lines(module: str) -> str:
    """Return the lines of a layout's docstring that describe keys, one per line."""
    block = _INDENTED.search(module_docstring(PRODUCT / module) + "\n")
    assert block is not None, module
    return textwrap.dedent(block[0]).rstrip()


def stored_formats() -> Iterator[tuple[str, str]]:
    """Yield each stored format, and the first sentence of the record, or of the module, that has it."""
    for file in sorted(PRODUCT.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        owners: list[ast.Module | ast.ClassDef] = [tree, *(one for one in tree.body if isinstance(one, ast.ClassDef))]
        for owner in owners:
            for name in re.findall(r"'(milepost\.[a-z-]+/\d+)'", "\n".join(map(ast.unparse, _assigned(owner)))):
                yield name, " ".join((ast.get_docstring(owner) or "").split("\n\n")[0].split())


def _assigned(owner: ast.Module | ast.ClassDef) -> list[ast.stmt]:
    return [node for node in owner.body if isinstance(node, ast.Assign | ast.AnnAssign)]
