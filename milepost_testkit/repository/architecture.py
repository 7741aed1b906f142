"""Draw the packages of the architecture page from the import rules.

    python -m milepost_testkit.repository.architecture    write the section into the page

An arrow leads from a package to one that it may import. The picture leaves out an arrow that other arrows imply: with
`cli -> jobmaster -> epoch` there is none from `cli` to `epoch`.
"""

from __future__ import annotations

import re

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.floors import FLOORS
from milepost_testkit.repository.import_rules import ALLOWED, ALLOWED_INSIDE_FUNCTIONS, room_folder
from scripts.reference.docstrings import module_docstring
from scripts.reference.markdown import table, with_section

PAGE = REPOSITORY / "docs" / "explanation" / "architecture.md"
BEGIN = "<!-- packages: made by `python -m milepost_testkit.repository.architecture` -->\n"
END = "<!-- end -->\n"
_EVERYWHERE = {"exports", "__main__"}
"""What every package imports, and what only starts the process: neither belongs to a layer."""


def page() -> str:
    """Return the page with its section as the import rules have it now."""
    section = f"\n```mermaid\n{packages_picture(ALLOWED, ALLOWED_INSIDE_FUNCTIONS)}\n```\n\n{packages_table()}\n"
    return with_section(PAGE.read_text(encoding="utf-8"), BEGIN, section, END)


def packages_picture(allowed: dict[str, set[str]], allowed_late: dict[str, set[str]]) -> str:
    """Return a Mermaid flowchart of the packages; a dotted arrow is an import inside a function."""
    arrows = [
        f"    {package} --> {imported}"
        for package, below in allowed.items()
        if package not in _EVERYWHERE
        for imported in sorted(below - _below(allowed, below))
    ]
    late = [
        f"    {package} -.-> {imported}"
        for package, below in allowed_late.items()
        for imported in sorted(below - _below(allowed, {package}))
    ]
    return "\n".join(["flowchart TD", *arrows, *late])


def packages_table() -> str:
    """Return a row per package, from the top down: its purpose, and its floors."""
    packages = sorted(ALLOWED.keys() - _EVERYWHERE, key=lambda name: (-len(_below(ALLOWED, {name})), name))
    return table(("package", "purpose", "floors, from the top"), [_row(package) for package in packages])


def _below(allowed: dict[str, set[str]], packages: set[str]) -> set[str]:
    """Return what these packages may import, directly or through others."""
    imported = {name for package in packages for name in allowed[package]}
    return imported | _below(allowed, imported) if imported else imported


def _row(package: str) -> tuple[str, str, str]:
    folder = room_folder(package)
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    purpose = re.split(r"(?<=\.)\s", module_docstring(file), maxsplit=1)[0].replace("\n", " ")
    floors = (", ".join(f"`{name}`" for name in floor.split()) for floor in reversed(FLOORS.get(package, ())))
    return f"[`{package}`](../../{file.relative_to(REPOSITORY).as_posix()})", purpose, " / ".join(floors)


def main() -> None:
    """Write the section into the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
