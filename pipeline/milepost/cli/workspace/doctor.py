"""Checks of `milepost doctor`: what an epoch needs, without starting anything heavy."""

from __future__ import annotations

import importlib.metadata
import os
import pwd
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from milepost import __version__
from milepost.errors import CheckpointError, EnvironmentUnusable, InvalidRequest, StoreUnavailable
from milepost.extras import EXTRAS, install_command, require, supported_range, unsupported_libraries

if TYPE_CHECKING:
    from milepost.jobmaster import JobMaster
    from milepost.jobspec.load import LoadedJob

_LIBRARIES = ("numpy", "pyarrow", "sqlglot")
_FREE_BYTES = 2_000_000_000
"""For temporary files, without which Spark fails."""

_ADVISED_BYTES = 2_000_000_000
"""For state and tables."""


@dataclass(frozen=True, slots=True)
class Check:
    """The result of checking one precondition of an epoch, and what to do.

    Attributes:
        warning: an epoch can run, but the user should look at it.
    """

    check: str
    ok: bool
    warning: bool
    detail: str


def environment_checks() -> list[Check]:
    """Return one check per precondition of an epoch."""
    return [
        _python(),
        _java(),
        _libraries(),
        *_extras(),
        _disk(),
        _host_name(),
        _user(),
        _proxy(),
    ]


def job_checks(job: LoadedJob) -> list[Check]:
    """Return the checks of one job: guarantees of its stores, its sources, and its expectations."""
    from milepost.jobmaster import (
        JobMaster,
        probe_landed_sources,
        probe_stores,
        probe_tables,
        source_checks,
        suite_problems,
    )

    try:
        job.graph()
        spec = _check("spec", True, "valid, with its SQL, columns and types")
    except InvalidRequest as error:
        spec = _check("spec", False, error.message)
    faults = suite_problems(job)
    master = JobMaster(job)
    context = master.context
    try:
        stores = [_check(f"store: {probed.check}", probed.ok, probed.detail) for probed in probe_stores(context)]
        sources = [
            _check(f"source {source.name}", source.ok, source.detail, warning=source.suspicious)
            for source in source_checks(job)
            if source.name not in job.spec.landed
        ]
        landed = probe_landed_sources(context)
        sources += [
            _check(f"source {probed.name}", probed.ok, probed.detail, warning=probed.suspicious) for probed in landed
        ]
    except (StoreUnavailable, EnvironmentUnusable) as error:
        stores, sources = [_check("store", False, error.full_message())], []
    return [
        spec,
        *_server(job),
        *_disks_of(master),
        *stores,
        *(_check(probed.check, probed.ok, probed.detail) for probed in probe_tables(context)),
        *(_new_tables(master) if all(check.ok for check in stores) else ()),
        *sources,
        *(
            _check(f"quality: {sink}", fault is None, fault or "every expectation can be built")
            for sink, fault in faults.items()
        ),
    ]


def _new_tables(master: JobMaster) -> Iterator[Check]:
    """Yield a warning for each new table that another job owns: `start --claim` can adopt it, `run` does not."""
    try:
        for error in master.reports.refused_tables():
            if isinstance(error, InvalidRequest):
                yield _check("new table", True, error.full_message(), warning=True)
    except CheckpointError as error:
        yield _check("head", False, error.full_message())


def _server(job: LoadedJob) -> Iterator[Check]:
    try:
        server = job.spark_server()
        if server is None:
            return
        require("spark", "a Spark Connect server")
        from milepost.spark.driver.executors import check_server, libraries_of

        spec = job.spec
        libraries = libraries_of((spec.storage, *(source.path for source in spec.files.values())))
        yield _check("spark server", True, check_server(server, spec.spark.conf, libraries))
    except CheckpointError as error:
        yield _check("spark server", False, error.full_message())


def _check(name: str, ok: bool, detail: str, *, warning: bool = False) -> Check:
    return Check(name, ok, ok and warning, detail)


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    return _check("python", True, f"{found} ({sys.executable})")


def _java() -> Check:
    from milepost.spark.driver.engines import find_java

    try:
        java = find_java()
    except CheckpointError as error:
        return _check("java", False, f"{error.message.splitlines()[0]} {error.hint}".strip())
    return _check("java", True, f"{java.version} ({java.home}, from {java.origin})")


def _libraries() -> Check:
    found = ", ".join(f"{name} {_version(name)}" for name in _LIBRARIES)
    return _check("milepost", True, f"{__version__}, with {found}")


def _extras() -> Iterator[Check]:
    """Spark is required. The other libraries are needed only by the jobs that use them."""
    for extra, libraries in EXTRAS.items():
        versions = {name: _version(name) for name in libraries.values()}
        missing = [name for name, version in versions.items() if version is None]
        found = ", ".join(f"{name} {version}" for name, version in versions.items() if version is not None)
        unsupported = unsupported_libraries(extra)
        wrong = [f"{name} {version}, expected {supported_range(name)}" for name, version in unsupported.items()]
        faults = [f"{', '.join(missing)} not installed", *wrong] if missing else wrong
        ok = not faults or extra != "spark"
        detail = f"{', '.join(faults)}; {install_command(extra)}" if faults else found
        yield _check(f"extra {extra}", ok, detail, warning=bool(faults))


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _disk() -> Check:
    folder = os.environ.get("TMPDIR", "/tmp")
    try:
        free, detail = _free(folder)
    except OSError as problem:
        return _check("disk", False, f"{folder}: {problem.strerror}; set TMPDIR to a folder that exists")
    return _check("disk", free >= _FREE_BYTES, detail if free >= _FREE_BYTES else f"{detail}; 2 GB are needed")


def _free(folder: str) -> tuple[int, str]:
    free = shutil.disk_usage(folder).free
    return free, f"{free / 1e9:.1f} GB free under {folder}"


def _disks_of(master: JobMaster) -> Iterator[Check]:
    """Yield one check per local disk with state or tables of the job. A nearly full disk is a warning."""
    from milepost.jobmaster import local_disks

    for name, folder in local_disks(master.context).items():
        free, detail = _free(str(folder))
        few = free < _ADVISED_BYTES
        yield _check(f"disk of {name}", True, f"{detail}; 2 GB are advised" if few else detail, warning=few)


def _host_name() -> Check:
    name = socket.gethostname()
    try:
        return _check("host name", True, f"{name} = {socket.gethostbyname(name)}")
    except OSError:
        # Local Spark masters get 127.0.0.1 from us; only a cluster needs the name.
        return _check("host name", True, f"{name} does not resolve: local masters work, a Spark cluster would not")


def _user() -> Check:
    uid = os.getuid()
    try:
        return _check("user", True, f"uid {uid} is {pwd.getpwuid(uid).pw_name}")
    except KeyError:
        return _check(
            "user", False, f"uid {uid} has no passwd entry, and Spark dies without one; add it to /etc/passwd"
        )


def _proxy() -> Check:
    proxies = [name for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy") if os.environ.get(name)]
    if not proxies:
        return _check("proxy", True, "none")
    return _check("proxy", True, f"{', '.join(proxies)} set; loopback is reached without it")
