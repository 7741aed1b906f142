"""Which parts a mode has: enough for every target."""

from __future__ import annotations

from bench.parts import parts_of
from bench.targets import TARGETS

NEEDED = {target.part for target in TARGETS}


def names(mode: str) -> list[str]:
    return [part.name for part in parts_of(mode)]


def test_the_full_mode_has_a_part_for_every_target() -> None:
    assert set(names("full")) >= NEEDED


def test_the_quick_mode_leaves_out_only_what_needs_many_cold_starts() -> None:
    assert NEEDED - set(names("quick")) == {"process/keyed-5m", "aged/keyed-1m"}
    assert set(names("quick")) <= set(names("full"))


def test_a_part_is_named_once() -> None:
    for mode in ("quick", "full"):
        assert len(names(mode)) == len(set(names(mode)))
