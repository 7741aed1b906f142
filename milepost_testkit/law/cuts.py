"""Check that cut epochs, whole epochs and a single epoch lead to the same tables.

The guarantee (`docs/reference/event-time.md`): a row is stamped when it is read, and the stamp alone decides whether it
is late, in whichever epoch it is processed. So the position of a cut has no effect, and the division of the input into
epochs only affects which rows are late.

Two things are not guaranteed. If an idle source returns behind timers that fired without it, its rows are late for the
emitted results, which depends on the cut. And neither the row of a key that `deduplicate` emits nor the result of a
lookup in a later epoch is determined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from milepost.jobspec.job.spec import JobSpec
from milepost.sources.contract import SourceObject
from milepost_testkit.law.plane import Checkpoint, EpochOptions, Plane
from milepost_testkit.models.data.oracle import Watermarks, has_late_rows, hold_same

Objects = Mapping[str, tuple[SourceObject, ...]]
_BY_ARRIVAL = ("deduplicate", "lookup", "process")
"""Kinds whose rows depend on the order of their input or on when an epoch runs."""


@dataclass(frozen=True)
class Asked:
    """The request for an epoch."""

    objects: Objects
    options: EpochOptions


def hold_uncut(plane: Plane, cut: Checkpoint, asked: Mapping[int, Asked]) -> Iterator[str]:
    """Repeat the lineage of a checkpoint in whole epochs and in a single one. Yield each equal result.

    Args:
        cut: a checkpoint without rows in flight. asked: the trigger request of each epoch.
    Raises: Broken.
    """
    if _depends_on_arrival(plane.spec):
        return
    epochs = [asked[number] for number in cut.lineage]
    whole = Checkpoint()
    for one in epochs:
        whole = plane.epoch(whole, one.objects, replace(one.options, cut_ms=None))
    watermarks = Watermarks(plane.spec, plane.graph, plane.captured, frozenset(plane.ended))
    if not watermarks.came_back_behind(whole.lineage):
        hold_same(plane.spec, plane.graph, plane.captured, plane.schemas, (cut.lineage, whole.lineage))
        yield "uncut"
    ended = frozenset(plane.ended)
    if cut.number in ended and not has_late_rows(
        plane.spec, plane.graph, plane.captured, plane.schemas, cut.lineage, ended
    ):
        at_once = plane.epoch(Checkpoint(), _together(epochs), EpochOptions(last=True))
        hold_same(plane.spec, plane.graph, plane.captured, plane.schemas, (cut.lineage, at_once.lineage))
        yield "in one epoch"


def _depends_on_arrival(spec: JobSpec) -> bool:
    return any(one.kind in _BY_ARRIVAL or getattr(one, "tombstone_ttl", None) is not None for one in spec.operators)


def _together(epochs: Sequence[Asked]) -> Objects:
    names = dict.fromkeys(name for one in epochs for name in one.objects)
    return {name: tuple(obj for one in epochs for obj in one.objects.get(name, ())) for name in names}
