"""Register the secrets of a task's environment with Airflow's log masker."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow.sdk.log import mask_secret

from milepost.jobspec.job import referenced_variables
from milepost.language import TOKEN_VARIABLE

_CREDENTIALS = ("aws_secret_access_key", "aws_session_token", "aws_security_token")


def mask_secrets(spec_path: str) -> None:
    """Register the values of `${env:…}` in a spec, the AWS secrets, and the Spark Connect token.

    This searches the text of the spec, because a spec that is not valid has secrets too. Defaults in the spec are not
    secrets.
    """
    try:
        text = Path(spec_path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # loading the spec reports it
        text = ""
    for value in {*_of_environment(os.environ, text), *_of_aws_files(os.environ)}:
        if value:
            mask_secret(value)


def _of_environment(environment: Mapping[str, str], spec: str) -> Iterator[str]:
    names = (TOKEN_VARIABLE, *(name.upper() for name in _CREDENTIALS), *referenced_variables(spec))
    yield from (environment.get(name, "") for name in names)


def _of_aws_files(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets of every profile in the shared AWS files. Skips unreadable files."""
    for variable, usual in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        profiles = configparser.RawConfigParser(default_section="")
        try:
            file = Path(environment.get(variable) or f"~/.aws/{usual}").expanduser()
            profiles.read_string(file.read_text(encoding="utf-8"))
        except (
            OSError,
            ValueError,
            RuntimeError,
            configparser.Error,
        ):  # the S3 client reports it
            continue
        for profile in profiles.sections():
            yield from (profiles.get(profile, name, fallback="") for name in _CREDENTIALS)
