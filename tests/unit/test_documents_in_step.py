"""What documents name is there: the rules that code cites, the defaults of the Makefile.

And no text is left as a merge stopped at it.
"""

from __future__ import annotations

import re

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.imports import FOLDER, files
from scripts.tree_copies import tracked_files

DESIGN = (REPOSITORY / "docs" / "DESIGN.md").read_text(encoding="utf-8")
PROTOCOL = REPOSITORY / FOLDER / "protocol"


def test_every_rule_that_code_cites_is_one_of_the_design() -> None:
    rules = set(re.findall(r"\*\*(I\d+)\b", DESIGN))
    sections = set(re.findall(r"^## (\d)\.", DESIGN, re.M)) | {
        f"{section}.{number}"
        for section, text in re.findall(r"^## (\d)\.(.*?)(?=^## |\Z)", DESIGN, re.M | re.S)
        for number in re.findall(r"^(\d)\. \*\*", text, re.M)
    }
    assert len(rules) == 14
    for file in [*files(FOLDER, "tests", "milepost_testkit", "scripts", "bench"), PROTOCOL / "PROTOCOL.md"]:
        text = file.read_text(encoding="utf-8")
        assert set(re.findall(r"[( ,](I(?:[1-9]|1\d))(?=[,):;. ])", text)) <= rules, file
        assert set(re.findall(r"DESIGN (\d(?:\.\d)?)", text)) <= sections, file


def test_a_contributor_sees_how_many_processes_share_the_tests() -> None:
    workers = re.search(r"^WORKERS \?= (\d+)$", (REPOSITORY / "Makefile").read_text(), re.M)
    said = re.search(r"processes share the tests \((\d+)\)", (REPOSITORY / "CONTRIBUTING.md").read_text())
    assert workers and said and workers[1] == said[1]


def test_no_file_has_markers_of_a_merge_conflict() -> None:
    left = re.compile(rb"^(?:<{7}|>{7}) ", re.M)
    assert [name for name in tracked_files(REPOSITORY) if left.search((REPOSITORY / name).read_bytes())] == []
