"""Check that every store of a job has the guarantees that the protocol relies on.

The manifest log and each sink's chain need a create that fails if the key exists (I1, I14). Those stores are probed by
writes. A planned input version needs reads that honour the expected version. A source's store is only read.

A store that passed is trusted for the life of the process, and for an hour by other processes of this user on this
machine. Each task of a scheduler is a process of its own, and a probe makes more requests than most tasks do.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from milepost.epoch import private_cache
from milepost.errors import CheckpointError, EnvironmentUnusable
from milepost.jobmaster.job.context import JobContext
from milepost.language import SINK_FORMATS
from milepost.protocol.records import ObjectStore, StoreConfig
from milepost.storage import LocalRoot, open_store, parse_root
from milepost.storage.log import Head
from milepost.storage.s3 import (
    ProbeCheck,
    first_answer,
    probe_store,
    probe_versioned_reads,
    require_preconditions,
    require_versioned_reads,
)

_TRUSTED_FOR_S = 3600.0
"""How long a process trusts the probe of another process of the same user."""


class _Guarantee(Enum):
    """What a store was probed for. A probe of writes includes reads."""

    WRITES = "writes"
    READS = "reads"


_Place = tuple[str, ...]
"""What determines a store's behaviour: endpoint, proxy and bucket, or the device of a local folder."""

_DEVICE = "device"

_TRUSTED: set[tuple[_Place, _Guarantee]] = set()
"""Locations that passed a probe, as far as this process knows."""


@dataclass(frozen=True, slots=True)
class _WrittenStore:
    """A store that the job writes to. user: the sink; "" for the job's own store."""

    user: str
    store: ObjectStore
    guarantee: ClassVar[_Guarantee] = _Guarantee.WRITES


@dataclass(frozen=True, slots=True)
class _ReadStore:
    """A store that the job only reads, below a prefix."""

    user: str
    store: ObjectStore
    prefix: str
    guarantee: ClassVar[_Guarantee] = _Guarantee.READS


def require_stores(context: JobContext) -> None:
    """Refuse a job if one of its stores lacks a guarantee. Probes each location once per process and hour.

    Raises:
        EnvironmentUnusable: names the endpoint and every missing guarantee; or the extra of a table's format is not
            installed. StoreUnavailable: a store did not answer.
    """
    for sink in context.spec.sinks:
        context.sink(sink.name)
    for place, use in _places(context):
        if _is_trusted(place, use.guarantee):
            continue
        try:
            if isinstance(use, _WrittenStore):
                require_preconditions(use.store)
            elif not require_versioned_reads(use.store, use.prefix, use.user):
                continue  # no object to read yet: probed again once there is one
        except EnvironmentUnusable:
            _distrust(place)
            raise
        _trust(place, use.guarantee)


def head_within_deadline(context: JobContext) -> Head | None:
    """Return the head of a job, with a short deadline if this process has not reached the store before.

    Raises: StoreUnavailable: no answer before the deadline.
    """
    if (_place(context.store_config), _Guarantee.WRITES) in _TRUSTED:
        return context.log.head()
    return first_answer(context.store, context.log.head)


def local_disks(context: JobContext) -> dict[str, Path]:
    """Return a folder on each local disk that holds state or tables, by what it holds.

    A folder that does not exist yet is replaced by its nearest existing ancestor. Of several on one disk, only the
    first is listed. Example: storage and sink `totals` on one disk give `{"storage": Path("/data")}`.
    """
    urls = {"storage": context.job.storage_url}
    urls |= {f"sink {sink.name}": context.job.url(sink.path) for sink in context.spec.sinks if sink.path is not None}
    folders: dict[str, Path] = {}
    devices: set[int] = set()
    for name, url in urls.items():
        root = parse_root(url)
        if not isinstance(root, LocalRoot):
            continue
        folder = next(path for path in (root.path, *root.path.parents) if path.exists())
        if (device := folder.stat().st_dev) not in devices:
            devices.add(device)
            folders[name] = folder
    return folders


