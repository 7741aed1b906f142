"""Extras: libraries that only some jobs need. One that is not installed is refused by the name that installs it."""

from __future__ import annotations

from importlib.util import find_spec

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


def install_command(extra: str) -> str:
    """Return what a person types to have an extra."""
    return f'pip install "milepost[{extra}]"'


def missing_libraries(extra: str) -> tuple[str, ...]:
    """Return the distributions of an extra that are not installed; imports none of them."""
    return tuple(dict.fromkeys(name for module, name in EXTRAS[extra].items() if not _is_there(module)))


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
        EnvironmentUnusable: one is not installed; the hint says which command installs it.
    """
    if missing := missing_libraries(extra):
        raise EnvironmentUnusable(
            f"{what} needs {missing[0]}, which is not installed.",
            hint=f"install it: {install_command(extra)}",
            extra=extra,
        )
