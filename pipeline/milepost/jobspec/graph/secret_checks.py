"""Refuse literal credentials, because specs are stored with every checkpoint and shown.

A text with references to environment variables is checked without their values: the defaults of the references and the
text around them are part of the spec.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qsl

from milepost.jobspec.job.environment import literal_text
from milepost.jobspec.job.spec import JobSpec
from milepost.language import Path, Problem

_SECRET = "a spec must not contain a secret; use ${env:NAME}"
_NAMES_A_SECRET = re.compile(
    r"^(?!.*[.]secret(?:s|KeyRef)[.]).*"
    r"(?:secret|password|passwd|pwd|token|credentials?|\bsas|(?:private|account|encryption|api|secret[\w.-]*)[._-]?key"
    r"|key[.]pem|passphrase)"
    r"(?:$|(?:[.][^.]+){1,2}[.](?:dfs|blob)[.])",
    re.IGNORECASE,
)
"""Matches the names of options and settings that hold a secret, by their ends.

    catalog.token                                       yes
    fs.azure.account.key.lake.dfs.core.windows.net      yes: Azure appends the account to the name
    ssl.key.pem                                         yes: a private key of a Kafka client
    fs.s3a.aws.credentials.provider                     no: a class
    spark.kubernetes.driver.secretKeyRef.PASSWORD       no: the name of a Kubernetes secret
"""
_ABSENT = "\0"
"""Replaces a reference without a default."""
_USER = re.compile(r"://([^/@]*)@")
_PARAMETER = re.compile(r"(?:^|[\s?&;])(?:ssl)?password\s*=\s*\0*[^\s&;\0]", re.IGNORECASE)
_NO_SECRETS = ("", "true", "false", "bearer", "basic")


def secret_problems(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each literal secret in a spec."""
    for path, uri in _uris(spec):
        if _has_secret(uri):
            yield Problem(path, _SECRET)
    for path, value in _named_values(spec):
        if _is_secret(str(path[-1]), value):
            yield Problem(path, _SECRET)


def _has_secret(uri: str) -> bool:
    """Return whether a URI or connection string contains a literal password."""
    text = literal_text(uri, _ABSENT)
    return (
        any(user.partition(":")[2].strip(_ABSENT) for user in _USER.findall(text))
        or _PARAMETER.search(text) is not None
        or any(_is_secret(name, value) for name, value in parse_qsl(text.partition("?")[2]))
    )


def _is_secret(name: str, value: str) -> bool:
    """Return whether an option holds a literal secret.

    `Bearer ${env:TOKEN}` does not, nor does `id:${env:SECRET}` in a `credential`.
    """
    if _NAMES_A_SECRET.search(name[-300:]) is None:
        return False
    text = literal_text(value).replace(_ABSENT, "")
    if name.lower().endswith("credential"):
        text = text.partition(":")[2] if ":" in text else text
    return text.strip().lower() not in _NO_SECRETS


def _uris(spec: JobSpec) -> Iterator[tuple[Path, str]]:
    yield from _source_texts(spec)
    if "${env:" in spec.store.endpoint_url:  # without a reference, the check of its form gives a better message
        yield ("store", "endpoint_url"), spec.store.endpoint_url
    for index, sink in enumerate(spec.sinks):
        if sink.path is not None and "${env:" in sink.path:
            yield ("sinks", index, "path"), sink.path
        if sink.dsn is not None:
            yield ("sinks", index, "dsn"), sink.dsn
        if sink.catalog is not None:
            yield ("sinks", index, "catalog", "uri"), sink.catalog.uri


def _named_values(spec: JobSpec) -> Iterator[tuple[Path, str]]:
    yield from _source_texts(spec)
    for index, sink in enumerate(spec.sinks):
        if sink.catalog is not None:
            for name, value in sink.catalog.options.items():
                yield ("sinks", index, "catalog", "options", name), value
    for key, value in spec.spark.conf.items():
        yield ("spark", "conf", key), value


def _source_texts(spec: JobSpec) -> Iterator[tuple[Path, str]]:
    for name, source in spec.sources.items():
        for keys, text in source.connection_texts.items():
            yield ("sources", name, *keys), text
