"""The values of a task's environment that its log may not show, whatever prints them; Airflow's masker hides them."""

from __future__ import annotations

import configparser
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from airflow.sdk.log import mask_secret

from milepost.jobspec.job.environment import referenced_variables
from milepost.jobspec.values.spark_remote import TOKEN_VARIABLE

_CREDENTIALS = ("aws_secret_access_key", "aws_session_token", "aws_security_token")


def mask_secrets(spec_path: str) -> None:
    """Register with Airflow's masker what `${env:…}` of a spec resolves to, AWS' secrets, and the Connect token.

    The spec's text is read, not its value: one that is not valid has secrets, too. Its defaults are no secrets.
    """
    try:
        text = Path(spec_path).read_text(encoding="utf-8", errors="replace")
    except OSError:  # whoever loads it says so
        text = ""
    for value in {*_of_environment(os.environ, text), *_of_aws_files(os.environ)}:
        if value:
            mask_secret(value)


def _of_environment(environment: Mapping[str, str], spec: str) -> Iterator[str]:
    names = (TOKEN_VARIABLE, *(name.upper() for name in _CREDENTIALS), *referenced_variables(spec))
    yield from (environment.get(name, "") for name in names)


def _of_aws_files(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the secrets of every profile of AWS' shared files; none of one that cannot be read."""
    for variable, usual in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        profiles = configparser.RawConfigParser(default_section="")
        try:
            file = Path(environment.get(variable) or f"~/.aws/{usual}").expanduser()
            profiles.read_string(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RuntimeError, configparser.Error):  # the S3 client says so when it needs it
            continue
        for profile in profiles.sections():
            yield from (profiles.get(profile, name, fallback="") for name in _CREDENTIALS)
