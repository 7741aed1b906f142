"""How a process speaks to a Spark Connect server: what it sends, and under which protection."""

from __future__ import annotations

from uuid import uuid4

import pytest

from pipeline.config.spark_remote import TOKEN_VARIABLE, parse_remote
from pipeline.spark.connect import _Channel


@pytest.mark.parametrize(
    ("address", "token", "sent", "encrypted"),
    [
        ("sc://spark.example:15002", None, None, False),
        ("sc://spark.example:15002", "", None, False),
        ("sc://spark.example:15002", "secret", "secret", True),
        ("sc://spark.example:15002/;use_ssl=true", "", None, True),
        ("sc://localhost:15002", "", None, False),
        ("sc://localhost:15002", "secret", "secret", False),
    ],
)
def test_a_token_goes_to_another_machine_by_tls_alone_and_an_empty_one_is_none(
    monkeypatch: pytest.MonkeyPatch, address: str, token: str | None, sent: str | None, encrypted: bool
) -> None:
    if token is None:
        monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    else:
        monkeypatch.setenv(TOKEN_VARIABLE, token)
    channel = _Channel(parse_remote(address), str(uuid4()))
    assert (channel.token, channel.is_encrypted) == (sent, encrypted)
