"""MkDocs hooks that add files from outside `docs/` to the site, and rewrite links to them.

MkDocs calls these functions by name. Links are written as paths in the repository, so they also work there. A link to
a file in `ELSEWHERE` is rewritten to its page of the site. A link to any other file of the repository, such as code,
becomes its text. A link to a file that does not exist fails a strict build.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
_PUBLISHED = ("*.md", "plots/*.svg", "results-full.json", "results-tables.json")
_RUNBOOK = [path for folder in ("errors", "states") for path in ROOT.glob(f"pipeline/milepost/runbook/{folder}/*.md")]
_BENCH = [path for pattern in _PUBLISHED for path in ROOT.glob(f"bench/{pattern}")]
ELSEWHERE = {
    "pipeline/milepost/protocol/PROTOCOL.md": "reference/protocol.md",
    "pipeline/milepost/openlineage/checkpoint_facet.schema.json": "reference/checkpoint_facet.schema.json",
    **{
        path.relative_to(ROOT).as_posix(): f"reference/benchmark/{path.relative_to(ROOT / 'bench').as_posix()}"
        for path in sorted(_BENCH)
    },
    **{path.relative_to(ROOT).as_posix(): f"runbook/{path.name}" for path in sorted(_RUNBOOK)},
}
"""Path of a file in the repository -> path of its page on the site."""

_ON_DISK = {page: path for path, page in ELSEWHERE.items()}
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:#]+)((?:#[^)]*)?)\)|(?<=\]\()([^)\s:#]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add pages from outside the docs folder."""
    for path, page in ELSEWHERE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return the text with links rewritten for the site."""
    return rewrite_links(markdown, page.file.src_uri)


def rewrite_links(markdown: str, page: str) -> str:
    """Return the text of a page with each relative link rewritten for the site.

    Args:
        page: its path below the root of the site.
    """
    folder = PurePosixPath(_ON_DISK.get(page, f"docs/{page}")).parent

    def rewritten(match: re.Match[str]) -> str:
        link = match[2] or match[4]
        target = os.path.normpath(folder / link)
        in_site = ELSEWHERE.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if match[2] and not in_site and (ROOT / target).is_file():
            return match[1]
        address = os.path.relpath(in_site, PurePosixPath(page).parent) if in_site else link
        return f"[{match[1]}]({address}{match[3]})" if match[2] else address

    return _LINK.sub(rewritten, markdown)
