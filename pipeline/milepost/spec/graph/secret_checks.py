"""Find credentials that a spec spells out: specs are stored with every checkpoint, and shown.

A reference to an environment variable is judged by what remains without its environment: the default of a variable is
written in the spec too, and so is the text around one that may be empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl

from milepost.spec.job.environment import literal_text
from milepost.spec.job.spec import JobSpec
from milepost.spec.values.problems import Path, Problem

_SECRET = "a secret stands in no spec; use ${env:NAME}"
_NAMES_A_SECRET = re.compile(
    r"^(?!.*[.]secret(?:s|KeyRef)[.]).*"
    r"(?:secret|password|passwd|pwd|token|credentials?|\bsas|(?:private|account|encryption|api|secret[\w.-]*)[._-]?key)"
    r"(?:$|(?:[.][^.]+){1,2}[.](?:dfs|blob)[.])",
    re.IGNORECASE,
)
"""Of an option or a setting, by the end of its name: `fs.s3a.aws.credentials.provider` is a class.

Azure's end with the name of the account: `fs.azure.account.key.lake.dfs.core.windows.net`. Those of Kubernetes
name a secret: `spark.kubernetes.driver.secretKeyRef.PASSWORD`.
"""
_ABSENT = "\0"
"""Stands for a reference without a default."""
_USER = re.compile(r"://([^/@]*)@")
_PARAMETER = re.compile(r"(?:^|[\s?&;])(?:ssl)?password\s*=\s*\0*[^\s&;\0]", re.IGNORECASE)
_NO_SECRETS = ("", "true", "false", "bearer", "basic")


def secret_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield each place of a spec that spells out a secret."""
    for path, uri in _uris(spec):
        if _has_secret(uri):
            yield Problem(path, _SECRET)
    for path, value in _named_values(spec):
        if _is_secret(str(path[-1]), value):
            yield Problem(path, _SECRET)


def _has_secret(uri: str) -> bool:
    """Return whether a URI, or the parameters of a connection, have a password, without its environment."""
    text = literal_text(uri, _ABSENT)
    return (
        any(user.partition(":")[2].strip(_ABSENT) for user in _USER.findall(text))
        or _PARAMETER.search(text) is not None
        or any(_is_secret(name, value) for name, value in parse_qsl(text.partition("?")[2]))
    )


def _is_secret(name: str, value: str) -> bool:
    """Return whether an option is a secret of which more is written than references.

    `Bearer ${env:TOKEN}` is none, and of a `credential` an `id:${env:SECRET}`.
    """
    if _NAMES_A_SECRET.search(name[-300:]) is None:
        return False
    text = literal_text(value).replace(_ABSENT, "")
    if name.lower().endswith("credential"):
        text = text.partition(":")[2] if ":" in text else text
    return text.strip().lower() not in _NO_SECRETS


def _uris(spec: JobSpec) -> Iterator[tuple[Path, str]]:
    if "${env:" in spec.store.endpoint_url:  # of another one the check of its form says more
        yield ("store", "endpoint_url"), spec.store.endpoint_url
    for index, sink in enumerate(spec.sinks):
        if sink.path is not None and "${env:" in sink.path:
            yield ("sinks", index, "path"), sink.path
        if sink.dsn is not None:
            yield ("sinks", index, "dsn"), sink.dsn
        if sink.catalog is not None:
            yield ("sinks", index, "catalog", "uri"), sink.catalog.uri


def _named_values(spec: JobSpec) -> Iterator[tuple[Path, str]]:
    for index, sink in enumerate(spec.sinks):
        if sink.catalog is not None:
            for name, value in sink.catalog.options.items():
                yield ("sinks", index, "catalog", "options", name), value
    for key, value in spec.spark.conf.items():
        yield ("spark", "conf", key), value
