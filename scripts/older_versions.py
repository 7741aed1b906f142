"""Build an environment for each supported older PySpark and Airflow: `python -m scripts.older_versions`."""

from __future__ import annotations

import re

from scripts.bootstrap import ROOT, Environment
from scripts.linked_environments import LinkedEnvironments
from scripts.unreached import Unreached


def _older(library: str, minor: str, disk_bytes: int, size: str) -> Environment:
    name = f"{library}-{minor}"
    return Environment(f".venv-{name}", f"requirements-{name}.txt", False, disk_bytes, f"{library} {minor}, {size}")


OLDER: dict[str, dict[str, Environment]] = {
    "pyspark": {minor: _older("spark", minor, 1_500_000_000, "500 MB") for minor in ("4.0", "4.1", "4.2")},
    "apache-airflow": {minor: _older("airflow", minor, 200_000_000, "80 MB") for minor in ("3.1", "3.2")},
}
"""Library -> minor version -> its environment."""

VERSIONS = LinkedEnvironments(
    "scripts.older_versions",
    tuple(environment for library in OLDER.values() for environment in library.values()),
    Unreached(
        ROOT / ".milepost" / "older-versions-unreached.txt",
        "older versions of PySpark and Airflow",
        "no package index was reached",
    ),
)


def version_of(library: str, minor: str) -> str:
    """Return the exact version that is pinned for a minor one: "4.0.5" for "4.0"."""
    requirements = OLDER[library][minor].requirements
    text = (ROOT / requirements).read_text(encoding="utf-8")
    match = re.search(rf"^{library}==(\S+)$", text, re.MULTILINE)
    assert match is not None, f"{requirements} pins no {library}"
    return match[1]


if __name__ == "__main__":
    VERSIONS.build()
