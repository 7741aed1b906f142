"""Repeat the attempts of a job on Spark in this process, to get its nodes' rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from milepost.jobspec.load.load import LoadedJob
from milepost.sources.contract import SourceObject
from milepost_testkit.chaos.tries import Try
from milepost_testkit.law.plane import Checkpoint, EpochOptions, Plane


def replayed(
    job: LoadedJob, tries: Sequence[Try], versions: Mapping[str, Mapping[tuple[str, str], pa.Table]], folder: Path
) -> list[Try]:
    """Return the attempts with the rows that their nodes emit, each continuing the previous one.

    Args:
        versions: rows of each version of an object (name, etag), by source.
    """
    plane, base = Plane(job.spec, folder), Checkpoint()
    numbers = []
    for one in tries:
        objects: dict[str, tuple[SourceObject, ...]] = {
            source: tuple(
                plane.put(source, f"{name}-{etag}.parquet", versions[source][name, etag]) for name, etag in read
            )
            for source, read in one.inputs.items()
        }
        idle_before, idle = one.begin.idle_before, one.begin.idle
        base = plane.epoch(base, objects, EpochOptions(one.parallelism, idle_before=idle_before, idle=idle))
        numbers.append(base.number)
    return [
        replace(
            one,
            pieces=[
                (node, stamp_us, rows)
                for node, pieces in plane.captured.pieces.items()
                for epoch, stamp_us, rows in pieces
                if epoch == number
            ],
            schemas=plane.schemas,
        )
        for one, number in zip(tries, numbers, strict=True)
    ]
