"""Locate the archive of Spark's classes, which halves the start of a JVM.

A new JVM spends most of its start on reading and verifying the same 10,000 classes. With class-data sharing, Java maps
them from a file. The file belongs to one environment and one Java. It is stored next to the environment's packages and
is as trusted as they are. `scripts/spark/class_archive.py` creates it. If it is missing or outdated, Java reads the
classes as usual.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path

import pyspark

from milepost.spark.driver.engines.java import JavaRuntime

_FOLDER = "share/milepost"


def archive_path(java: JavaRuntime) -> Path:
    """Return the path of the archive for this environment's Spark and that Java. The file may not exist."""
    release = java.home / "release"
    parts = (
        str(java.home),
        release.read_text(encoding="utf-8", errors="replace") if release.is_file() else "",
        str(Path(pyspark.__file__).resolve().parent),
        pyspark.__version__,
    )
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    return Path(sys.prefix).resolve() / _FOLDER / f"spark-classes-{digest}.jsa"


def archive_options(java: JavaRuntime) -> str:
    """Return the Java options that map the archive, or "" without one. Java ignores an outdated archive silently."""
    path = archive_path(java)
    return f"-XX:SharedArchiveFile={shlex.quote(str(path))} -Xshare:auto -Xlog:disable" if path.is_file() else ""
