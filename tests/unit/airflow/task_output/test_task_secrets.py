"""What a task's process knows and its log may not show (DESIGN 8)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk._shared.secrets_masker import redact

from milepost.airflow.operators.base import JobOperator

TOKEN = "a-token-of-a-spark-connect-server"


class Telling(JobOperator):
    """A task whose work would print its environment."""

    def act(self, context: Any) -> str:
        return str(redact(f"token={TOKEN}"))


def test_the_token_of_the_spark_server_is_masked_in_a_task_s_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_CONNECT_AUTHENTICATE_TOKEN", TOKEN)
    assert TOKEN in str(redact(f"token={TOKEN}")), "nothing masks it by itself"
    assert Telling(task_id="tells", spec_path="none.yaml").execute({"ti": None}) == "token=***"


SPEC = """\
name: [this is no valid spec
store: {endpoint_url: "${env:ENDPOINT_WITH_PASSWORD}", region: "${env:REGION:-not-a-secret-default}"}
spark: {conf: {spark.x: "${env:CATALOG_PASSWORD:-none}"}}
"""


class Printing(JobOperator):
    """A task whose work prints these values."""

    def act(self, context: Any) -> list[str]:
        return [str(redact(f"value={value}")) for value in context["values"]]


def test_what_a_spec_takes_from_the_environment_and_aws_secrets_are_masked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also those of a spec that is not valid: its error is logged, too."""
    (tmp_path / "job.yaml").write_text(SPEC)
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = AKIA1\naws_secret_access_key = the-secret-of-a-profile\n"
        "[other]\naws_session_token = the-token-of-another-profile\n"
    )
    (tmp_path / "config").write_text("[profile third]\naws_secret_access_key = the-secret-of-a-config\n")
    secret = {
        "ENDPOINT_WITH_PASSWORD": "http://user:pass@store:1",
        "CATALOG_PASSWORD": "the-password-of-a-catalog",
        "AWS_SECRET_ACCESS_KEY": "the-secret-of-the-environment",
        "AWS_SESSION_TOKEN": "the-token-of-the-environment",
    }
    for name, value in secret.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    values = [
        *secret.values(),
        "the-secret-of-a-profile",
        "the-token-of-another-profile",
        "the-secret-of-a-config",
    ]
    assert [str(redact(f"value={value}")) for value in values] == [f"value={value}" for value in values]

    printed = Printing(task_id="prints", spec_path=str(tmp_path / "job.yaml")).execute(
        {"ti": None, "values": [*values, "not-a-secret-default"]}
    )

    assert printed == [*["value=***"] * len(values), "value=not-a-secret-default"]


def test_unreadable_credentials_do_not_stop_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "credentials").write_bytes(b"\xff no = ini\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    assert Printing(task_id="prints", spec_path="none.yaml").execute({"ti": None, "values": []}) == []
