"""Extras: libraries that only some jobs need. One that is not installed is refused by the name that installs it."""

from __future__ import annotations

import re
from contextlib import suppress
from importlib.util import find_spec

from milepost import python_problem
from milepost.errors import EnvironmentUnusable

EXTRAS: dict[str, dict[str, str]] = {
    "airflow": {"airflow": "apache-airflow"},
    "spark": {"pyspark": "pyspark", "py4j": "pyspark", "pandas": "pandas", "grpc": "grpcio"},
    "s3": {"boto3": "boto3"},
    "quality": {"great_expectations": "great-expectations", "pandas": "pandas"},
    "delta": {"deltalake": "deltalake"},
    "iceberg": {"pyiceberg": "pyiceberg"},
    "kafka": {"confluent_kafka": "confluent-kafka"},
    "registry": {
        "confluent_kafka": "confluent-kafka",
        "fastavro": "fastavro",
        "google.protobuf": "protobuf",
        "requests": "requests",
    },
    "dlt": {"dlt": "dlt"},
    "lineage": {"openlineage": "openlineage-python"},
    "otel": {
        "opentelemetry.sdk": "opentelemetry-sdk",
        "opentelemetry.exporter.otlp": "opentelemetry-exporter-otlp",
    },
    "postgres": {"psycopg": "psycopg", "psycopg_binary": "psycopg-binary"},
}
"""Extra -> what of it is imported, and the distribution that brings it."""

SUPPORTED: dict[str, tuple[str, str]] = {"apache-airflow": ("3.1", "4"), "pyspark": ("4.0", "5")}
"""Distribution -> the first supported version and the first unsupported one above, as in pyproject.toml.

The other ranges are left to pip. These two are often part of an image that another team builds.
"""


def install_command(extra: str) -> str:
    """Return what a person types to have an extra."""
    return f'pip install "milepost[{extra}]"'


def missing_libraries(extra: str) -> tuple[str, ...]:
    """Return the distributions of an extra that are not installed; imports none of them."""
    return tuple(dict.fromkeys(name for module, name in EXTRAS[extra].items() if not _is_there(module)))


def supported_range(name: str) -> str:
    """Return the supported versions of a distribution, as pip writes them: `>=4.0,<5`."""
    first, end = SUPPORTED[name]
    return f">={first},<{end}"


def is_supported(name: str, version: str) -> bool:
    """Return whether a version of a distribution is in its range; every version of one without a range is.

    >>> is_supported("pyspark", "4.0.1"), is_supported("pyspark", "3.5.9"), is_supported("pyspark", "4.1.0-amzn-1")
    (True, False, True)
    """
    if name not in SUPPORTED:
        return True
    first, end = map(release_of, SUPPORTED[name])
    return first <= release_of(version) < end


def unsupported_libraries(extra: str) -> dict[str, str]:
    """Return the installed distributions of an extra with an unsupported version, with that version."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in set(EXTRAS[extra].values()) & SUPPORTED.keys():
        with suppress(PackageNotFoundError):  # Spark's own images have PySpark as files, without metadata
            found[name] = version(name)
    return {name: version for name, version in found.items() if not is_supported(name, version)}


def release_of(version: str) -> tuple[int, ...]:
    """Return major and minor number of a version: (4, 1) of "4.1.0-amzn-1"."""
    return tuple(int(digits[0]) for part in version.split(".")[:2] if (digits := re.match(r"\d+", part)))


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def require(extra: str, what: str) -> None:
    """Refuse to continue without the libraries of an extra; imports none of them.

    All of them, whatever is needed first: some are asked for by others only in the midst of an epoch, whose failure
    would then be taken for that of its data.

    Args:
        what: who needs it, as the subject of a sentence.
    Raises:
        EnvironmentUnusable: one is not installed, or its version is not supported; the hint says which command
            installs it.
    """
    if missing := missing_libraries(extra):
        raise EnvironmentUnusable(
            f"{what} needs {missing[0]}, which is not installed.",
            hint=f"install it: {install_command(extra)}",
            extra=extra,
        )
    require_supported(extra, what)


def require_python() -> None:
    """Raise EnvironmentUnusable in an unsupported Python."""
    problem = python_problem()
    if problem is not None:
        raise EnvironmentUnusable(problem)


def require_supported(extra: str, what: str) -> None:
    """Refuse an unsupported version of a library of an extra. A library that is not installed is not refused.

    Raises:
        EnvironmentUnusable: a version is not supported.
    """
    for name, version in unsupported_libraries(extra).items():
        raise EnvironmentUnusable(
            f"{what} needs {name} {supported_range(name)}, and {version} is installed.",
            hint=f"install a supported version: {install_command(extra)}",
            extra=extra,
        )
