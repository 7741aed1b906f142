"""Which parts a mode has: enough for every target."""

from __future__ import annotations

import pytest

from bench.parts import MODES, parts_of
from bench.reports.targets import TARGETS

OWN_REPORTS = ("language/", "sql/")
NEEDED = {target.part for target in TARGETS if not target.part.startswith(OWN_REPORTS)}


def names(mode: str) -> list[str]:
    return [part.name for part in parts_of(mode)]


def test_the_full_mode_has_a_part_for_every_target() -> None:
    assert set(names("full")) >= NEEDED


def test_the_quick_mode_leaves_out_what_needs_many_epochs_a_cluster_or_a_far_store() -> None:
    alone = {"far/keyed-10k", "far/keyed-1m", "executors/keyed-1m", "executors/keyed-5m", "rewrite/keyed-1m"}
    assert NEEDED - set(names("quick")) == {"process/keyed-5m", "aged/keyed-1m"} | alone
    assert set(names("quick")) <= set(names("full"))


@pytest.mark.parametrize("mode", ["language", "sql"])
def test_the_language_and_sql_have_modes_of_their_own(mode: str) -> None:
    assert set(names(mode)) == {target.part for target in TARGETS if target.part.startswith(f"{mode}/")}


def test_a_part_is_named_once() -> None:
    for mode in MODES:
        assert len(names(mode)) == len(set(names(mode)))
