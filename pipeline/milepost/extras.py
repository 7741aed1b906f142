"""Extras: libraries that only some jobs need. One that is not installed is refused by the name that installs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from milepost.protocol.records.errors import EnvironmentUnusable

EXTRAS: dict[str, dict[str, str]] = {
    "airflow": {"airflow": "apache-airflow"},
    "spark": {"pyspark": "pyspark", "py4j": "pyspark", "pandas": "pandas", "grpc": "grpcio"},
    "s3": {"boto3": "boto3", "botocore": "boto3"},
    "quality": {"great_expectations": "great-expectations", "pandas": "pandas"},
}
"""Extra -> what of it is imported, and the distribution that brings it."""


def install_command(extra: str) -> str:
    """Return what a person types to have an extra."""
    return f'pip install "milepost[{extra}]"'


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Refuse a library of the extra that the block imports and that is not installed.

    Any other failure of an import passes: a library that is there and broken says itself what is wrong.

    Args:
        what: who needs it, as the subject of a sentence.
    Raises:
        EnvironmentUnusable: it is not installed; the hint says which command installs it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing = EXTRAS[extra].get(error.name or "")
        if missing is None:
            raise
        raise EnvironmentUnusable(
            f"{what} needs {missing}, which is not installed.",
            hint=f"install it: {install_command(extra)}",
            extra=extra,
        ) from error
