"""The worked examples in the docstrings of the product say what it does."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from milepost_testkit.processes.processes import REPOSITORY
from milepost_testkit.repository.imports import FOLDER, PACKAGE, files

pytestmark = pytest.mark.deep

WITH_EXAMPLES = [file for file in files(FOLDER) if ">>> " in file.read_text(encoding="utf-8")]


@pytest.mark.parametrize("file", WITH_EXAMPLES, ids=lambda file: str(file.relative_to(REPOSITORY / FOLDER)))
def test_a_worked_example_is_true(file: Path) -> None:
    name = ".".join((PACKAGE, *file.relative_to(REPOSITORY / FOLDER).with_suffix("").parts))
    found = doctest.testmod(importlib.import_module(name))
    assert found.attempted and not found.failed