def probe_stores(context: JobContext) -> list[ProbeCheck]:
    """Probe every store of a job now, trusted or not. Returns failed checks as well.

    Raises:
        EnvironmentUnusable, StoreUnavailable: a store could not be probed at all.
    """
    checks: list[ProbeCheck] = []
    probed: set[_Place] = set()
    for place, use in _places(context):
        if place in probed:
            continue
        probed.add(place)
        if isinstance(use, _WrittenStore):
            results = probe_store(use.store)
        else:
            read = probe_versioned_reads(use.store, use.prefix)
            results = [] if read is None else [read]
        if not all(check.ok for check in results):
            _distrust(place)
        checks += [replace(check, check=f"{use.user}: {check.check}") if use.user else check for check in results]
    return checks


def probe_tables(context: JobContext) -> list[ProbeCheck]:
    """Probe every table that is not managed Parquet, by its own format. Returns failed checks as well."""
    checks = []
    for spec in context.spec.sinks:
        if SINK_FORMATS[spec.format].is_managed:
            continue
        try:
            ok, detail = True, context.sink(spec.name).probe()
        except CheckpointError as error:
            ok, detail = False, error.full_message().removeprefix(f"sink {spec.name}: ")
        checks.append(ProbeCheck(f"sink {spec.name}: {spec.location}", ok, detail))
    return checks


def _places(context: JobContext) -> Iterator[tuple[_Place, _WrittenStore | _ReadStore]]:
    """Yield every store that the job uses, with its location. Written stores come first: their probe covers reads."""
    yield _place(context.store_config), _WrittenStore("", context.store)
    for name in sorted(sink.name for sink in context.spec.sinks):
        config = context.sink_config(name)
        yield _place(config), _WrittenStore(f"sink {name}", open_store(config))
    for name in sorted(context.spec.files):
        config, pattern = context.source(name)
        yield _place(config), _ReadStore(f"source {name}", open_store(config), pattern.split("*", 1)[0])


def _is_trusted(place: _Place, guarantee: _Guarantee) -> bool:
    """Return whether this process, or another one of this user within the hour, has probed a location."""
    for probed in (guarantee, _Guarantee.WRITES):
        if (place, probed) in _TRUSTED:
            return True
        with suppress(EnvironmentUnusable, OSError):
            if place[0] != _DEVICE and _is_fresh(_mark(place, probed)):
                _TRUSTED.add((place, probed))
                return True
    return False


def _trust(place: _Place, guarantee: _Guarantee) -> None:
    _TRUSTED.add((place, guarantee))
    with suppress(EnvironmentUnusable, OSError):
        if place[0] != _DEVICE:
            mark = _mark(place, guarantee)
            mark.parent.mkdir(mode=0o700, exist_ok=True)
            mark.touch()
            for old in mark.parent.iterdir():
                if not _is_fresh(old):
                    old.unlink(missing_ok=True)


def _distrust(place: _Place) -> None:
    for guarantee in _Guarantee:
        _TRUSTED.discard((place, guarantee))
        with suppress(EnvironmentUnusable, OSError):
            _mark(place, guarantee).unlink()


def _is_fresh(mark: Path) -> bool:
    return 0 <= time.time() - mark.stat().st_mtime < _TRUSTED_FOR_S


def _mark(place: _Place, guarantee: _Guarantee) -> Path:
    """Return the empty file whose modification time is that of the probe.

    Raises: EnvironmentUnusable: there is no private folder.
    """
    return private_cache() / "stores-1" / hashlib.sha256("\n".join((*place, guarantee.value)).encode()).hexdigest()


def _place(config: StoreConfig) -> _Place:
    root = parse_root(config.url)
    if isinstance(root, LocalRoot):
        return _DEVICE, str(_device(root.path))
    store: Any = open_store(config)  # an `S3Store`, which is only loaded by jobs that use it
    return (*store.route, root.bucket)


def _device(folder: Path) -> int:
    """Return the device number of a folder, or of its nearest existing ancestor."""
    for path in (folder, *folder.parents):
        try:
            return path.stat().st_dev
        except (FileNotFoundError, NotADirectoryError):
            continue
    return Path("/").stat().st_dev
