"""The documentation follows the code: what can be generated is, and the site is complete and self-contained."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from milepost.api import JobMaster
from milepost.jobspec.load.lint import json_schema
from milepost_testkit.processes.processes import REPOSITORY
from scripts.reference.pages import PAGES
from scripts.site_pages import ELSEWHERE, rewrite_links

DOCS = REPOSITORY / "docs"
NOT_BY_HAND = {*(REPOSITORY / place for place in PAGES), *(REPOSITORY / place for place in ELSEWHERE)}
LONGEST_WORDS = 1_200
FENCED = re.compile(r"^```.*?^```$|^<!-- packages: .*?^<!-- end -->$", re.MULTILINE | re.DOTALL)
"""Code, and what a script has made."""

LOADED = re.compile(r"<(?:script|img|iframe)[^>]* src=\"?([^\s\">]+)|<link[^>]* href=\"?([^\s\">]+)|url\(\"?([^)\"]+)")


@pytest.mark.long
@pytest.mark.parametrize("place", PAGES)
def test_a_generated_page_says_what_the_code_says(place: str) -> None:
    assert (REPOSITORY / place).read_text(encoding="utf-8") == PAGES[place](), "run `make reference`"


def test_every_use_case_of_a_job_is_on_the_page_of_the_api() -> None:
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8").partition("## JobMaster\n")[2]
    named = re.findall(r"^### ([\w.]+)$", page.partition("\n## ")[0], re.MULTILINE)
    groups = [name for name in vars(JobMaster) if not name.startswith("_")]
    assert [*dict.fromkeys(name.partition(".")[0] for name in named)] == groups
    assert {"epochs.run", "rollbacks.run", "backfills.run", "reports.read", "reports.status"} <= set(named)


def test_every_key_of_a_spec_is_described() -> None:
    schema = json_schema()
    parts = {"JobSpec": schema, **schema["$defs"]}
    silent = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, value in part["properties"].items()
        if "description" not in value and "const" not in value
    ]
    assert not silent


def test_a_page_written_by_hand_can_be_read_in_one_go() -> None:
    by_hand = set(DOCS.rglob("*.md")) - NOT_BY_HAND - {DOCS / "DESIGN.md"}
    words = {file.name: len(FENCED.sub("", file.read_text(encoding="utf-8")).split()) for file in by_hand}
    assert {name: count for name, count in words.items() if count > LONGEST_WORDS} == {}


@pytest.mark.parametrize("place", ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_a_page_outside_the_site_links_to_existing_targets(place: str) -> None:
    links = re.findall(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)", (REPOSITORY / place).read_text(encoding="utf-8"))
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


@pytest.mark.long
def test_the_site_is_complete_and_contacts_no_other_host(tmp_path: Path) -> None:
    """A strict build fails for a link, an anchor or a picture that is not there."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 100
    loaded = {place for file in [*pages, *tmp_path.rglob("*.css")] for place in _loaded(file)}
    assert loaded and not [place for place in loaded if re.match(r"(?:https?:)?//", place)]


def _loaded(file: Path) -> set[str]:
    found = map("".join, LOADED.findall(file.read_text(encoding="utf-8")))
    return {place for place in found if not place.startswith("data:")}


@pytest.mark.parametrize(
    ("page", "link", "turned"),
    [
        ("DESIGN.md", "../pipeline/milepost/protocol/PROTOCOL.md#races", "reference/protocol.md#races"),
        ("reference/protocol.md", "../../../docs/DESIGN.md", "../DESIGN.md"),
        ("explanation/epoch.md", "../../bench/RESULTS.md", "../reference/benchmark/RESULTS.md"),
        ("reference/benchmark/RESULTS.md", "plots/keys.svg", "plots/keys.svg"),
        ("explanation/epoch.md", "../../pipeline/nowhere.py", "../../pipeline/nowhere.py"),
        ("index.md", "https://semver.org", "https://semver.org"),
    ],
)
def test_a_link_leads_in_the_site_where_it_leads_on_disk(page: str, link: str, turned: str) -> None:
    assert rewrite_links(f"see [this]({link}).", page) == f"see [this]({turned})."


def test_a_link_to_code_is_its_text_in_the_site() -> None:
    text = "see [`codec`](../../pipeline/milepost/codec/__init__.py) and [this](epoch.md#failed-epochs)."
    assert rewrite_links(text, "explanation/architecture.md") == "see `codec` and [this](epoch.md#failed-epochs)."
