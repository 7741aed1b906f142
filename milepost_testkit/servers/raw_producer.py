"""Produce what Python's client of Kafka refuses, through the C library that it carries."""

from __future__ import annotations

import ctypes
from pathlib import Path

import confluent_kafka

_TOPIC, _PARTITION, _VALUE, _FLAGS, _HEADERS, _END = 1, 3, 4, 7, 10, 0
_COPY = 2


def produce_with_header(servers: str, topic: str, partition: int, name: bytes) -> None:
    """Write one message with a header of this name, which may be any bytes."""
    folder = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    library = ctypes.CDLL(str(next(folder.glob("librdkafka*"))))
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_ssize_t
    for function, result, arguments in (
        (library.rd_kafka_conf_new, pointer, []),
        (library.rd_kafka_conf_set, number, [pointer, text, text, text, ctypes.c_size_t]),
        (library.rd_kafka_new, pointer, [number, pointer, text, ctypes.c_size_t]),
        (library.rd_kafka_headers_new, pointer, [ctypes.c_size_t]),
        (library.rd_kafka_header_add, number, [pointer, text, size, text, size]),
        (library.rd_kafka_producev, number, [pointer]),
        (library.rd_kafka_flush, number, [pointer, number]),
        (library.rd_kafka_destroy, None, [pointer]),
    ):
        function.restype, function.argtypes = result, arguments
    error = ctypes.create_string_buffer(512)
    options = library.rd_kafka_conf_new()
    assert library.rd_kafka_conf_set(options, b"bootstrap.servers", servers.encode(), error, 512) == 0, error.value
    producer = library.rd_kafka_new(0, options, error, 512)
    assert producer, error.value
    headers = library.rd_kafka_headers_new(1)
    assert library.rd_kafka_header_add(headers, name, len(name), b"x", 1) == 0
    assert (
        library.rd_kafka_producev(
            producer,
            *(number(_TOPIC), text(topic.encode()), number(_PARTITION), number(partition)),
            *(number(_VALUE), text(b"x"), ctypes.c_size_t(1), number(_FLAGS), number(_COPY)),
            *(number(_HEADERS), pointer(headers), number(_END)),
        )
        == 0
    )
    assert library.rd_kafka_flush(producer, 10_000) == 0
    library.rd_kafka_destroy(producer)
