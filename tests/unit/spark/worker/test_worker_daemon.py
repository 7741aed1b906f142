"""Forked Python workers find the readers of all formats and all kinds of operators imported."""

from __future__ import annotations

import pytest

from milepost.operators.kinds import STATEFUL_KINDS
from milepost.sources.formats import FORMATS
from milepost.sources.kernel.declared_columns import DeclaredColumns
from milepost.spark.worker.worker_daemon import _PRELOADED_MODULES


@pytest.mark.parametrize("format_", FORMATS)
def test_the_reader_of_each_format_is_preloaded(format_: str) -> None:
    """Otherwise each new worker would import it again."""
    reader = FORMATS[format_](DeclaredColumns("rows", {}), {})
    assert type(reader).__module__ in _PRELOADED_MODULES


def test_each_kind_of_operator_is_preloaded() -> None:
    assert {f"milepost.operators.{kind}.run" for kind in STATEFUL_KINDS} < set(_PRELOADED_MODULES)
