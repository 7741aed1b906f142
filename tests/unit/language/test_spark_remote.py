"""Parsing the address of a Spark Connect server."""

from __future__ import annotations

import pytest

from milepost.language.spark_remote import DEFAULT_PORT, SparkRemote, parse_remote, remote_problem


@pytest.mark.parametrize(
    ("text", "remote", "loopback"),
    [
        ("sc://localhost", SparkRemote("localhost", DEFAULT_PORT, tls=False), True),
        ("sc://127.0.0.1:7", SparkRemote("127.0.0.1", 7, tls=False), True),
        ("sc://[::1]:7/", SparkRemote("::1", 7, tls=False), True),
        ("sc://spark.example:443/;use_ssl=true", SparkRemote("spark.example", 443, tls=True), False),
    ],
)
def test_an_address_has_host_port_and_tls(text: str, remote: SparkRemote, loopback: bool) -> None:
    parsed = parse_remote(text)
    assert (parsed, parsed.is_loopback) == (remote, loopback)
    assert parse_remote(f"{parsed.url}/;use_ssl={str(parsed.tls).lower()}") == parsed


@pytest.mark.parametrize(
    "text",
    ["sc://s3cret@host", "sc://me:s3cret@host", "sc://host/;token=s3cret", "sc://host/;x=s3cret", "http://s3cret"],
)
def test_a_refusal_does_not_quote_a_possible_secret(text: str) -> None:
    problem = remote_problem(text)
    assert problem is not None and "s3cret" not in problem
