"""Frames of Kafka's protocol and of gnomon's own, built by hand: no client would send these."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence

from gnomon.wire.kafka.api import request_header_version
from gnomon.wire.kafka.frame import encode_unsigned_varint

CLIENT = b"attacker"


def kafka_frame(key: int, version: int, body: bytes) -> bytes:
    """A request with its length; the body is whatever the attack wants."""
    head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1" + len(CLIENT).to_bytes(2, "big") + CLIENT
    if request_header_version(key, version) == 2:
        head += b"\0"
    return (len(head) + len(body)).to_bytes(4, "big") + head + body


def compact(count: int) -> bytes:
    """The count of a compact array, or the length of compact bytes."""
    return encode_unsigned_varint(count + 1)


def text(value: str) -> bytes:
    """A compact string."""
    return compact(len(value.encode())) + value.encode()


def produce_body(batches: Mapping[str, Sequence[bytes]]) -> bytes:
    """A Produce request (version 9, acks=all) of one batch for each partition from 0 on, by topic."""
    parts = [b"\0", b"\xff\xff", b"\0\0\x75\x30", compact(len(batches))]
    for topic, records in batches.items():
        parts += (text(topic), compact(len(records)))
        for index, batch in enumerate(records):
            parts += (index.to_bytes(4, "big"), compact(len(batch)), batch, b"\0")
        parts.append(b"\0")
    return b"".join([*parts, b"\0"])


def read_frame(stream: socket.socket) -> bytes:
    """The next frame without its length.

    Raises:
        EOFError: the peer closed the connection.
    """
    return _read(stream, int.from_bytes(_read(stream, 4), "big"))


def _read(stream: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        some = stream.recv(min(count - len(found), 1 << 20))
        if not some:
            raise EOFError("the broker closed the connection")
        found += some
    return bytes(found)
