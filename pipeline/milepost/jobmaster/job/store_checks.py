"""Store checks ask every store of a job whether it keeps what the protocol relies on.

The manifest log and each sink's chain need a create that fails when the key exists (I1, I14): those stores are written
to. A planned input version needs reads that honour the expected version: a source's store is only read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from milepost.jobmaster.job.context import JobContext
from milepost.protocol.records.errors import CheckpointError
from milepost.protocol.records.object_store import ObjectStore, StoreConfig
from milepost.storage.keys import LocalRoot, parse_root
from milepost.storage.log.records import Head
from milepost.storage.open import open_store
from milepost.storage.s3.probe import (
    ProbeCheck,
    first_answer,
    probe_store,
    probe_versioned_reads,
    require_preconditions,
    require_versioned_reads,
)

_TRUSTED: set[tuple[str, str]] = set()
"""Places that this process has asked, and that kept every rule."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A store that the job writes to; `user` is empty for the job's own."""

    user: str
    store: ObjectStore


@dataclass(frozen=True, slots=True)
class _Read:
    """A store that the job only reads, and below which prefix."""

    user: str
    store: ObjectStore
    prefix: str


def require_stores(context: JobContext) -> None:
    """Refuse a job one of whose stores breaks a rule; each place is asked once per process.

    Raises:
        EnvironmentUnusable: names the endpoint and every rule it broke; or the extra of a table's format is not
            installed. StoreUnavailable: it could not be asked.
    """
    for sink in context.spec.sinks:
        context.sink(sink.name)
    for place, use in _places(context):
        if place in _TRUSTED:
            continue
        if isinstance(use, _Written):
            require_preconditions(use.store)
        elif not require_versioned_reads(use.store, use.prefix, use.user):
            continue  # nothing there yet: asked again when there is
        _TRUSTED.add(place)


def first_head(context: JobContext) -> Head | None:
    """Return the head of a job; of a store that this process has not asked yet, the answer is waited for a while only.

    Raises: StoreUnavailable: there was none in that time.
    """
    if _place(context.store_config) in _TRUSTED:
        return context.log.head()
    return first_answer(context.store, context.log.head)


def probe_stores(context: JobContext) -> list[ProbeCheck]:
    """Ask every store of a job now, whatever is known already; the failed checks are among the answers.

    Raises:
        EnvironmentUnusable, StoreUnavailable: a store could not even be asked.
    """
    checks: list[ProbeCheck] = []
    asked: set[tuple[str, str]] = set()
    for place, use in _places(context):
        if place in asked:
            continue
        asked.add(place)
        if isinstance(use, _Written):
            found = probe_store(use.store)
        else:
            read = probe_versioned_reads(use.store, use.prefix)
            found = [] if read is None else [read]
        checks += [replace(check, check=f"{use.user}: {check.check}") if use.user else check for check in found]
    return checks


def probe_tables(context: JobContext) -> list[ProbeCheck]:
    """Ask for every table of a job that others read, by its own format; the failed checks are among the answers."""
    checks = []
    for spec in context.spec.sinks:
        if spec.format == "parquet":
            continue
        try:
            ok, said = True, context.sink(spec.name).probe()
        except CheckpointError as error:
            told = error.message.removeprefix(f"sink {spec.name}: ")
            ok, said = False, f"{told} {error.hint}".strip()
        checks.append(ProbeCheck(f"sink {spec.name}: {spec.place}", ok, said))
    return checks


def _places(context: JobContext) -> Iterator[tuple[tuple[str, str], _Written | _Read]]:
    """Yield every use of a store with where it is; written ones first, for they answer for reads as well."""
    yield _place(context.store_config), _Written("", context.store)
    for name in sorted(sink.name for sink in context.spec.sinks):
        config = context.sink_config(name)
        yield _place(config), _Written(f"sink {name}", open_store(config))
    for name in sorted(context.spec.sources):
        config, pattern = context.source(name)
        yield _place(config), _Read(f"source {name}", open_store(config), pattern.split("*", 1)[0])


def _place(config: StoreConfig) -> tuple[str, str]:
    """Return what decides how a store behaves: endpoint and bucket, or the device that a folder lies on."""
    root = parse_root(config.url)
    if isinstance(root, LocalRoot):
        return "device", str(_device(root.path))
    return config.endpoint_url or "", root.bucket


def _device(folder: Path) -> int:
    """Return the device of a folder, or of the nearest one above it that exists."""
    for known in (folder, *folder.parents):
        try:
            return known.stat().st_dev
        except (FileNotFoundError, NotADirectoryError):
            continue
    return Path("/").stat().st_dev
