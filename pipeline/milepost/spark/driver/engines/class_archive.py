"""The archive of Spark's loaded classes, with which a JVM is up in half the time.

A fresh process spends most of its start on reading and checking the same ten thousand classes. Java can keep them in a
file that a later JVM maps (class-data sharing). The file belongs to one environment and one Java, lies beside the
environment's packages and is as trusted as they are; `scripts/spark/class_archive.py` makes it. Without it, or with
one that does not fit any more, Java reads the classes as ever.
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
    """Return where the archive of this environment's Spark on that Java lies, whether or not it is there."""
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
    """Return the Java options that map the archive, silently ignoring one that does not fit; "" without one."""
    path = archive_path(java)
    return f"-XX:SharedArchiveFile={shlex.quote(str(path))} -Xshare:auto -Xlog:disable" if path.is_file() else ""
