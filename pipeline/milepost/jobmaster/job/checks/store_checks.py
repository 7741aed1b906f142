"""Store checks ask every store of a job whether it keeps what the protocol relies on.

The manifest log and each sink's chain need a create that fails when the key exists (I1, I14): those stores are written
to. A planned input version needs reads that honour the expected version: a source's store is only read.

An endpoint that kept the rules is not asked again within the hour by processes of this user on this machine: each task
of a scheduler is one, and a probe is more requests than most tasks make. A running process does not ask again either.
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

from milepost.epoch.private_cache import private_cache
from milepost.errors import CheckpointError, EnvironmentUnusable
from milepost.jobmaster.job.context import JobContext
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

_TRUSTED_FOR_S = 3600.0
"""How long a place is trusted that another process of this user has asked."""


class _Rules(Enum):
    """What a place was asked for; one that may be written to has been asked for reads as well."""

    WRITES = "writes"
    READS = "reads"


_Place = tuple[str, ...]
"""What decides how a store behaves: endpoint, proxy and bucket, or the device that a folder lies on."""

_DEVICE = "device"

_TRUSTED: set[tuple[_Place, _Rules]] = set()
"""Places that this process knows to keep every rule."""


@dataclass(frozen=True, slots=True)
class _Written:
    """A store that the job writes to; `user` is empty for the job's own."""

    user: str
    store: ObjectStore
    rules: ClassVar[_Rules] = _Rules.WRITES


@dataclass(frozen=True, slots=True)
class _Read:
    """A store that the job only reads, and below which prefix."""

    user: str
    store: ObjectStore
    prefix: str
    rules: ClassVar[_Rules] = _Rules.READS


def require_stores(context: JobContext) -> None:
    """Refuse a job one of whose stores breaks a rule; each place is asked once per process, and hour.

    Raises:
        EnvironmentUnusable: names the endpoint and every rule it broke; or the extra of a table's format is not
            installed. StoreUnavailable: it could not be asked.
    """
    for sink in context.spec.sinks:
        context.sink(sink.name)
    for place, use in _places(context):
        if _is_trusted(place, use.rules):
            continue
        try:
            if isinstance(use, _Written):
                require_preconditions(use.store)
            elif not require_versioned_reads(use.store, use.prefix, use.user):
                continue  # nothing there yet: asked again when there is
        except EnvironmentUnusable:
            _distrust(place)
            raise
        _trust(place, use.rules)


def head_within_deadline(context: JobContext) -> Head | None:
    """Return the head of a job; of a store that this process has not asked yet, the answer is waited for a while only.

    Raises: StoreUnavailable: there was none in that time.
    """
    if (_place(context.store_config), _Rules.WRITES) in _TRUSTED:
        return context.log.head()
    return first_answer(context.store, context.log.head)


def local_disks(context: JobContext) -> dict[str, Path]:
    """Return, for each disk of this machine that state or tables are stored on, what it holds first and the folder.

    Of a folder that does not exist yet it is the nearest one above that does.
    """
    places = {"storage": context.job.storage_url}
    places |= {f"sink {one.name}": context.job.url(one.path) for one in context.spec.sinks if one.path is not None}
    found: dict[str, Path] = {}
    devices: set[int] = set()
    for name, url in places.items():
        root = parse_root(url)
        if not isinstance(root, LocalRoot):
            continue
        folder = next(one for one in (root.path, *root.path.parents) if one.exists())
        if (device := folder.stat().st_dev) not in devices:
            devices.add(device)
            found[name] = folder
    return found


def probe_stores(context: JobContext) -> list[ProbeCheck]:
    """Ask every store of a job now, whatever is known already; the failed checks are among the answers.

    Raises:
        EnvironmentUnusable, StoreUnavailable: a store could not even be asked.
    """
    checks: list[ProbeCheck] = []
    asked: set[_Place] = set()
    for place, use in _places(context):
        if place in asked:
            continue
        asked.add(place)
        if isinstance(use, _Written):
            found = probe_store(use.store)
        else:
            read = probe_versioned_reads(use.store, use.prefix)
            found = [] if read is None else [read]
        if not all(check.ok for check in found):
            _distrust(place)
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
            ok, said = False, error.full_message().removeprefix(f"sink {spec.name}: ")
        checks.append(ProbeCheck(f"sink {spec.name}: {spec.location}", ok, said))
    return checks


def _places(context: JobContext) -> Iterator[tuple[_Place, _Written | _Read]]:
    """Yield every use of a store with where it is; written ones first, for they answer for reads as well."""
    yield _place(context.store_config), _Written("", context.store)
    for name in sorted(sink.name for sink in context.spec.sinks):
        config = context.sink_config(name)
        yield _place(config), _Written(f"sink {name}", open_store(config))
    for name in sorted(context.spec.sources):
        config, pattern = context.source(name)
        yield _place(config), _Read(f"source {name}", open_store(config), pattern.split("*", 1)[0])


def _is_trusted(place: _Place, rules: _Rules) -> bool:
    """Return whether a place is known to keep rules: to this process, or to one of this user's within the hour."""
    for asked in (rules, _Rules.WRITES):
        if (place, asked) in _TRUSTED:
            return True
        with suppress(EnvironmentUnusable, OSError):
            if place[0] != _DEVICE and _is_fresh(_mark(place, asked)):
                _TRUSTED.add((place, asked))
                return True
    return False


def _trust(place: _Place, rules: _Rules) -> None:
    _TRUSTED.add((place, rules))
    with suppress(EnvironmentUnusable, OSError):
        if place[0] != _DEVICE:
            mark = _mark(place, rules)
            mark.parent.mkdir(mode=0o700, exist_ok=True)
            mark.touch()
            for old in mark.parent.iterdir():
                if not _is_fresh(old):
                    old.unlink(missing_ok=True)


def _distrust(place: _Place) -> None:
    for rules in _Rules:
        _TRUSTED.discard((place, rules))
        with suppress(EnvironmentUnusable, OSError):
            _mark(place, rules).unlink()


def _is_fresh(mark: Path) -> bool:
    return 0 <= time.time() - mark.stat().st_mtime < _TRUSTED_FOR_S


def _mark(place: _Place, rules: _Rules) -> Path:
    """Return the file, empty, whose time is when the place was asked. Raises EnvironmentUnusable: no private folder."""
    return private_cache() / "stores-1" / hashlib.sha256("\n".join((*place, rules.value)).encode()).hexdigest()


def _place(config: StoreConfig) -> _Place:
    """Return what decides how a store behaves."""
    root = parse_root(config.url)
    if isinstance(root, LocalRoot):
        return _DEVICE, str(_device(root.path))
    store: Any = open_store(config)  # an `S3Store`, which is only loaded by jobs that use it
    return (*store.route, root.bucket)


def _device(folder: Path) -> int:
    """Return the device of a folder, or of the nearest one above it that exists."""
    for known in (folder, *folder.parents):
        try:
            return known.stat().st_dev
        except (FileNotFoundError, NotADirectoryError):
            continue
    return Path("/").stat().st_dev
