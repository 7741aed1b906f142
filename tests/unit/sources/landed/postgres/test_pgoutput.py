"""The decoder of pgoutput: every message is read as it was written, and no bytes make it fail otherwise."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.sources.landed.postgres.pgoutput import (
    UNCHANGED,
    BadMessage,
    Begin,
    Column,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    Skipped,
    Truncate,
    Update,
    decode,
    lsn_text,
    parse_lsn,
)
from milepost_testkit import profiles
from milepost_testkit.models.data.pgoutput_messages import encode

OIDS = st.integers(0, 2**32 - 1)
LSNS = st.integers(0, 2**64 - 1)
TIMES = st.integers(-(2**60), 2**60)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
VALUES = st.lists(st.none() | st.just(UNCHANGED) | st.binary(max_size=40), max_size=6).map(tuple)
COLUMNS = st.lists(st.builds(Column, NAMES, OIDS, st.booleans()), max_size=5).map(tuple)
MESSAGES = st.one_of(
    st.builds(Begin, LSNS, TIMES, OIDS),
    st.builds(Commit, LSNS, LSNS, TIMES),
    st.builds(Relation, OIDS, NAMES, NAMES, st.sampled_from("dnfi"), COLUMNS),
    st.builds(Insert, OIDS, VALUES),
    st.builds(Update, OIDS, st.sampled_from("KO"), VALUES, VALUES),
    st.builds(Update, OIDS, st.just(""), st.none(), VALUES),
    st.builds(Delete, OIDS, st.sampled_from("KO"), VALUES),
    st.builds(Truncate, st.lists(OIDS, max_size=4).map(tuple)),
    st.builds(Skipped, st.sampled_from("YO")),
)


@profiles.examples()
@given(MESSAGES)
def test_a_message_is_read_as_it_was_written(message: Message) -> None:
    assert decode(encode(message)) == message


@profiles.examples()
@given(MESSAGES, st.data())
def test_a_message_that_is_cut_changed_or_longer_is_bad_or_another(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = bytes([*whole[:at], data.draw(st.integers(0, 255)), *whole[at + 1 :]])
    for body in (whole[:at], changed, whole + b"\0"):
        try:
            decode(body)
        except BadMessage:
            continue
    if not isinstance(message, Skipped):
        with pytest.raises(BadMessage):
            decode(whole[:at])
        with pytest.raises(BadMessage):
            decode(whole + b"\0")


@profiles.examples(share=0.2)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_message_or_bad(body: bytes) -> None:
    try:
        decode(body)
    except BadMessage as bad:
        assert str(bad)


def test_messages_of_a_real_server_are_read() -> None:
    insert = b"I\x00\x00@\x02N\x00\x03t\x00\x00\x00\x011t\x00\x00\x00\x01at\x00\x00\x00\x031.5"
    assert decode(insert) == Insert(16386, (b"1", b"a", b"1.5"))
    begin = b"B\x00\x00\x00\x00\x01\xaf|p\x00\x03\x04f\xa5\xa4\r\x8b\x00\x00\x02\xf6"
    assert decode(begin) == Begin(0x1AF7C70, 1_795_948_642_299_275, 758)  # 2026-11-29T10:37:22Z


@pytest.mark.parametrize(("text", "lsn"), [("0/0", 0), ("0/1AF7C70", 0x1AF7C70), ("A/B", (10 << 32) + 11)])
def test_an_lsn_is_written_as_postgres_writes_it(text: str, lsn: int) -> None:
    assert (lsn_text(lsn), parse_lsn(text)) == (text, lsn)


@pytest.mark.parametrize("text", ["", "1", "0/", "x/1", "123456789/0", "0/123456789"])
def test_another_text_is_no_lsn(text: str) -> None:
    with pytest.raises(ValueError):
        parse_lsn(text)


def test_a_message_of_a_later_protocol_is_refused_by_its_type() -> None:
    with pytest.raises(BadMessage, match=r"b'S'.*no such message"):
        decode(b"S" + struct.pack(">Ib", 5, 1))
