"""The documentation's pages are run, and print what they show; `make transcripts` writes there what they print."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from milepost.language.spark_remote import TOKEN_VARIABLE
from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.servers.connect_server import ConnectServer
from scripts.stack import REMOTE_VARIABLE
from scripts.transcripts import page_environ, pages, run_page

IN_EVERY_RUN = ("README.md",)
"""What newcomers type first; the other pages are deep."""


@pytest.fixture(scope="module")
def environ(spark_connect: ConnectServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    named = {REMOTE_VARIABLE: spark_connect.remote, TOKEN_VARIABLE: spark_connect.stack.spark_token}
    return page_environ(tmp_path_factory.mktemp("page"), named)


def marked(page: Path) -> object:
    name = str(page.relative_to(REPOSITORY))
    marks = () if name in IN_EVERY_RUN else (pytest.mark.deep,)
    return pytest.param(page, id=name, marks=marks)


@pytest.mark.parametrize("page", [marked(page) for page in pages()])
def test_a_page_prints_what_it_shows(page: Path, environ: dict[str, str], tmp_path: Path) -> None:
    shown = page.read_text("utf-8")
    printed = run_page(shown, tmp_path, environ)
    changes = difflib.unified_diff(shown.splitlines(), printed.splitlines(), "shown", "printed", n=2, lineterm="")
    assert printed == shown, "\n".join([f"`make transcripts` writes {page.name} anew:", *changes])
